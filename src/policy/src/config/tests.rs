//! Tests of the configuration contract.

use super::*;
use crate::units::{Bytes, Permille};

mod files;
mod limits;
mod texts;

const GIB: u64 = 1 << 30;
const UUID: [u8; 16] =
    [0x89, 0x32, 0xf9, 0x37, 0xd7, 0x2c, 0x41, 6, 0xc1, 0x2f, 0x20, 0xbd, 0x9f, 0xae, 0xd9, 0xf6];
const OTHER: [u8; 16] = [0x89; 16];
const NO_FILES: OperatorFiles<'static> = OperatorFiles { named: FileRead::Absent, fixed: FileRead::Absent };

type Variables<'a> = &'a [(&'a str, &'a str)];

fn variables(list: Variables<'_>) -> impl Fn(&str) -> Option<Vec<u8>> {
    move |key| list.iter().find(|(name, _)| *name == key).map(|(_, value)| value.as_bytes().to_vec())
}

fn read(list: Variables<'_>, fixed: &str) -> Result<Config, Rejected> {
    let fixed = if fixed.is_empty() { FileRead::Absent } else { FileRead::Contents(fixed.as_bytes()) };
    Config::from_sources(&variables(list), &OperatorFiles { named: FileRead::Absent, fixed })
}

fn from_env(list: Variables<'_>) -> Config {
    read(list, "").unwrap()
}

fn lines(result: Result<Config, Rejected>) -> Vec<String> {
    result.unwrap_err().malformed.iter().map(ToString::to_string).collect()
}

fn device(ordinal: u32) -> DeviceIdentity {
    let uuid = if ordinal == 0 { UUID } else { OTHER };
    DeviceIdentity { ordinal: Some(ordinal), bus: Some(ordinal), uuid, total: Bytes::new(80 * GIB) }
}

fn memory(config: &Config, ordinal: u32) -> Option<u64> {
    config.limits_for(device(ordinal)).memory.map(Bytes::get)
}

fn cores(config: &Config, ordinal: u32) -> u16 {
    config.limits_for(device(ordinal)).cores.get()
}

/// Returns the text of the only warning.
fn warning(warnings: &[Warning]) -> String {
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    warnings[0].to_string()
}
