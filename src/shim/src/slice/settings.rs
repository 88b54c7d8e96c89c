//! Settings of this process, read at the first call that needs them. Without a limit the library only forwards calls.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::enforcement::{self, Stage, refuse, stage};
use crate::os::copies::{self, CopyOrder};
use crate::os::reentrancy::catch_panic;
use crate::os::{allocator, messages};
use gpuslice_policy::config::{Ceilings, Config, LogLevel, ReportTotal, misspelt};
use gpuslice_region::names::{self, ProgramRegion};
use gpuslice_region::operator::Operator;
use once_cell::race::OnceBox;
use std::os::unix::ffi::OsStringExt;

/// The settings, if a limit is set.
static SETTINGS: OnceBox<Settings> = OnceBox::new();

/// The settings of this process and of its forked children.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Configuration from the environment and the operator's files.
    pub(crate) config: Config,
    /// The region.
    pub(crate) region: ProgramRegion,
    /// Most that the operator's fixed file allowed when the settings were read; none without that file.
    pub(crate) ceilings: Option<Ceilings>,
}

/// Returns the settings, if a limit is set. Reads them at the first call.
pub(crate) fn settings() -> Option<&'static Settings> {
    if stage() == Stage::UNREAD {
        read_settings();
    }
    SETTINGS.get()
}

/// Returns the settings, if a limit is set and they were read already.
pub(crate) fn known() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// Reads the settings if no thread has read them, and returns true if GPU work is refused.
pub(crate) fn is_refused() -> bool {
    if stage() == Stage::UNREAD {
        read_settings();
    }
    stage() == Stage::REFUSED
}

/// Returns true if the `dlopen` hook must not remove `RTLD_DEEPBIND`: there is no limit, or the settings allow the flag.
pub(crate) fn leaves_deepbind() -> bool {
    let leaves = settings().is_some_and(|settings| settings.config.deepbind);
    leaves || stage() == Stage::FREE
}

/// Returns true if the settings report a device's full size, whatever the quota is.
pub(crate) fn reports_device_total() -> bool {
    settings().is_some_and(|settings| settings.config.report_total == ReportTotal::Device)
}

#[cold]
pub(crate) fn read_settings() {
    if catch_panic(read_settings_now).is_none() {
        enforcement::refuse_silently();
    }
}

fn read_settings_now() {
    std::panic::set_hook(Box::new(|panic| {
        messages::say(LogLevel::Error, &format_args!("gpuslice: internal error, please report: {panic}"));
    }));
    let env = |name: &str| std::env::var_os(name).map(OsStringExt::into_vec);
    let operator = Operator::look(&env);
    match Config::from_sources(&env, &operator.files()) {
        Ok(mut config) => {
            config.warnings.extend(misspelt(&environment(), &operator.files()));
            apply(config, Ceilings::read(operator.files().fixed));
        }
        Err(rejected) => {
            messages::set(rejected.log);
            rejected.warnings.iter().for_each(|warning| messages::say(warning.level(), warning));
            if stage() == Stage::UNREAD {
                rejected.malformed.iter().for_each(|malformed| refuse(malformed));
            }
        }
    }
}

/// Returns the environment's variables whose names are valid UTF-8. All settings have such names.
fn environment() -> Vec<(String, Vec<u8>)> {
    let variables = std::env::vars_os();
    variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_vec()))).collect()
}

/// Puts the settings in force. The stage is set last: a thread that sees a limit then finds the settings, and the allocator has
/// its reserve.
fn apply(config: Config, ceilings: Option<Ceilings>) {
    messages::set(config.log.clone());
    // Without a limit no copy of the library charges, so the order of the copies does not matter.
    let order = if config.is_unlimited() { None } else { Some(copies::order()) };
    if matches!(order, Some(CopyOrder::Behind)) {
        enforcement::set_free();
        return;
    }
    config.warnings.iter().for_each(|warning| messages::say(warning.level(), warning));
    match order {
        None => {
            enforcement::set_free();
            return;
        }
        Some(CopyOrder::First(other)) => messages::say(LogLevel::Warn, &other),
        Some(_) => {}
    }
    let region = names::of_program(config.region.clone(), ceilings.is_some());
    enforcement::note_share(config.has_share());
    let _already = SETTINGS.set(Box::new(Settings { config, region, ceilings }));
    if !allocator::take(&(enforcement::run_out as fn())) {
        refuse(
            &"gpuslice: the process has no address space for 4MiB (RLIMIT_AS); raise that limit. GPU work is refused.",
        );
        return;
    }
    enforcement::limit();
}
