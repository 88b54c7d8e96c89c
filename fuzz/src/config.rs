//! Configurations with any content in variables and operator's files.

use gpuslice_policy::config::{Config, DeviceIdentity, FileRead, OperatorFiles, keys, operator_file};
use gpuslice_policy::units::{Bytes, Permille};

use crate::random::Random;

/// Returns the names of all settings, and one that is none.
fn keys() -> Vec<&'static str> {
    let of_devices = ["CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_MEMORY_LIMIT_63", "CUDA_DEVICE_SM_LIMIT_1"];
    keys::settings().chain(of_devices).chain(["NOT_OURS"]).collect()
}

/// Pieces of values.
const PIECES: [&str; 42] = [
    "0",
    "1",
    "50",
    "100",
    "101",
    "4096",
    "18446744073709551615",
    "18446744073709551616",
    "-",
    ".",
    "%",
    "k",
    "M",
    "GiB",
    "gb",
    "TiB",
    "ms",
    "us",
    "s",
    "=",
    ",",
    ":",
    "/",
    " ",
    "\t",
    "GPU-",
    "MIG-",
    "89898989",
    "8",
    "fixed",
    "equal",
    "best-effort",
    "auto",
    "high",
    "debug",
    "off",
    "true",
    "/etc/slice",
    "\n",
    "#",
    " # ",
    "\"",
];

/// An environment and two operator's files.
#[derive(Debug)]
pub(crate) struct Case {
    variables: Vec<(&'static str, String)>,
    named: Option<String>,
    fixed: Option<String>,
    raw: Vec<u8>,
    total: u64,
}

impl Case {
    pub(crate) fn new(random: &mut Random) -> Self {
        let keys = keys();
        let variables = (0..random.below(6)).map(|_| (*random.pick(&keys), value(random))).collect();
        let named = random.one_in(2).then(|| file(random));
        let fixed = random.one_in(2).then(|| file(random));
        let raw = (0..random.below(24)).map(|_| random.next().to_ne_bytes()[0]).collect();
        Self { variables, named, fixed, raw, total: random.edge() }
    }

    /// Reads the configuration and checks the conditions that hold for any content.
    pub(crate) fn run(&self) {
        let variables = |key: &str| {
            let found = self.variables.iter().find(|(name, _)| *name == key)?;
            // The raw bytes stand behind some values, which therefore need not be text.
            Some([found.1.as_bytes(), if key.ends_with(char::is_numeric) { &self.raw } else { &[] }].concat())
        };
        let read = |text: &'_ Option<String>| text.clone().map(String::into_bytes);
        let (named, mut fixed) = (read(&self.named), read(&self.fixed));
        if let Some(fixed) = &mut fixed {
            fixed.extend(&self.raw);
        }
        let files = OperatorFiles { named: contents(named.as_deref()), fixed: contents(fixed.as_deref()) };
        if let Err(malformed) = operator_file(&variables) {
            one_line(&malformed.to_string());
        }
        match Config::from_sources(&variables, &files) {
            Err(rejected) => {
                assert!(!rejected.malformed.is_empty(), "refused without a reason");
                rejected.malformed.iter().for_each(|line| one_line(&line.to_string()));
                rejected.warnings.iter().for_each(|line| one_line(&line.to_string()));
            }
            Ok(config) => self.apply(&config),
        }
    }

    fn apply(&self, config: &Config) {
        let total = Bytes::new(self.total);
        for ordinal in [None, Some(0), Some(1), Some(63)] {
            let limits = config.limits_for(DeviceIdentity { ordinal, bus: ordinal, uuid: [0x89; 16], total });
            assert!(
                limits.memory.is_none_or(|quota| quota >= Bytes::new(1) && quota <= total.max(Bytes::new(1)))
            );
            assert!((Permille::LEAST..=Permille::FULL).contains(&limits.cores));
            let unlimited = limits.memory.is_none() && limits.cores == Permille::FULL;
            assert!(unlimited || !config.is_unlimited(), "a limit of a configuration without one");
            limits.warnings.iter().for_each(|line| one_line(&line.to_string()));
        }
        config.warnings.iter().for_each(|line| one_line(&line.to_string()));
        assert!(!config.divides() || !config.is_unlimited(), "slices divide nothing");
        config.ambiguous(&[[0x89; 16], [0x89; 16]]).iter().for_each(|line| one_line(&line.to_string()));
    }
}

fn contents(read: Option<&[u8]>) -> FileRead<'_> {
    read.map_or(FileRead::Absent, FileRead::Contents)
}

fn value(random: &mut Random) -> String {
    (0..=random.below(6)).map(|_| *random.pick(&PIECES)).collect()
}

fn file(random: &mut Random) -> String {
    let keys = keys();
    let line = |random: &mut Random| match random.below(8) {
        0 => value(random),
        _ => format!("{}={}", random.pick(&keys), value(random)),
    };
    (0..random.below(8)).map(|_| line(random) + "\n").collect()
}

fn one_line(text: &str) {
    assert!(text.starts_with("gpuslice: ") && text.len() < 2048, "{text:?}");
    assert!(text.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{text:?}");
}
