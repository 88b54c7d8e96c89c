//! Names of settings, and the edit distance by which the library finds the setting that a misspelt name means.
//!
//! Example: `GPU_MEM_LIMT`, `gpu_mem_limit` and `GPU_MEMORY_LIMIT` all mean `GPU_MEM_LIMIT`.

/// The quota's own key.
pub(super) const MEM_LIMIT: &str = "GPU_MEM_LIMIT";

/// The share's own key.
pub(super) const CORE_PERCENT: &str = "GPU_CORE_PERCENT";

/// HAMi's key for the quota, and the prefix of its keys per device.
pub(super) const HAMI_MEMORY: &str = "CUDA_DEVICE_MEMORY_LIMIT";

/// HAMi's key for the share, and the prefix of its keys per device.
pub(super) const HAMI_SHARE: &str = "CUDA_DEVICE_SM_LIMIT";

/// The key that names the operator's file. It is read from the environment only.
pub(super) const CONFIG_FILE: &str = "GPUSLICE_CONFIG";

/// The key that names the region.
pub const REGION: &str = "GPUSLICE_REGION";

/// The keys of settings with one key.
pub(super) const SINGLE_KEYS: [&str; 11] = [
    "GPU_CORE_POLICY",
    "GPU_CORE_WEIGHT",
    "GPU_CORE_BURST",
    "GPU_CORE_METER",
    "GPU_CORE_COPIES",
    "GPU_PRIORITY",
    "GPU_MEM_OVERSUBSCRIBE",
    "GPUSLICE_DEEPBIND",
    "GPU_MEM_REPORT_TOTAL",
    REGION,
    "GPUSLICE_LOG",
];

/// Variables that are no settings: they tell the command line and the tests where files are.
pub const FILE_VARIABLES: [&str; 4] =
    ["GPUSLICE_LIB", "GPUSLICE_SIMGPU", "GPUSLICE_TRUTH", "GPUSLICE_READ_LIB"];

/// Letters of a name for which one edit is allowed. So `GPU_MEM_UNIT`, which is three edits away from `GPU_MEM_LIMIT`,
/// means something else, and `GPU_MEM_OVERSUBSCRIPTION` means `GPU_MEM_OVERSUBSCRIBE`.
const LETTERS_PER_EDIT: usize = 6;

/// The longest name that is compared with keys. The longest key has 26 letters.
const MOST_LETTERS: usize = 64;

/// Letters that a word of a name keeps when its end is cut off, as in `MEM` for `MEMORY`.
const KEPT_LETTERS: usize = 3;

/// Returns the settings that the library reads from the environment, except HAMi's keys per device.
pub fn settings() -> impl Iterator<Item = &'static str> {
    [MEM_LIMIT, CORE_PERCENT].into_iter().chain(SINGLE_KEYS).chain([CONFIG_FILE, HAMI_MEMORY, HAMI_SHARE])
}

/// Returns true if some part of gpuslice reads a variable of this name.
#[must_use]
pub fn is_read(name: &str) -> bool {
    is_setting(name) || name == CONFIG_FILE || FILE_VARIABLES.contains(&name)
}

/// Returns the name among `names` that a misspelt name probably means. `None`: no name is near.
pub fn meant<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MOST_LETTERS {
        return None;
    }
    let edits = |known: &str| edits(name.as_bytes(), known.as_bytes());
    let nearest = names.into_iter().map(|known| (edits(known), known)).min_by_key(|(edits, _)| *edits);
    nearest.filter(|(edits, _)| edits.saturating_mul(LETTERS_PER_EDIT) <= name.len()).map(|(_, known)| known)
}

/// Returns the setting that a variable's name resembles, if it is another name. `None` for a name that gpuslice reads, and
/// for a name with another prefix: `CPU_MEM_LIMIT` is near `GPU_MEM_LIMIT` and means something else.
#[must_use]
pub fn resembled(name: &str) -> Option<&'static str> {
    let begins = |start: &str| name.get(..start.len()).is_some_and(|own| own.eq_ignore_ascii_case(start));
    let may_be_ours = (begins("GPU") || begins("CUDA_DEVICE_")) && !is_read(name);
    may_be_ours.then(|| meant(name, settings())).flatten()
}

