//! Names of settings, and the edit distance that finds the one that a misspelt name means.
//!
//! Example: `GPU_MEM_LIMT`, `gpu_mem_limit` and `GPU_MEMORY_LIMIT` all mean `GPU_MEM_LIMIT`.

use super::layers::{CONFIG_FILE, CORE_PERCENT, HAMI_MEMORY, HAMI_SHARE, MEM_LIMIT, SINGLE_KEYS, is_setting};
use super::texts::{Said, Warning};
use super::{OperatorFiles, reading};

/// Variables that are no settings: they say where the command line and the tests find files.
pub const PLACES: [&str; 4] = ["GPUSLICE_LIB", "GPUSLICE_SIMGPU", "GPUSLICE_TRUTH", "GPUSLICE_READ_LIB"];
/// One edit is allowed for this many letters of a name. So `GPU_MEM_UNIT`, which is three edits away from
/// `GPU_MEM_LIMIT`, means something else, and `GPU_MEM_OVERSUBSCRIPTION` means `GPU_MEM_OVERSUBSCRIBE`.
const LETTERS_PER_EDIT: usize = 6;
/// The longest name that is compared; the longest key has 26 letters.
const MOST_LETTERS: usize = 64;
/// Letters that a word of a name keeps when its end is cut off, as in `MEM` for `MEMORY`.
const KEPT_LETTERS: usize = 3;

/// The settings that the library reads from the environment, HAMi's keys per device aside.
pub fn settings() -> impl Iterator<Item = &'static str> {
    [MEM_LIMIT, CORE_PERCENT].into_iter().chain(SINGLE_KEYS).chain([CONFIG_FILE, HAMI_MEMORY, HAMI_SHARE])
}

/// Whether some part of gpuslice reads a variable of this name.
#[must_use]
pub fn is_read(name: &str) -> bool {
    is_setting(name) || name == CONFIG_FILE || PLACES.contains(&name)
}

/// The one of these names that a misspelt name probably means; none where none is near.
pub fn meant<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MOST_LETTERS {
        return None;
    }
    let edits = |known: &str| edits(name.as_bytes(), known.as_bytes());
    let nearest = names.into_iter().map(|known| (edits(known), known)).min_by_key(|(edits, _)| *edits);
    nearest.filter(|(edits, _)| edits.saturating_mul(LETTERS_PER_EDIT) <= name.len()).map(|(_, known)| known)
}

/// The setting that a variable's name resembles and that it is not; none for a name that is read, and for one that begins
/// otherwise than a setting: `CPU_MEM_LIMIT` is near to `GPU_MEM_LIMIT` and means another thing.
#[must_use]
pub fn resembled(name: &str) -> Option<&'static str> {
    let begins = |start: &str| name.get(..start.len()).is_some_and(|own| own.eq_ignore_ascii_case(start));
    let may_be_ours = (begins("GPU") || begins("CUDA_DEVICE_")) && !is_read(name);
    may_be_ours.then(|| meant(name, settings())).flatten()
}

/// A warning for each variable whose name is a setting's, misspelt. `environment` holds all variables.
///
/// A variable is not warned of where a source sets the setting that it resembles: then it is probably somebody else's.
#[must_use]
pub fn misspelt(environment: &[(String, Vec<u8>)], files: &OperatorFiles<'_>) -> Vec<Warning> {
    let set = environment.iter().filter(|(_, value)| !value.trim_ascii().is_empty());
    let found: Vec<_> = set.filter_map(|(name, value)| Some((name, value, resembled(name)?))).collect();
    if found.is_empty() {
        return Vec::new();
    }
    let variable =
        |key: &str| environment.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
    let is_set = reading::settings_that_are_set(&variable, files);
    let unset = found.into_iter().filter(|(_, _, meant)| !is_set(meant));
    unset
        .map(|(name, value, meant)| Warning::Misspelt { said: Said::environment(name, value.clone()), meant })
        .collect()
}

