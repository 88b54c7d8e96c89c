//! How much time of the processors do programs take that are no test's?

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// A process as `/proc` tells it: its parent, and the clock ticks that it and its children that have ended ran for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process {
    parent: u32,
    ticks: u64,
}

/// Returns the time that all processes but this one and its descendants have run for so far, on all processors, together with
/// what the machine below a virtual one kept for itself.
pub(crate) fn taken() -> Duration {
    // SAFETY: a plain call.
    let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1).cast_unsigned();
    let ticks = of_others(std::process::id(), &processes()) + stolen();
    Duration::from_millis(ticks * 1000 / hertz)
}

fn processes() -> BTreeMap<u32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // One that ends meanwhile has no file any more; what it ran for is its parent's then.
    numbers
        .filter_map(|pid| Some((pid, read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

/// A process from its line: `12 (name) S 1 ...`, where the name may have brackets and blanks in it.
pub(crate) fn read(line: &str) -> Option<Process> {
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // Its own time as a user and in the kernel, then the same of its children that have ended.
    let ticks = [11, 12, 13, 14].into_iter().map(number).sum::<Option<u64>>()?;
    Some(Process { parent: fields.get(1)?.parse().ok()?, ticks })
}

/// The ticks of all processes that do not descend from this one.
pub(crate) fn of_others(own: u32, processes: &BTreeMap<u32, Process>) -> u64 {
    let descends = |pid: u32| {
        let (mut at, mut seen) = (pid, BTreeSet::new());
        while at != own && seen.insert(at) {
            at = processes.get(&at).map_or(0, |process| process.parent);
        }
        at == own
    };
    processes.iter().filter(|(pid, _)| !descends(**pid)).map(|(_, process)| process.ticks).sum()
}

/// The ticks that the processors of a virtual machine wanted to run and could not.
fn stolen() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let steal = text.lines().next().and_then(|line| line.split_whitespace().nth(8));
    steal.and_then(|ticks| ticks.parse().ok()).unwrap_or_default()
}
