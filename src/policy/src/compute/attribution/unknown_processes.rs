//! Detects processes on the GPU that publish nothing: they belong neither to the slice nor to a co-tenant.
//!
//! NVML's process numbers may belong to another process-number namespace, so the module only counts them. If more numbers
//! were busy recently than the slice and its co-tenants had processes, at least one process publishes nothing.

use super::nvml_windows::{OLDEST_SAMPLE, Use};
use crate::time::Monotonic;

/// Number of consecutive looks that must find too many processes. The slice remembers a dead process for some time, and
/// NVML names it for up to a window of a second longer. With a look each second that is two looks at most.
const CONFIRMING_LOOKS: u32 = 3;

/// The numbers that NVML named in the last seconds, the known processes, and the consecutive looks with too many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnknownProcesses {
    busy: RecentItems<u32>,
    members: RecentItems<(u64, u32)>,
    looks: u32,
}

impl UnknownProcesses {
    /// Adds processes that NVML may name: those of the slice, and those of co-tenants that publish intervals. The number of
    /// a process is unique together with the number of its process-number namespace or slice.
    pub fn note_members(&mut self, members: impl IntoIterator<Item = (u64, u32)>, now: Monotonic) {
        self.members.note(members, now);
    }

    /// Adds a look: `uses` are the processes that NVML names, and `members` are the processes of the slice.
    pub fn look(&mut self, uses: &[Use], members: impl IntoIterator<Item = (u64, u32)>, now: Monotonic) {
        self.note_members(members, now);
        self.busy.note(uses.iter().filter(|entry| entry.is_busy()).map(|entry| entry.pid), now);
        let is_beyond = self.busy.count() > self.members.count();
        self.looks = if is_beyond { self.looks.saturating_add(1) } else { 0 };
    }

    /// Returns true if a process that publishes nothing certainly uses the GPU.
    #[must_use]
    pub const fn are_there(&self) -> bool {
        self.looks >= CONFIRMING_LOOKS
    }
}

/// Items seen in the last seconds, each with the instant at which it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RecentItems<Number>(Vec<(Number, Monotonic)>);

impl<Number> Default for RecentItems<Number> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<Number: PartialEq> RecentItems<Number> {
    fn note(&mut self, numbers: impl IntoIterator<Item = Number>, now: Monotonic) {
        for number in numbers {
            match self.0.iter_mut().find(|(seen, _)| *seen == number) {
                Some((_, last)) => *last = now,
                None => self.0.push((number, now)),
            }
        }
        // NVML names one process at a time, so a busy process may be unnamed for a second.
        self.0.retain(|(_, last)| now.since(*last) < OLDEST_SAMPLE);
    }

    const fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::ns;

    const SECOND: u64 = 1_000_000_000;

    fn seen(busy: impl Fn(u64) -> Vec<(u32, u32)>, members: impl Fn(u64) -> Vec<u32>) -> bool {
        let mut unknown = UnknownProcesses::default();
        let mut were_there = false;
        for look in 1..60 {
            let told = |(pid, percent)| Use { pid, stamp: 0, percent };
            let uses: Vec<Use> = busy(look).into_iter().map(told).collect();
            unknown.look(&uses, members(look).into_iter().map(|pid| (1, pid)), ns(look * SECOND));
            were_there |= unknown.are_there();
        }
        were_there
    }

    #[test]
    fn one_number_more_than_the_slice_has_processes_is_a_stranger() {
        assert!(seen(|_| vec![(7, 50), (8, 50)], |_| vec![7]));
        assert!(seen(|look| vec![(7 + u32::from(look % 2 == 0), 99)], |_| vec![7]), "named by turns");
        assert!(seen(|_| vec![(70_001, 50), (70_002, 50)], |_| vec![1]), "numbers of the host");
    }

    #[test]
    fn as_many_numbers_as_processes_are_none() {
        assert!(!seen(|_| vec![(7, 50), (8, 50)], |_| vec![7, 8]));
        assert!(!seen(|_| vec![(70_001, 50)], |_| vec![1]), "whatever the numbers are");
        assert!(!seen(|_| Vec::new(), |_| vec![7]));
    }

    #[test]
    fn processes_that_follow_each_other_in_a_slice_are_no_strangers() {
        let process = |look: u64| u32::try_from(look / 3).unwrap_or(0) + 1;
        assert!(!seen(|look| vec![(process(look), 50)], |look| vec![process(look)]));
        // NVML's answer describes the past.
        assert!(!seen(|look| vec![(process(look.saturating_sub(1)), 50)], |look| vec![process(look)]));
    }

    #[test]
    fn processes_of_co_tenants_are_no_strangers_until_they_have_gone() {
        let mut unknown = UnknownProcesses::default();
        let mut look = |pids: &[u32], cotenants: &[(u64, u32)], at: u64| {
            let uses: Vec<Use> = pids.iter().map(|pid| Use { pid: *pid, stamp: 0, percent: 50 }).collect();
            unknown.note_members(cotenants.iter().copied(), ns(at * SECOND - SECOND / 2));
            unknown.look(&uses, [(1, 7)], ns(at * SECOND));
            unknown.are_there()
        };
        let both = [(90, 0), (91, 0)];
        assert_eq!([1, 2, 3, 4].map(|at| look(&[7, 8, 9], &both, at)), [false; 4]);
        assert_eq!([5, 6, 7].map(|at| look(&[7, 8, 9, 10], &both, at)), [false, false, true]);
        assert_eq!([8, 9, 10, 11].map(|at| look(&[7, 8, 9], &both, at)), [true, true, false, false]);
        assert_eq!(
            [12, 13, 14, 15, 16].map(|at| look(&[7, 8, 9], &[(90, 0)], at)),
            [false, false, false, false, true]
        );
    }

    #[test]
    fn a_process_that_holds_memory_and_is_idle_is_no_stranger() {
        assert!(!seen(|_| vec![(7, 50), (8, 0)], |_| vec![7]));
    }

    #[test]
    fn strangers_that_have_left_are_not_there() {
        let mut unknown = UnknownProcesses::default();
        let mut look = |pids: &[u32], at: u64| {
            let uses: Vec<Use> = pids.iter().map(|pid| Use { pid: *pid, stamp: 0, percent: 50 }).collect();
            unknown.look(&uses, [(1, 7)], ns(at * SECOND));
            unknown.are_there()
        };
        assert_eq!([1, 2, 3].map(|at| look(&[7, 8], at)), [false, false, true]);
        assert_eq!([4, 5, 6].map(|at| look(&[7], at)), [true, true, false]);
    }
}