/// Edits that turn one name into another, whatever the case of their letters.
///
/// An edit adds a letter, takes one away, replaces one, swaps two neighbours, or cuts or completes the end of a word
/// between two `_`.
fn edits(one: &[u8], two: &[u8]) -> usize {
    let columns = two.len().saturating_add(1);
    // The entry of row `i` and column `j` turns the first `i` letters of one into the first `j` of the other.
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

/// Whether a word ends before this letter.
fn ends_word(name: &[u8], at: usize) -> bool {
    name.get(at).is_none_or(|letter| *letter == b'_')
}

/// Where the word that ends before this letter may be cut.
fn word(name: &[u8], end: usize) -> core::ops::Range<usize> {
    let before = name.get(..end).unwrap_or_default();
    let start = before.iter().rposition(|letter| *letter == b'_').map_or(0, |dash| dash.saturating_add(1));
    start.saturating_add(KEPT_LETTERS)..end
}

#[cfg(test)]
mod tests {
    use super::super::{FIXED_FILE, FileRead};
    use super::*;

    const NO_FILES: OperatorFiles<'static> =
        OperatorFiles { named: FileRead::Absent, fixed: FileRead::Absent };

    fn told(environment: &[(&str, &str)], files: &OperatorFiles<'_>) -> Vec<String> {
        let environment: Vec<_> =
            environment.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
        misspelt(&environment, files).iter().map(ToString::to_string).collect()
    }

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

    #[test]
    fn a_misspelt_variable_is_told_with_what_it_means() {
        for (name, means) in [
            ("GPU_MEM_LIMT", "GPU_MEM_LIMIT"),
            ("gpu_mem_limit", "GPU_MEM_LIMIT"),
            ("GPU_MEMORY_LIMIT", "GPU_MEM_LIMIT"),
            ("GPU_MEM_LIMITS", "GPU_MEM_LIMIT"),
            ("GPU_MEM_LIMIT_0", "GPU_MEM_LIMIT"),
            ("GPUMEM_LIMIT", "GPU_MEM_LIMIT"),
            ("GPU-MEM-LIMIT", "GPU_MEM_LIMIT"),
            ("GPU_CORES_PERCENT", "GPU_CORE_PERCENT"),
            ("GPU_CORE_PERCENTAGE", "GPU_CORE_PERCENT"),
            ("GPU_MEM_OVERSUBSCRIPTION", "GPU_MEM_OVERSUBSCRIBE"),
            ("GPUSLICE_CONF", "GPUSLICE_CONFIG"),
            ("GPUSLICE_REGOIN", "GPUSLICE_REGION"),
            ("CUDA_DEVICE_MEM_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT"),
            ("CUDA_DEVICE_SM_LIMITS", "CUDA_DEVICE_SM_LIMIT"),
        ] {
            let line = format!(
                "gpuslice: {name}=\"4GiB\" is not a setting of gpuslice and limits nothing; if {means} is meant, rename \
                 it, otherwise unset it."
            );
            assert_eq!(told(&[(name, "4GiB")], &NO_FILES), [line]);
        }
    }

    #[test]
    fn variables_of_others_are_not_warned_of() {
        // ROCm's and AMD's, Slurm's, JAX's, TensorFlow's, CUDA's, HAMi's, Kubernetes' and what people choose themselves.
        for name in [
            "GPU_DEVICE_ORDINAL",
            "GPU_MAX_HEAP_SIZE",
            "GPU_MAX_ALLOC_PERCENT",
            "GPU_SINGLE_ALLOC_PERCENT",
            "GPU_MAX_HW_QUEUES",
            "GPU_MAX_WORKGROUP_SIZE",
            "GPU_MAX_COMMAND_QUEUES",
            "GPU_FORCE_64BIT_PTR",
            "GPU_FORCE_BLIT_COPY_SIZE",
            "GPU_ENABLE_COOP_GROUPS",
            "GPU_ENABLE_PAL",
            "GPU_NUM_COMPUTE_RINGS",
            "GPU_NUM_MEM_DEPENDENCY",
            "GPU_USE_SYNC_OBJECTS",
            "GPU_DUMP_CODE_OBJECT",
            "GPU_IMAGE_DMA",
            "GPU_PINNED_XFER_SIZE",
            "GPU_XFER_BUFFER_SIZE",
            "GPU_STAGING_BUFFER_SIZE",
            "GPU_TARGET",
            "GPU_ARCHS",
            "GPU_NUM",
            "GPU_COUNT",
            "GPU_ID",
            "GPU_MEM",
            "GPU_MEMORY",
            "GPU_MEMORY_UTILIZATION",
            "GPU_MEM_UNIT",
            "GPU_MEM_SIZE",
            "GPU_CORE_COUNT",
            "GPU_CORE_CLOCK",
            "GPU_LIMIT",
            "GPU_UTIL_LIMIT",
            "GPU_VISIBLE_DEVICES",
            "CPU_MEM_LIMIT",
            "NPU_CORE_PERCENT",
            "MEM_LIMIT",
            "SLURM_GPUS",
            "SLURM_MEM_PER_GPU",
            "XLA_PYTHON_CLIENT_MEM_FRACTION",
            "TF_GPU_ALLOCATOR",
            "CUDA_DEVICE_ORDER",
            "CUDA_DEVICE_MAX_CONNECTIONS",
            "CUDA_DEVICE_WAITS_ON_EXCEPTION",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE",
            "CUDA_DEVICE_MEMORY_LIMIT_64",
            "GPUSLICE_LIB",
            "GPUSLICE_BIN",
            "GPUSLICE_PORT",
            "GPUSLICE_SERVICE_HOST",
            "GPUSLICE_PORT_9400_TCP_ADDR",
            "GPU_\u{e9}",
            "",
        ] {
            assert_eq!(told(&[(name, "1")], &NO_FILES), [""; 0], "{name}");
        }
        for name in settings() {
            assert_eq!(told(&[(name, "1")], &NO_FILES), [""; 0], "{name}");
        }
        assert_eq!(told(&[(&"GPU_MEM_LIMIT".repeat(9), "1")], &NO_FILES), [""; 0]);
    }

    #[test]
    fn a_name_is_somebody_elses_where_the_setting_itself_is_set() {
        let misspelt = ("GPU_MEMORY_LIMIT", "4GiB");
        let file = |text: &'static str| OperatorFiles {
            named: FileRead::Absent,
            fixed: FileRead::Contents(text.as_bytes()),
        };
        assert_eq!(told(&[misspelt, ("GPU_MEM_LIMIT", "1g")], &NO_FILES), [""; 0]);
        assert_eq!(told(&[misspelt], &file("GPU_MEM_LIMIT=1g")), [""; 0]);
        assert_eq!(told(&[misspelt], &file("CUDA_DEVICE_MEMORY_LIMIT_0=1g")), [""; 0]);
        assert_eq!(told(&[misspelt, ("GPU_MEM_LIMIT", " ")], &file("GPU_CORE_PERCENT=30")).len(), 1);
        assert_eq!(told(&[("GPU_MEMORY_LIMIT", " ")], &NO_FILES), [""; 0]);
        assert_eq!(told(&[misspelt, ("GPUSLICE_CONFIG", FIXED_FILE)], &file("GPU_MEM_LIMIT=1g")), [""; 0]);
    }
}
