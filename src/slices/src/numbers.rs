//! Translates the number of a process in another namespace to the number in this process's namespace.

use crate::process::read;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The numbers of processes, by the inode of their process-number namespace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers {
    here: BTreeMap<u64, Vec<u32>>,
    /// Processes by the number within their namespace. A region can name any number of processes that do not exist. So the
    /// first question about a namespace reads all its processes, and later questions read none.
    within: RefCell<BTreeMap<u64, BTreeMap<u32, u32>>>,
}

impl Numbers {
    /// Adds a process of a namespace, by its number in this process's namespace.
    pub(crate) fn add(&mut self, namespace: u64, pid: u32) {
        self.here.entry(namespace).or_default().push(pid);
    }

    /// Returns the number, in this process's namespace, of the process that has `number` in `namespace`.
    pub(crate) fn find(&self, namespace: u64, number: u32) -> Option<u32> {
        self.find_by(namespace, number, innermost_number)
    }

    fn find_by(&self, namespace: u64, number: u32, innermost: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        let here = self.here.get(&namespace)?;
        let mut within = self.within.borrow_mut();
        let numbers = within
            .entry(namespace)
            .or_insert_with(|| here.iter().filter_map(|pid| Some((innermost(*pid)?, *pid))).collect());
        numbers.get(&number).copied()
    }
}

/// Returns the number of a process in its own namespace.
fn innermost_number(pid: u32) -> Option<u32> {
    let status = read(&format!("/proc/{pid}/status"))?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_process_has_its_number_here_and_in_its_namespace() {
        let mut numbers = Numbers::default();
        (100..110).for_each(|pid| numbers.add(7, pid));
        let innermost = |pid: u32| pid.checked_sub(99);
        assert_eq!(numbers.find_by(7, 1, innermost), Some(100));
        assert_eq!(numbers.find_by(7, 100, innermost), None, "that is its number here");
        assert_eq!(numbers.find_by(9, 1, innermost), None);
        assert!(innermost_number(std::process::id()).is_some());
    }

    #[test]
    fn a_region_full_of_invented_processes_costs_one_reading_of_a_namespace() {
        let mut numbers = Numbers::default();
        (0..100).for_each(|pid| numbers.add(7, pid));
        let read = Cell::new(0);
        let innermost = |pid: u32| {
            read.set(read.get() + 1);
            Some(pid)
        };
        assert!((1000..2024).all(|number| numbers.find_by(7, number, innermost).is_none()));
        assert_eq!(read.get(), 100);
    }
}
