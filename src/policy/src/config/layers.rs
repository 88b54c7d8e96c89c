//! Layers of configuration: the environment and the operator's files, and their precedence.
//!
//! A setting has one or more keys: `GPU_MEM_LIMIT` and HAMi's names for it. The highest layer with any of these keys alone
//! decides about the setting. So no part of a lower layer has an effect.

use super::faults::Fault;
use super::keys::{
    self, CONFIG_FILE, CORE_PERCENT, HAMI_MEMORY, HAMI_SHARE, MEM_LIMIT, SINGLE_KEYS, hami_ordinal,
    is_setting,
};
use super::messages::{Malformed, SourcedValue, ValueOrigin};
use super::sources::{MAX_FILE_BYTES, MAX_VALUE_BYTES};

/// Number of devices up to which the environment is searched for HAMi's keys per device. No known container has so many
/// devices.
const HAMI_DEVICES: u32 = 64;

/// All settings of one source.
#[derive(Debug, Default)]
pub(super) struct Layer {
    entries: Vec<SourcedValue>,
}

impl Layer {
    /// Returns the setting of a key.
    pub(super) fn get(&self, key: &str) -> Option<&SourcedValue> {
        self.entries.iter().find(|said| said.key == key)
    }

    /// Returns the settings of HAMi's keys per device, with the device's number.
    pub(super) fn per_device(&self, base: &str) -> Vec<(u32, &SourcedValue)> {
        self.entries.iter().filter_map(|said| Some((hami_ordinal(&said.key, base)?, said))).collect()
    }

    /// Returns true if the layer sets gpuslice's own key `key` or any of HAMi's keys for it.
    pub(super) fn sets(&self, key: &str, hami: &str) -> bool {
        self.get(key).is_some() || self.get(hami).is_some() || !self.per_device(hami).is_empty()
    }
}

/// Reads the environment. An empty variable counts as unset, as is usual in container configurations.
pub(super) fn environment(env: &dyn Fn(&str) -> Option<Vec<u8>>) -> Layer {
    let per_device = [HAMI_MEMORY, HAMI_SHARE]
        .into_iter()
        .flat_map(|base| (0..HAMI_DEVICES).map(move |n| format!("{base}_{n}")));
    let keys = [MEM_LIMIT, CORE_PERCENT, HAMI_MEMORY, HAMI_SHARE].into_iter().chain(SINGLE_KEYS);
    let entries = keys.map(str::to_owned).chain(per_device).filter_map(|key| {
        let value = env(&key).filter(|value| !value.trim_ascii().is_empty())?;
        Some(SourcedValue::environment(&key, value))
    });
    Layer { entries: entries.collect() }
}

/// Reads an operator's file: lines of `KEY=value`, empty lines, and comments. A comment is a `#` at the beginning of
/// a line or after a space.
///
/// Returns the valid lines, and the faults of the others.
pub(super) fn file(name: &str, contents: &[u8]) -> (Layer, Vec<Malformed>) {
    let (mut layer, mut malformed) = (Layer::default(), Vec::new());
    if u64::try_from(contents.len()).map_or(true, |length| length > MAX_FILE_BYTES) {
        malformed.push(Malformed::new(SourcedValue::file(name), Fault::LongFile));
        return (layer, malformed);
    }
    for (number, line) in (1..).zip(contents.split(|byte| *byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        match file_line(name, number, line, &layer) {
            Err(error) => malformed.push(error),
            Ok(said) if said.key == CONFIG_FILE => malformed.push(Malformed::new(said, Fault::FileInFile)),
            // The user has requested a limit under a misspelt key, so the library must not ignore it.
            Ok(said) if !is_setting(&said.key) => {
                let meant = keys::meant(&said.key, keys::settings().filter(|key| *key != CONFIG_FILE));
                malformed.push(Malformed::new(said, Fault::UnknownKey(meant)));
            }
            Ok(said) => layer.entries.push(said),
        }
    }
    (layer, malformed)
}

/// Returns the settings of an operator's file in the order of its lines, each as its key and its value. The values are not
/// parsed.
///
/// # Errors
/// A line is no setting, has an unknown key, or sets a key again.
pub fn settings_of_file(name: &str, contents: &[u8]) -> Result<Vec<(String, String)>, Malformed> {
    let (layer, malformed) = file(name, contents);
    if let Some(first) = malformed.into_iter().next() {
        return Err(first);
    }
    let pair = |said: SourcedValue| match text(&said).map(str::to_owned) {
        Ok(value) => Ok((said.key, value)),
        Err(fault) => Err(Malformed::new(said, fault)),
    };
    layer.entries.into_iter().map(pair).collect()
}

/// Reads one line that is neither empty nor a comment.
fn file_line(name: &str, number: usize, line: &[u8], earlier: &Layer) -> Result<SourcedValue, Malformed> {
    let wrong = |fault| Err(Malformed::new(SourcedValue::line(name, number, "", line), fault));
    let Some((key, value)) = split_setting(line) else { return wrong(Fault::NotALine) };
    let said = SourcedValue::line(name, number, key, value);
    if value.is_empty() {
        return Err(Malformed::new(said, Fault::NoValue));
    }
    match earlier.get(key).map(|first| &first.origin) {
        Some(ValueOrigin::Line { line, .. }) => Err(Malformed::new(said, Fault::SetTwice(*line))),
        _ => Ok(said),
    }
}

/// Splits `KEY=value`. A key has letters, digits and underscores. So a byte-order mark or an `export` is a fault and
/// not an unknown key.
fn split_setting(line: &[u8]) -> Option<(&str, &[u8])> {
    let middle = line.iter().position(|byte| *byte == b'=')?;
    let (key, value) = line.split_at_checked(middle)?;
    let key = str::from_utf8(key).ok()?.trim_ascii();
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_key.then_some((key, without_comment(value.get(1..)?).trim_ascii()))
}

/// Returns the value before a comment: a `#` at the beginning or after a space.
fn without_comment(value: &[u8]) -> &[u8] {
    let before = |at: usize| value.get(..at).unwrap_or_default();
    let is_comment =
        |at: &usize| value.get(*at) == Some(&b'#') && before(*at).last().is_none_or(u8::is_ascii_whitespace);
    (0..value.len()).find(is_comment).map_or(value, before)
}

/// Returns the text of a value.
///
/// # Errors
/// The value is too long, or is not text.
pub(super) fn text(said: &SourcedValue) -> Result<&str, Fault> {
    if said.value.len() > MAX_VALUE_BYTES {
        return Err(Fault::TooLong);
    }
    let text = str::from_utf8(&said.value).map_err(|_| Fault::NotText)?;
    if text.contains('\0') { Err(Fault::NotText) } else { Ok(text.trim_ascii()) }
}