/// Returns the number of edits that turn one name into another, in any case of letters.
///
/// An edit adds a letter, removes one, replaces one, swaps two neighbours, or cuts or completes the end of a word
/// between two `_`.
fn edits(one: &[u8], two: &[u8]) -> usize {
    let columns = two.len().saturating_add(1);
    // The entry of row `i` and column `j` is the number of edits from `i` letters of `one` to `j` letters of `two`.
    let mut table: Vec<usize> = Vec::with_capacity(columns.saturating_mul(one.len().saturating_add(1)));
    for i in 0..=one.len() {
        for j in 0..=two.len() {
            let known = |i: Option<usize>, j: Option<usize>| {
                table.get(i?.checked_mul(columns)?.checked_add(j?)?).copied()
            };
            let before = |steps: usize| known(i.checked_sub(steps), j.checked_sub(steps));
            let letter = |text: &[u8], end: usize, back: usize| {
                Some(text.get(end.checked_sub(back)?)?.to_ascii_uppercase())
            };
            let is_same = letter(one, i, 1) == letter(two, j, 1);
            let is_swapped = letter(one, i, 1) == letter(two, j, 2) && letter(one, i, 2) == letter(two, j, 1);
            let ends = ends_word(one, i) && ends_word(two, j);
            let cut = word(one, i).filter(|_| ends).filter_map(|cut| known(Some(cut), Some(j)));
            let completed = word(two, j).filter(|_| ends).filter_map(|cut| known(Some(i), Some(cut)));
            let one_edit = [known(i.checked_sub(1), Some(j)), known(Some(i), j.checked_sub(1)), before(1)]
                .into_iter()
                .chain([before(2).filter(|_| is_swapped)])
                .flatten()
                .chain(cut)
                .chain(completed)
                .map(|edits| edits.saturating_add(1));
            let least = one_edit.chain(before(1).filter(|_| is_same)).min();
            table.push(least.unwrap_or(0));
        }
    }
    table.last().copied().unwrap_or(0)
}

/// Returns true if a word ends before this letter.
fn ends_word(name: &[u8], at: usize) -> bool {
    name.get(at).is_none_or(|letter| *letter == b'_')
}

/// Returns the positions at which the word that ends before `end` may be cut.
fn word(name: &[u8], end: usize) -> core::ops::Range<usize> {
    let before = name.get(..end).unwrap_or_default();
    let start = before.iter().rposition(|letter| *letter == b'_').map_or(0, |dash| dash.saturating_add(1));
    start.saturating_add(KEPT_LETTERS)..end
}

/// Returns true if a key belongs to a setting.
pub(super) fn is_setting(key: &str) -> bool {
    [MEM_LIMIT, CORE_PERCENT, HAMI_MEMORY, HAMI_SHARE].contains(&key)
        || SINGLE_KEYS.contains(&key)
        || [HAMI_MEMORY, HAMI_SHARE].into_iter().any(|base| hami_ordinal(key, base).is_some())
}

/// Returns the device's number in one of HAMi's keys per device.
pub(super) fn hami_ordinal(key: &str, base: &str) -> Option<u32> {
    let digits = key.strip_prefix(base)?.strip_prefix('_')?;
    let number: u32 = digits.parse().ok()?;
    // HAMi does not look for `_01` and `_+1`.
    (number.to_string() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_letters_swaps_and_ends_of_words() {
        for (one, two, count) in [
            ("", "", 0),
            ("", "ab", 2),
            ("ab", "", 2),
            ("abc", "ABC", 0),
            ("abc", "acb", 1),
            ("abc", "axc", 1),
            ("abc", "abxc", 1),
            ("ab_cd", "abcd", 1),
            ("MEM_X", "MEMORY_X", 1),
            ("M_X", "MEMORY_X", 3),
            ("X_CONF", "X_CONFIGURATION", 1),
            ("CONFIGURATION", "CONF", 1),
            ("MEMORY", "MEM_ORY", 1),
        ] {
            assert_eq!(edits(one.as_bytes(), two.as_bytes()), count, "{one} {two}");
            assert_eq!(edits(two.as_bytes(), one.as_bytes()), count, "{two} {one}");
        }
    }
}
