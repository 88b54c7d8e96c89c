//! Changes a limit to a typed value, as `gpuslice set` does. The messages are the same.

use super::observation;
use super::state::{Limit, LimitChange};
use crate::arguments::{Arguments, Set, Task};
use crate::commands::set;
use crate::output::failure::Failure;
use crate::slices::survey;
use clap::Parser as _;
use gpuslice_region::{Monitor, RegionError, Trust};
use gpuslice_slices::discovery::FoundRegion;

/// Changes a limit of the slice with this region. Returns the message about the change, or the reason of the refusal.
pub(crate) fn apply(region: &FoundRegion, change: &LimitChange) -> Result<String, String> {
    let wish = wish(change)?;
    let failed = |error: RegionError| survey::in_words(region, &error.to_string());
    let monitor = Monitor::open(&change.path, Trust::AnyOwner).map_err(failed)?;
    let gone = || format!("{} is gone", change.name);
    let monitor = monitor.ok_or_else(gone)?;
    if observation::life_of(&change.path, monitor.epoch()) != change.life {
        return Err(format!("{} was made anew meanwhile; nothing was changed", change.name));
    }
    match set::apply(region, &monitor, &wish) {
        Ok(told) => Ok([told.warnings, told.changes].concat().join("\n")),
        Err(Failure::Message { text, .. }) => Err(text),
        Err(Failure::ReaderGone) => Err(gone()),
    }
}

/// Parses the value like an argument of `gpuslice set`.
fn wish(change: &LimitChange) -> Result<Set, String> {
    let option = match change.limit {
        Limit::Memory => "--mem",
        Limit::Share => "--cores",
    };
    let value = format!("{option}={}", change.text.trim());
    match Arguments::try_parse_from(["gpuslice", "set", "slice", &value]) {
        Ok(Arguments { wish: Task::Set(wish), .. }) => Ok(wish),
        Ok(_) => Err("nothing is asked for".to_owned()),
        Err(error) => {
            // The other lines of the message are about the command line.
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            Err(first.strip_prefix("error: ").unwrap_or(first).to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::observation::SliceIdentity;
    use super::*;
    use std::path::PathBuf;

    fn asked(limit: Limit, text: &str) -> LimitChange {
        let life = SliceIdentity { inode: 0, epoch: 0 };
        LimitChange {
            limit,
            path: PathBuf::from("/dev/shm/gpuslice-no"),
            name: "no".into(),
            life,
            text: text.into(),
        }
    }

    #[test]
    fn values_are_read_as_arguments_are() {
        assert_eq!(wish(&asked(Limit::Memory, " 4GiB ")).unwrap().mem.unwrap().text, "4GiB");
        assert_eq!(wish(&asked(Limit::Share, "0=30,1=50")).unwrap().cores.unwrap().text, "0=30,1=50");
        for (limit, text, words) in [
            (Limit::Memory, "4 apples", "write it like 4GiB"),
            (Limit::Memory, "0", "a quota of nothing"),
            (Limit::Memory, "", "--mem"),
            (Limit::Share, "--help", "a number from 1 to 100"),
            (Limit::Share, "101", "a number from 1 to 100 like 30 or 12.5"),
        ] {
            let asked = asked(limit, text);
            let why = apply(&FoundRegion::here(asked.path.clone()), &asked).unwrap_err();
            assert!(why.contains(words) && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn of_a_slice_that_is_gone_nothing_is_changed() {
        let asked = asked(Limit::Memory, "4GiB");
        let told = apply(&FoundRegion::here(asked.path.clone()), &asked);
        assert_eq!(told, Err("no is gone".to_owned()));
    }
}
