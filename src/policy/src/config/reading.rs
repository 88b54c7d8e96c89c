//! Combines the sources into one configuration, layer by layer, and collects all faults.

use std::path::PathBuf;

use super::checked::{Config, LimitSources};
use super::choices::{CorePolicy, Log, parse_path, parse_switch};
use super::device::DeviceName;
use super::faults::{Fault, ValueError};
use super::keys::{CONFIG_FILE, CORE_PERCENT, HAMI_MEMORY, HAMI_SHARE, MEM_LIMIT, REGION};
use super::layers::{self, Layer};
use super::messages::{Malformed, SourcedValue, Warning};
use super::per_device::PerDevice;
use super::sizes::{in_powers_of_1000, parse_hami_size};
use super::sources::{FIXED_FILE, FileRead, OperatorFiles};
use super::values::parse_hami_share;

/// The reason why a region that another source than the fixed file names has no effect.
const BESIDE_FIXED: &str = "beside /run/gpuslice/conf/config: all programs here are one slice, and only that file can name its region";

/// A configuration that cannot be enforced. GPU work is refused. Each of `malformed` is one line on standard error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The faults; never empty.
    pub malformed: Vec<Malformed>,
    /// Further remarks for the user.
    pub warnings: Vec<Warning>,
    /// The log. It works in spite of the faults.
    pub log: Log,
}

