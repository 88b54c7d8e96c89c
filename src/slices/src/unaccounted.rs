//! Compares the memory of a slice's processes by NVML with the ledger.

use crate::discovery::Machine;
use crate::nvml::{Nvml, NvmlDevice, Use};
use gpuslice_region::{ProcessView, Reader};
use std::time::Duration;

/// Number of tries while the ledger changes.
const TRIES: u32 = 50;
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(1);

/// Returns the bytes that NVML attributes to the processes of a slice, less the bytes that the ledger has for them. The
/// difference is negative if the ledger has more. Returns `None` if NVML does not name all processes that hold memory, or if
/// the ledger changes at each try.
///
/// Example: a process allocates memory after the read of the ledger and before the answer of NVML. The difference then contains
/// bytes that are charged correctly. No call reads ledger and NVML at one instant. So the function reads both twice, by turns,
/// and accepts the result only if neither has changed. An error can remain: memory that is charged while the driver does not
/// have it. Either the driver has not allocated it yet, or the driver has freed it and the process still waits to release the
/// charge.
pub(crate) fn unaccounted(
    nvml: &Nvml,
    device: &NvmlDevice,
    reader: &Reader,
    number: usize,
    machine: &Machine,
) -> Option<i64> {
    for _ in 0..TRIES {
        let before = Ledger::read(reader, number, machine)?;
        let named = nvml.processes(device)?;
        let difference = before.compared_with(&named);
        if before == Ledger::read(reader, number, machine)?
            && difference == before.compared_with(&nvml.processes(device)?)
        {
            return difference;
        }
        if nvml.is_late() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    None
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
    fn read(reader: &Reader, number: usize, machine: &Machine) -> Option<Self> {
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
}
