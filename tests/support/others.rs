//! Measures the processor time of programs that do not belong to this test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// A process as `/proc` shows it: its parent, and the clock ticks that it and its ended children ran for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process {
    parent: u32,
    ticks: u64,
}

/// Returns the time that all processes but this one and its descendants have run for, on all processors. It includes the time
/// that a hypervisor kept for itself.
pub(crate) fn taken() -> Duration {
    // SAFETY: the call takes a number and touches no memory.
    let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1).cast_unsigned();
    let ticks = of_others(std::process::id(), &processes()) + stolen();
    Duration::from_millis(ticks * 1000 / hertz)
}

fn processes() -> BTreeMap<u32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // A process that ends meanwhile has no file in `/proc`. Its parent's ticks then contain its own.
    numbers
        .filter_map(|pid| Some((pid, read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

/// Reads a process from its line in `/proc`: `12 (name) S 1 ...`. The name may contain brackets and blanks.
pub(crate) fn read(line: &str) -> Option<Process> {
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // The fields have the process's time in user and in kernel mode, and then the same two times of its ended children.
    let ticks = [11, 12, 13, 14].into_iter().map(number).sum::<Option<u64>>()?;
    Some(Process { parent: fields.get(1)?.parse().ok()?, ticks })
}

/// Returns the ticks of all processes that do not descend from the process `own`.
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

/// Returns the ticks for which the processors of a virtual machine had work, but the hypervisor did not run them.
fn stolen() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let steal = text.lines().next().and_then(|line| line.split_whitespace().nth(8));
    steal.and_then(|ticks| ticks.parse().ok()).unwrap_or_default()
}