/// Returns the operator's file that the environment names, if it names one.
///
/// # Errors
/// `GPUSLICE_CONFIG` is not an absolute path. [`Config::from_sources`] reports it, too.
pub fn operator_file(env: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<Option<PathBuf>, Malformed> {
    let Some(value) = env(CONFIG_FILE).filter(|value| !value.trim_ascii().is_empty()) else {
        return Ok(None);
    };
    let said = SourcedValue::environment(CONFIG_FILE, value);
    match layers::text(&said).and_then(parse_path) {
        Ok(path) => Ok(Some(path)),
        Err(fault) => Err(Malformed::unread(said, fault)),
    }
}

impl Config {
    /// Reads the configuration. `env` returns the value of a variable.
    ///
    /// # Errors
    /// Some value is malformed, or a file that is named or exists cannot be read.
    pub fn from_sources(
        env: &dyn Fn(&str) -> Option<Vec<u8>>,
        files: &OperatorFiles<'_>,
    ) -> Result<Self, Rejected> {
        let mut reading = ConfigReading::open(env, files);
        let config = reading.config();
        let (malformed, warnings) = reading.findings();
        if malformed.is_empty() {
            Ok(Self { warnings, ..config })
        } else {
            Err(Rejected { malformed, warnings, log: config.log })
        }
    }
}

/// A limit, and the place of each of its parts.
struct Limit<T> {
    values: PerDevice<T>,
    told: LimitSources,
}

impl<T> Default for Limit<T> {
    fn default() -> Self {
        Self { values: PerDevice::default(), told: LimitSources::default() }
    }
}

/// A configuration that is being read: its sources, highest first, and the faults so far.
#[derive(Default)]
pub(super) struct ConfigReading {
    layers: Vec<Layer>,
    /// True if the first layer is the fixed file.
    has_fixed: bool,
    malformed: Vec<Malformed>,
    warnings: Vec<Warning>,
}

impl ConfigReading {
    /// Reads the sources into layers.
    pub(super) fn open(env: &dyn Fn(&str) -> Option<Vec<u8>>, files: &OperatorFiles<'_>) -> Self {
        let mut reading = Self::default();
        if files.fixed != FileRead::Absent {
            reading.file(FIXED_FILE, files.fixed, SourcedValue::file(FIXED_FILE));
            reading.has_fixed = true;
        }
        reading.named_file(env, files);
        reading.layers.push(layers::environment(env));
        reading
    }

    /// Reads the file that the environment names. The fixed file has been read already, so it is not read again.
    fn named_file(&mut self, env: &dyn Fn(&str) -> Option<Vec<u8>>, files: &OperatorFiles<'_>) {
        match operator_file(env) {
            Ok(None) => {}
            Ok(Some(path)) if path.as_os_str() == FIXED_FILE && files.fixed != FileRead::Absent => {}
            Ok(Some(path)) => {
                let name = path.to_string_lossy();
                let naming = SourcedValue::environment(CONFIG_FILE, name.as_bytes().to_vec());
                self.file(&name, files.named, naming);
            }
            Err(malformed) => self.malformed.push(malformed),
        }
    }

    /// Reads a file that must exist, because `naming` names it or because the caller has found it.
    fn file(&mut self, name: &str, read: FileRead<'_>, naming: SourcedValue) {
        match read {
            FileRead::Absent => self.malformed.push(Malformed::new(naming, Fault::NoFile)),
            FileRead::Unreadable(reason) => {
                self.malformed
                    .push(Malformed::new(SourcedValue::file(name), Fault::UnreadableFile(reason.to_owned())));
            }
            FileRead::Contents(contents) => {
                let (layer, malformed) = layers::file(name, contents);
                self.layers.push(layer);
                self.malformed.extend(malformed);
            }
        }
    }

    /// Returns the faults and the warnings, after all settings have been read.
    pub(super) fn findings(self) -> (Vec<Malformed>, Vec<Warning>) {
        (self.malformed, self.warnings)
    }

    /// Reads every setting. A malformed setting keeps its default and is recorded as a fault.
    pub(super) fn config(&mut self) -> Config {
        let memory = self.limit(MEM_LIMIT, HAMI_MEMORY, parse_hami_size);
        let cores = self.limit(CORE_PERCENT, HAMI_SHARE, parse_hami_share);
        let config = Config {
            memory: memory.values,
            memory_told: memory.told,
            cores: cores.values,
            cores_told: cores.told,
            core_policy: self.value("GPU_CORE_POLICY", str::parse).unwrap_or_default(),
            core_weight: self.value("GPU_CORE_WEIGHT", str::parse).unwrap_or_default(),
            core_burst: self.value("GPU_CORE_BURST", str::parse).unwrap_or_default(),
            core_meter: self.value("GPU_CORE_METER", str::parse).unwrap_or_default(),
            core_copies: self.value("GPU_CORE_COPIES", parse_switch).unwrap_or_default(),
            priority: self.value("GPU_PRIORITY", str::parse).unwrap_or_default(),
            oversubscribe: self.value("GPU_MEM_OVERSUBSCRIBE", parse_switch).unwrap_or_default(),
            deepbind: self.value("GPUSLICE_DEEPBIND", parse_switch).unwrap_or_default(),
            report_total: self.value("GPU_MEM_REPORT_TOTAL", str::parse).unwrap_or_default(),
            region: self.region(),
            log: self.log(),
            warnings: Vec::new(),
        };
        // If GPU work is refused, no setting has an effect.
        if self.malformed.is_empty() {
            self.remark(&config);
        }
        config
    }

    /// Records settings that are valid but may surprise the user.
    ///
    /// A weight or a burst limits nothing by itself. So GPU work is not refused for a weight or a burst without effect.
    fn remark(&mut self, config: &Config) {
        let weight = "under policy fixed; it has with GPU_CORE_POLICY=equal or best-effort";
        let burst = "on a slice that has all of its devices' time; it has with GPU_CORE_PERCENT below 100";
        let idle = [
            ("GPU_CORE_WEIGHT", config.core_policy == CorePolicy::Fixed, weight),
            ("GPU_CORE_BURST", !config.has_share(), burst),
        ];
        for (key, is_idle, why) in idle {
            let said = self.said(key).filter(|_| is_idle);
            self.warnings.extend(said.map(|said| Warning::WithoutEffect(said, why)));
        }
        if let Some(said) = self.said(MEM_LIMIT) {
            let meaning = layers::text(&said).ok().and_then(in_powers_of_1000);
            self.warnings.extend(meaning.map(|meaning| Warning::PowersOf1000(said, meaning)));
        }
    }

    /// Reads a setting with one key, from the highest layer that has it.
    fn setting<T>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<(T, SourcedValue)> {
        let said = self.said(key)?;
        match layers::text(&said).and_then(parse) {
            Ok(value) => Some((value, said)),
            Err(fault) => {
                self.malformed.push(Malformed::unread(said, fault));
                None
            }
        }
    }

    /// Returns true if a source sets the setting of this key, under any of its names.
    fn sets(&self, key: &str) -> bool {
        let own = [(MEM_LIMIT, HAMI_MEMORY), (CORE_PERCENT, HAMI_SHARE)];
        let limit = own.into_iter().find(|(own, hami)| key == *own || key == *hami);
        self.layers.iter().any(|layer| match limit {
            Some((own, hami)) => layer.sets(own, hami),
            None => layer.get(key).is_some(),
        })
    }

    /// Returns the setting of the highest layer with this key.
    fn said(&self, key: &str) -> Option<SourcedValue> {
        self.layers.iter().find_map(|layer| layer.get(key)).cloned()
    }

    fn value<T>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, Fault>) -> Option<T> {
        self.setting(key, parse).map(|(value, _)| value)
    }

    /// Reads the region. If the fixed file exists, only this file can name a region. Otherwise a program could leave its
    /// slice and have the quota once more.
    fn region(&mut self) -> Option<PathBuf> {
        let is_named_there = self.layers.first().is_some_and(|layer| layer.get(REGION).is_some());
        if self.has_fixed && !is_named_there {
            let said = self.said(REGION);
            self.warnings.extend(said.map(|said| Warning::WithoutEffect(said, BESIDE_FIXED)));
            return None;
        }
        self.value(REGION, parse_path)
    }

    /// Reads the log setting. It limits nothing, so a fault is only a warning.
    fn log(&mut self) -> Log {
        let Some(said) = self.said("GPUSLICE_LOG") else { return Log::default() };
        layers::text(&said).and_then(str::parse).unwrap_or_else(|fault| {
            let fault = said.surrounds().unwrap_or(fault);
            self.warnings.push(Warning::Log(said, fault));
            Log::default()
        })
    }

    /// Reads a limit from the highest layer that sets it under any of its names.
    fn limit<T: Copy>(
        &mut self,
        key: &str,
        hami: &str,
        parse_hami: impl Fn(&str) -> Result<Option<T>, Fault>,
    ) -> Limit<T>
    where
        PerDevice<T>: core::str::FromStr<Err = ValueError>,
    {
        let Some(layer) = self.layers.iter().find(|layer| layer.sets(key, hami)) else {
            return Limit::default();
        };
        match layer.get(key) {
            Some(said) => own_limit(said, &mut self.malformed),
            None => hami_limit(layer, hami, parse_hami, &mut self.malformed),
        }
    }
}

