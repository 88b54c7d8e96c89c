//! `gpuslice remove`: deletes the regions of slices without a living process.

use crate::arguments::Remove;
use crate::output::ending::Ending;
use crate::output::failure::{self, Failure};
use crate::slices::{self, OpenRegion, Survey, bounds, survey};
use gpuslice_region::{Reader, Removal, Trust, remove_for_good, remove_if_unused};
use gpuslice_slices::discovery::{FoundRegion, Machine};
use gpuslice_slices::figures;
use std::ffi::OsString;
use std::fs;

/// Most process numbers in one refusal.
const MOST_PIDS_TOLD: usize = 10;

/// Removes slices without a living process: `gpuslice remove`.
pub(crate) fn remove(wish: &Remove) -> Result<Ending, Failure> {
    if !wish.all_unused {
        let survey = Survey::now()?;
        let of = |slice: &OsString| {
            let region = survey.find(slice)?;
            take_away(&survey, &region, Trust::AnyOwner, wish.force)
        };
        return report_each(wish.slices.iter().map(of));
    }
    // These are the unused slices that `gpuslice list --all` shows, except for those that containers need.
    let (survey, mut unused) = slices::look_at_all()?;
    unused.retain(|open| open.reader.process_count().is_ok_and(|count| count == 0));
    unused.retain(|open| bounds::kept(&open.region).is_none());
    if unused.is_empty() {
        failure::print("no unused slices\n")?;
    }
    let remove = |open: &OpenRegion| take_away(&survey, &open.region, slices::trust(), wish.force);
    report_each(unused.iter().map(remove))
}

/// Prints the outcome of each removal. If one fails, the command still does the next ones.
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

/// Removes the region of a slice, and returns a line of text about it. Fails while a process lives in the slice, and for a slice
/// of this host that containers use. Without `force`, it also fails while the slice owes GPU time.
pub(crate) fn take_away(
    survey: &Survey,
    region: &FoundRegion,
    trust: Trust,
    force: bool,
) -> Result<String, Failure> {
    let (name, path) = (figures::printable(&survey.label(region)), region.path.as_path());
    if fs::symlink_metadata(path).is_err() {
        return Err(survey.missing(survey::shown(region).as_ref()));
    }
    if let Some(refusal) = bounds::kept(region) {
        return Err(refusal);
    }
    // The reader is only for the names of the processes. The removal itself reports a region that cannot be read.
    let reader = Reader::open(path, trust).ok().flatten();
    let remove = if force { remove_for_good } else { remove_if_unused };
    match remove(path, trust).map_err(|error| survey::failed(region, &error))? {
        Removal::Gone => Ok(format!("removed {name}")),
        Removal::InUse(living) => Err(in_use(&name, &survey.machine, reader.as_ref(), living)),
        Removal::Owing(paid_in) => Err(Failure::new(format!(
            "{name} owes GPU time, which its share pays in {}; a new slice of that name would not pay it: try again \
             then, or remove it with --force",
            figures::span(u64::try_from(paid_in.as_nanos()).unwrap_or(u64::MAX))
        ))),
    }
}

/// Returns the refusal to remove a slice. It names the living processes of the slice.
fn in_use(name: &str, machine: &Machine, reader: Option<&Reader>, living: usize) -> Failure {
    let processes = reader.and_then(|reader| reader.processes().ok()).unwrap_or_default();
    let numbers = processes.iter().filter_map(|process| machine.number_of(process));
    let pids: Vec<String> = numbers.map(|number| number.to_string()).take(MOST_PIDS_TOLD).collect();
    let lives = if living == 1 { "1 process lives" } else { &format!("{living} processes live") };
    let which = match (pids.as_slice(), living > pids.len()) {
        ([], _) => String::new(),
        (pids, false) => format!(" ({})", pids.join(", ")),
        (pids, true) => format!(" ({}, ...)", pids.join(", ")),
    };
    Failure::new(format!("{lives} in {name}{which}; only a slice without processes can be removed"))
}
