//! Compares the memory of a slice's processes by NVML with the ledger.

use crate::discovery::Machine;
use crate::nvml::{Nvml, NvmlDevice, Use};
use gpuslice_region::{ProcessView, Reader};
use std::time::Duration;

/// Number of tries of a command while the ledger changes.
pub(crate) const TRIES: u32 = 50;
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(1);

/// A slice's account of the memory of one device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceLedger<'a> {
    /// The slice's region.
    pub reader: &'a Reader,
    /// The device's place in the slice, from 0.
    pub number: usize,
}

/// Returns for each slice the bytes that NVML attributes to its processes, less those that the ledger has for them. The
/// difference is negative if more is charged than is used. It is `None` if NVML does not name all processes that hold
/// memory, or if the ledger changes at each of `tries` tries. All slices share NVML's answers: a list of processes takes
/// milliseconds.
///
/// Example: a process allocates memory after the read of the ledger and before the answer of NVML. The difference then has
/// bytes that are charged correctly. Ledger and NVML cannot be read at one instant. So the function reads both twice, by
/// turns, and takes the result only if neither has changed. An error can remain: memory that is charged while the driver
/// does not have it. Either the driver has not taken it yet, or the driver has it back and the process still waits to release
/// the charge.
#[must_use]
pub fn unaccounted(
    nvml: &Nvml,
    device: &NvmlDevice,
    slices: &[DeviceLedger<'_>],
    machine: &Machine,
    tries: u32,
) -> Vec<Option<i64>> {
    let mut outcomes = vec![Outcome::Changes; slices.len()];
    for number in 0..tries {
        if !outcomes.contains(&Outcome::Changes) || (number > 0 && nvml.is_late()) {
            break;
        }
        if number > 0 {
            std::thread::sleep(PAUSE);
        }
        let read = || slices.iter().map(|slice| Ledger::read(slice, machine)).collect::<Vec<_>>();
        let before = read();
        let Some(named) = nvml.processes(device) else { break };
        let between = read();
        let Some(again) = nvml.processes(device) else { break };
        for ((outcome, before), between) in outcomes.iter_mut().zip(before).zip(between) {
            if *outcome == Outcome::Changes {
                *outcome = Outcome::of((before, &named), (between, &again));
            }
        }
    }
    outcomes.into_iter().map(Outcome::difference).collect()
}

/// The outcome of the tries for one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The ledger or NVML's figures changed during each try.
    Changes,
    /// The difference, or none if it is unknown.
    Settled(Option<i64>),
}

impl Outcome {
    /// Compares two reads of a ledger with NVML's answers after each.
    fn of(first: (Option<Ledger>, &[Use]), second: (Option<Ledger>, &[Use])) -> Self {
        let ((Some(before), named), (Some(between), again)) = (first, second) else {
            return Self::Settled(None);
        };
        let difference = before.compared_with(named);
        let is_same = before == between && difference == between.compared_with(again);
        if is_same { Self::Settled(difference) } else { Self::Changes }
    }

    fn difference(self) -> Option<i64> {
        match self {
            Self::Changes => None,
            Self::Settled(difference) => difference,
        }
    }
}

/// The memory of a device that the processes of a slice hold, by the ledger.
#[derive(Debug, PartialEq, Eq)]
struct Ledger(Vec<Entry>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// The process's number in this process's namespace, if this process sees it.
    pid: Option<u32>,
    held: u64,
}

impl Ledger {
    fn read(&DeviceLedger { reader, number }: &DeviceLedger<'_>, machine: &Machine) -> Option<Self> {
        let entry = |process: &ProcessView| Entry {
            pid: machine.number_of(process),
            held: process.held.get(number).copied().unwrap_or(0),
        };
        Some(Self(reader.processes().ok()?.iter().map(entry).collect()))
    }

    fn compared_with(&self, named: &[Use]) -> Option<i64> {
        let mut difference = 0_i64;
        for entry in &self.0 {
            // NVML has one entry for each instance that a process uses.
            let own: Vec<_> = named.iter().filter(|process| entry.pid == Some(process.pid)).collect();
            if own.is_empty() && entry.held > 0 {
                return None;
            }
            for process in own {
                difference = difference.checked_add_unsigned(process.bytes?)?;
            }
            difference = difference.checked_sub_unsigned(entry.held)?;
        }
        Some(difference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(entries: &[(u32, bool, u64)]) -> Ledger {
        let entry = |&(pid, is_seen, held): &(u32, bool, u64)| Entry { pid: is_seen.then_some(pid), held };
        Ledger(entries.iter().map(entry).collect())
    }

    fn named(uses: &[(u32, u64)]) -> Vec<Use> {
        uses.iter().map(|&(pid, bytes)| Use { pid, bytes: Some(bytes) }).collect()
    }

    #[test]
    fn the_difference_is_that_of_the_slices_own_processes() {
        let two = ledger(&[(1, true, 100), (2, true, 50)]);
        assert_eq!(two.compared_with(&named(&[(1, 130), (2, 50), (3, 1000)])), Some(30));
        assert_eq!(two.compared_with(&named(&[(1, 90), (2, 45)])), Some(-15));
        assert_eq!(ledger(&[]).compared_with(&named(&[(3, 1000)])), Some(0));
    }

    #[test]
    fn nvml_need_not_name_a_process_that_holds_nothing() {
        assert_eq!(ledger(&[(1, true, 100), (2, true, 0)]).compared_with(&named(&[(1, 100)])), Some(0));
        assert_eq!(ledger(&[(1, false, 0)]).compared_with(&[]), Some(0));
    }

    #[test]
    fn the_difference_is_unknown_if_nvml_does_not_name_a_holder() {
        assert_eq!(ledger(&[(1, true, 100), (2, true, 1)]).compared_with(&named(&[(1, 100)])), None);
        // The ledger's process is in another namespace. The same number means another process here.
        assert_eq!(ledger(&[(1, false, 100)]).compared_with(&named(&[(1, 100)])), None);
        assert_eq!(ledger(&[(1, true, 100)]).compared_with(&[Use { pid: 1, bytes: None }]), None);
    }

    #[test]
    fn a_difference_counts_if_neither_the_ledger_nor_nvml_changes() {
        let (one, more) = (ledger(&[(1, true, 100)]), ledger(&[(1, true, 120)]));
        let outcome = |before, first: &[(u32, u64)], between, second: &[(u32, u64)]| {
            Outcome::of((Some(before), &named(first)), (Some(between), &named(second)))
        };
        let again = || ledger(&[(1, true, 100)]);
        assert_eq!(outcome(one, &[(1, 130)], again(), &[(1, 130)]), Outcome::Settled(Some(30)));
        assert_eq!(outcome(again(), &[(1, 130)], more, &[(1, 150)]), Outcome::Changes);
        assert_eq!(outcome(again(), &[(1, 130)], again(), &[(1, 150)]), Outcome::Changes);
        assert_eq!(outcome(again(), &[], again(), &[]), Outcome::Settled(None));
        let gone = Outcome::of((Some(again()), &[]), (None, &[]));
        assert_eq!(
            (gone, gone.difference(), Outcome::Changes.difference()),
            (Outcome::Settled(None), None, None)
        );
    }
}
