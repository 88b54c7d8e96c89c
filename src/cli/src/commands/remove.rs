//! `gpuslice remove`: deletes the regions of slices in which no process lives.

use crate::arguments::Remove;
use crate::output::ending::Ending;
use crate::output::failure::{self, Failure};
use crate::slices;
use gpuslice_region::{Reader, Removal, Trust, remove_for_good, remove_if_unused};
use gpuslice_slices::figures;
use gpuslice_slices::process;
use std::fs;
use std::path::Path;

/// Most process numbers that a refusal names.
const TOLD: usize = 10;

/// Removes slices in which no process lives: `gpuslice remove`.
pub(crate) fn remove(wish: &Remove) -> Result<Ending, Failure> {
    if !wish.all_unused {
        let of = |slice| slices::find(slice).and_then(|path| take_away(&path, Trust::AnyOwner, wish.force));
        return report_each(wish.slices.iter().map(|slice| of(slice)));
    }
    // Every unused slice that `gpuslice list --all` shows.
    let mut unused = slices::look_at_all()?;
    unused.retain(|reader| reader.process_count().is_ok_and(|count| count == 0));
    if unused.is_empty() {
        failure::print("no unused slices\n")?;
    }
    report_each(unused.iter().map(|reader| take_away(reader.path(), slices::trust(), wish.force)))
}

/// Prints the outcome of each removal. A removal that fails does not keep the command from the next one.
fn report_each(removals: impl Iterator<Item = Result<String, Failure>>) -> Result<Ending, Failure> {
    let mut code = 0;
    for removal in removals {
        match removal {
            Ok(told) => failure::print(&format!("{told}\n"))?,
            Err(Failure::Message { text, .. }) => {
                failure::note(&text);
                code = 1;
            }
            Err(gone) => return Err(gone),
        }
    }
    Ok(Ending::Code(code))
}

/// Removes the region of a slice, and returns the line that says so. Fails while a process lives in the slice. Unless
/// `force` is set, it also fails while the slice owes GPU time.
pub(crate) fn take_away(path: &Path, trust: Trust, force: bool) -> Result<String, Failure> {
    let name = figures::printable(&slices::label(path));
    if fs::symlink_metadata(path).is_err() {
        return Err(slices::missing(path.as_os_str()));
    }
    // Only names the processes: the removal reports a region that cannot be read.
    let reader = Reader::open(path, trust).ok().flatten();
    let remove = if force { remove_for_good } else { remove_if_unused };
    match remove(path, trust)? {
        Removal::Gone => Ok(format!("removed {name}")),
        Removal::InUse(living) => Err(in_use(&name, reader.as_ref(), living)),
        Removal::Owing(paid_in) => Err(Failure::new(format!(
            "{name} owes GPU time, which its share pays in {}; a new slice of that name would not pay it: try again \
             then, or remove it with --force",
            figures::span(u64::try_from(paid_in.as_nanos()).unwrap_or(u64::MAX))
        ))),
    }
}

/// Returns the refusal, which names the processes that keep a slice.
fn in_use(name: &str, reader: Option<&Reader>, living: usize) -> Failure {
    let processes = reader.and_then(|reader| reader.processes().ok()).unwrap_or_default();
    let near = processes.iter().filter(|process| process::is_near(process));
    let pids: Vec<String> = near.map(|process| process.pid.to_string()).take(TOLD).collect();
    let lives = if living == 1 { "1 process lives" } else { &format!("{living} processes live") };
    let which = match (pids.as_slice(), living > pids.len()) {
        ([], _) => String::new(),
        (pids, false) => format!(" ({})", pids.join(", ")),
        (pids, true) => format!(" ({}, ...)", pids.join(", ")),
    };
    Failure::new(format!("{lives} in {name}{which}; only a slice without processes can be removed"))
}
