//! Examines the settings in the environment and in the operator's files.

use super::finding::Finding;
use super::probe::Nvml;
use crate::system;
use gpuslice_policy::config::{self, Config, DeviceIdentity, FIXED_FILE, LogLevel, Warning};
use gpuslice_policy::units::{Bytes, Setting as _};
use gpuslice_region::operator::Operator;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// The bits of a file's mode by which the group and other users may read the file.
const FOR_ALL: u32 = 0o044;

/// Sources of settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sources {
    /// The variables of the environment.
    pub(super) environment: Vec<(String, Vec<u8>)>,
    /// The operator's files.
    pub(super) operator: Operator,
    /// Operator's files that not all users can read, with their modes. Only root finds them, because root can read them.
    pub(super) closed: Vec<(PathBuf, u32)>,
}

impl Sources {
    /// Reads the sources of this process. `run` passes the same sources on to the program.
    pub(super) fn look() -> Self {
        use std::os::unix::ffi::OsStringExt as _;
        let environment: Vec<(String, Vec<u8>)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_vec())))
            .collect();
        let mut sources = Self { environment, ..Self::default() };
        sources.operator = Operator::look(&|name| sources.variable(name));
        if system::user() == 0 {
            let named = config::operator_file(&|name| sources.variable(name)).ok().flatten();
            sources.closed = [FIXED_FILE.into()].into_iter().chain(named).filter_map(closed).collect();
            sources.closed.dedup();
        }
        sources
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        self.environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    }

    /// Returns the configuration that the library would make of these sources.
    pub(super) fn config(&self) -> Result<Config, config::Rejected> {
        Config::from_sources(&|name| self.variable(name), &self.operator.files())
    }

    /// Returns true if programs get a limit. A malformed setting counts as a limit, because the user may have meant one.
    pub(super) fn ask_for_limits(&self) -> bool {
        self.config().map_or(true, |config| !config.is_unlimited())
    }

    /// Returns the configuration that the library would make of the environment alone.
    fn environment_alone(&self) -> Option<Config> {
        let alone = |name: &str| self.variable(name).filter(|_| name != "GPUSLICE_CONFIG");
        Config::from_sources(&alone, &Operator::default().files()).ok()
    }
}

/// Returns a file with its mode, if the mode keeps some users from reading it.
fn closed(path: PathBuf) -> Option<(PathBuf, u32)> {
    let mode = path.metadata().ok()?.permissions().mode() & 0o7777;
    (mode & FOR_ALL != FOR_ALL).then_some((path, mode))
}

/// Returns a warning for each operator's file that other users cannot read.
fn unreadable(sources: &Sources) -> impl Iterator<Item = Finding> {
    sources.closed.iter().map(|(path, mode)| {
        let path = path.display();
        Finding::warning(
            "settings.rights",
            format!("{path} has mode {mode:04o}: programs of users who cannot read it are refused the GPU"),
            format!("chmod a+r {path}"),
        )
    })
}

/// Returns the findings about the settings.
pub(super) fn examine(sources: &Sources) -> Vec<Finding> {
    unreadable(sources).chain(values_of(sources)).collect()
}

/// Returns the findings about the settings' values.
fn values_of(sources: &Sources) -> Vec<Finding> {
    let config = match sources.config() {
        Ok(config) => config,
        Err(rejected) => {
            let malformed = rejected.malformed.iter().map(|malformed| refused(&malformed.to_string()));
            let warnings = rejected.warnings.iter().map(warned);
            return malformed.chain(warnings).collect();
        }
    };
    let mut findings: Vec<Finding> = config.warnings.iter().map(warned).collect();
    let alone = sources.environment_alone();
    let said = alone.as_ref().map(values).unwrap_or_default();
    for (key, value) in values(&config) {
        let before = said.iter().find(|(other, _)| *other == key).map(|(_, value)| value);
        let from = match before {
            Some(same) if *same == value => "by the environment".to_owned(),
            Some(other) => format!("by an operator's file, which wins over {other} in the environment"),
            None => "by an operator's file".to_owned(),
        };
        findings.push(Finding::ok("settings.value", format!("{key} is {value}, {from}")));
    }
    if config.is_unlimited() {
        findings.push(Finding::note(
            "settings.limit",
            "neither environment nor operator's file sets a limit: programs with the library preloaded are not limited",
            "set GPU_MEM_LIMIT or GPU_CORE_PERCENT, or start them with `gpuslice run --mem … --cores …`",
        ));
    }
    findings
}