/// Returns a function that tells whether a source sets the setting of a key, under any of its names.
pub(super) fn settings_that_are_set(
    env: &dyn Fn(&str) -> Option<Vec<u8>>,
    files: &OperatorFiles<'_>,
) -> impl Fn(&str) -> bool {
    let reading = ConfigReading::open(env, files);
    let names_file = !matches!(operator_file(env), Ok(None));
    move |key| if key == CONFIG_FILE { names_file } else { reading.sets(key) }
}

/// Reads a limit under its own name.
fn own_limit<T: Copy>(said: &SourcedValue, malformed: &mut Vec<Malformed>) -> Limit<T>
where
    PerDevice<T>: core::str::FromStr<Err = ValueError>,
{
    match layers::text(said).map_err(ValueError::from).and_then(str::parse) {
        Ok(values) => {
            let values = if said.is_of_operator() { PerDevice::of_operator(values) } else { values };
            Limit { values, told: LimitSources(vec![(None, said.clone())]) }
        }
        Err(error) => {
            malformed.push(Malformed::unread(said.clone(), error));
            Limit::default()
        }
    }
}

/// Reads a limit under HAMi's names: one for every device, and one for each single device. As in HAMi, a device whose own
/// limit is zero gets the limit for every device.
fn hami_limit<T>(
    layer: &Layer,
    hami: &str,
    parse: impl Fn(&str) -> Result<Option<T>, Fault>,
    malformed: &mut Vec<Malformed>,
) -> Limit<T> {
    let mut limit = Limit::default();
    let mut read = |said: &SourcedValue| {
        let value = layers::text(said).and_then(&parse);
        value.unwrap_or_else(|fault| {
            malformed.push(Malformed::unread(said.clone(), fault));
            None
        })
    };
    for (ordinal, said) in layer.per_device(hami) {
        if let Some(value) = read(said) {
            let name = DeviceName::Ordinal(ordinal);
            let name = if said.is_of_operator() { name.of_operator() } else { name };
            limit.values.named.push((name, value));
            limit.told.0.push((Some(name), said.clone()));
        }
    }
    if let Some((value, said)) = layer.get(hami).and_then(|said| Some((read(said)?, said))) {
        limit.values.others = Some(value);
        limit.told.0.push((None, said.clone()));
    }
    limit
}
