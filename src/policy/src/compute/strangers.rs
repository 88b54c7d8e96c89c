//! Do processes use the GPU that are not of the slice?
//!
//! The numbers by which NVML calls processes may be those of another process-number namespace, so they are only counted. If more
//! numbers were busy lately than the slice had processes, one of them is not the slice's.

use super::departed::Departed;
use super::sight::{Use, Window};

/// So many windows in a row must say it. A process of the slice that has died is named for a moment longer than it is remembered.
const WINDOWS: u32 = 10;

/// The numbers that NVML named in the last seconds, and in how many windows they were too many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strangers {
    busy: Departed<u32>,
    windows: u32,
}

impl Strangers {
    /// NVML names these processes for a window. `members`: how many processes the slice had in the last seconds.
    pub fn note(&mut self, uses: &[Use], window: Window, members: usize) {
        self.busy.note(uses.iter().filter(|entry| entry.is_busy()).map(|entry| entry.pid), window.from);
        let is_beyond = self.busy.count() > members;
        self.windows = if is_beyond { self.windows.saturating_add(1) } else { 0 };
    }

    /// Whether a process that is not of the slice surely uses the GPU.
    #[must_use]
    pub const fn are_there(&self) -> bool {
        self.windows >= WINDOWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 166_000_000;

    fn seen(busy: impl Fn(u64) -> Vec<u32>, members: impl Fn(u64) -> Vec<u32>) -> bool {
        let (mut strangers, mut departed) = (Strangers::default(), Departed::default());
        let mut were_there = false;
        for number in 1..60 {
            let (from, to) = (number * WINDOW, (number + 1) * WINDOW);
            let uses: Vec<Use> =
                busy(number).iter().map(|pid| Use { pid: *pid, stamp: 0, percent: 50 }).collect();
            departed.note(members(number), to);
            strangers.note(&uses, Window { from, to, is_cut: false }, departed.count());
            were_there |= strangers.are_there();
        }
        were_there
    }

    #[test]
    fn one_number_more_than_the_slice_has_processes_is_a_stranger() {
        assert!(seen(|_| vec![7, 8], |_| vec![7]));
        assert!(seen(|window| vec![7 + u32::from(window % 2 == 0)], |_| vec![7]), "named by turns");
        assert!(seen(|_| vec![70_001, 70_002], |_| vec![1]), "numbers of the host");
    }

    #[test]
    fn as_many_numbers_as_processes_are_none() {
        assert!(!seen(|_| vec![7, 8], |_| vec![7, 8]));
        assert!(!seen(|_| vec![70_001], |_| vec![1]), "whatever the numbers are");
        assert!(!seen(|_| Vec::new(), |_| vec![7]));
    }

    #[test]
    fn processes_that_follow_each_other_in_a_slice_are_no_strangers() {
        let process = |window: u64| vec![u32::try_from(window / 3).unwrap_or(0) + 1];
        assert!(!seen(process, process));
        // NVML tells of the past.
        assert!(!seen(|window| process(window.saturating_sub(1)), process));
    }

    #[test]
    fn a_process_that_holds_memory_and_is_idle_is_no_stranger() {
        let mut strangers = Strangers::default();
        for number in 1..60 {
            let window = Window { from: number * WINDOW, to: (number + 1) * WINDOW, is_cut: false };
            let uses = [Use { pid: 7, stamp: 0, percent: 50 }, Use { pid: 8, stamp: 0, percent: 0 }];
            strangers.note(&uses, window, 1);
        }
        assert!(!strangers.are_there());
    }
}