/// Returns a warning for each list in an operator's file that leaves a device of this machine without a limit. `nvml` has the
/// devices in the order of the bus. Divided GPUs are left out, because `nvml` does not have their instances.
pub(super) fn left_out(config: &Config, nvml: &Nvml) -> Vec<Finding> {
    let numbered = (0..).zip(&nvml.devices).filter(|(_, gpu)| gpu.mig != Some(true));
    let devices: Vec<DeviceIdentity> = numbered
        .filter_map(|(number, gpu)| {
            let uuid = config::parse_uuid_text(&gpu.uuid)?;
            Some(DeviceIdentity { ordinal: None, bus: Some(number), uuid, total: Bytes::ZERO })
        })
        .collect();
    let lists = config.left_out(&devices).into_iter();
    lists
        .map(|(said, devices)| {
            let devices = devices.join(", ");
            Finding::warning(
                "settings.left-out",
                format!("{said} sets no limit for these devices of this machine: {devices}"),
                "name each device that a tenant may see, or give one limit for all",
            )
        })
        .collect()
}

/// Returns the settings that differ from their defaults, in the form in which a user writes them.
fn values(config: &Config) -> Vec<(&'static str, String)> {
    let default = Config::default();
    let switch = |on: bool| if on { "1" } else { "0" }.to_owned();
    let all = [
        ("GPU_MEM_LIMIT", config.memory.setting(), default.memory.setting()),
        ("GPU_CORE_PERCENT", config.cores.setting(), default.cores.setting()),
        ("GPU_CORE_POLICY", config.core_policy.setting(), default.core_policy.setting()),
        ("GPU_CORE_WEIGHT", config.core_weight.setting(), default.core_weight.setting()),
        ("GPU_CORE_BURST", config.core_burst.setting(), default.core_burst.setting()),
        ("GPU_CORE_METER", config.core_meter.setting(), default.core_meter.setting()),
        ("GPU_CORE_COPIES", switch(config.core_copies), switch(default.core_copies)),
        ("GPU_PRIORITY", config.priority.setting(), default.priority.setting()),
        ("GPU_MEM_OVERSUBSCRIBE", switch(config.oversubscribe), switch(default.oversubscribe)),
        ("GPUSLICE_DEEPBIND", switch(config.deepbind), switch(default.deepbind)),
        ("GPU_MEM_REPORT_TOTAL", config.report_total.setting(), default.report_total.setting()),
    ];
    let mut values: Vec<_> = all
        .into_iter()
        .filter(|(_, value, default)| value != default)
        .map(|(key, value, _)| (key, value))
        .collect();
    values.extend(config.region.as_ref().map(|path| ("GPUSLICE_REGION", path.display().to_string())));
    values
}

/// Returns a message of the library without its prefix.
fn plain(message: &str) -> &str {
    message.strip_prefix("gpuslice: ").unwrap_or(message)
}

/// Returns the finding about a message with which the library would refuse GPU work. In the message, the
/// remedy follows the last semicolon.
fn refused(message: &str) -> Finding {
    let message = plain(message).trim_end_matches(" GPU work is refused.").trim_end_matches('.');
    let (what, mend) = message.rsplit_once("; ").unwrap_or((message, "mend or remove it"));
    Finding::error("settings.malformed", format!("{what}; programs would be refused the GPU"), mend)
}

fn warned(warning: &Warning) -> Finding {
    let (check, message) = ("settings.warning", warning.to_string());
    match warning.level() {
        LogLevel::Info => Finding::note(check, plain(&message), "write GiB if that is meant"),
        _ => Finding::warning(check, plain(&message), "mend or remove it"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use gpuslice_region::operator::Contents;

    fn with(environment: &[(&str, &str)], fixed: &str) -> Vec<(Level, String)> {
        let environment =
            environment.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        let fixed =
            if fixed.is_empty() { Contents::Absent } else { Contents::Read(fixed.as_bytes().to_vec()) };
        let operator = Operator { named: Contents::Absent, fixed };
        let sources = Sources { environment, operator, ..Sources::default() };
        examine(&sources).into_iter().map(|finding| (finding.level, finding.what)).collect()
    }

    #[test]
    fn the_effect_of_each_variable_is_reported_with_its_source() {
        let told = with(&[("GPU_MEM_LIMIT", "4096MiB"), ("GPU_CORE_PERCENT", "30")], "GPU_CORE_PERCENT=20\n");
        let expected = [
            (Level::Ok, "GPU_MEM_LIMIT is 4GiB, by the environment".to_owned()),
            (
                Level::Ok,
                "GPU_CORE_PERCENT is 20, by an operator's file, which wins over 30 in the environment"
                    .to_owned(),
            ),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_malformed_value_is_an_error_and_no_limit_a_note() {
        let told = with(&[("GPU_MEM_LIMIT", "4Gigs")], "");
        assert_eq!(told.first().map(|(level, _)| *level), Some(Level::Error));
        assert!(told.first().unwrap().1.starts_with("GPU_MEM_LIMIT=\"4Gigs\" is not a size"), "{told:?}");
        assert_eq!(with(&[], "").first().map(|(level, _)| *level), Some(Level::Note));
        assert_eq!(
            with(&[("GPUSLICE_LOG", "loud")], "").first().map(|(level, _)| *level),
            Some(Level::Warning)
        );
    }
}
