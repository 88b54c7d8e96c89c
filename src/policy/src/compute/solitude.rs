//! By which numbers does NVML know our processes, where it does not use ours?
//!
//! In a container the driver may call a process by its number on the host, which the process cannot find out. One thing
//! proves a number: the window in which a single process was listed, while the slice was busy for as much of it by its
//! own events. That process is one of ours. Neither names, memory nor order are asked, since a neighbour's may be alike.
//!
//! A number is believed after a few such windows, and no number is once the slice's processes are others than they were,
//! or one shows more work than the slice did.

use super::sight::{LISTED, Use, Window};

/// So many windows prove a number.
const PROOFS: u8 = 3;
/// Numbers that are kept in mind.
const MOST: usize = 64;
/// What NVML's figure may differ from ours, in percents: its rounding and the windows' ends.
const MARGIN: u64 = 5;

/// What is known of numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Solitude {
    proofs: Vec<(u32, u8)>,
    roster: u64,
}

impl Solitude {
    /// Looks at a window. Of it so many nanoseconds are covered by the slice's events; `roster` tells its processes from
    /// any others that it may have had.
    pub fn look(&mut self, uses: &[Use], window: Window, covered: u64, roster: u64) {
        if self.roster != roster {
            *self = Self { proofs: Vec::new(), roster };
        }
        let length = window.to.saturating_sub(window.from);
        if window.is_cut || length == 0 {
            return;
        }
        let ours = covered.saturating_mul(100).checked_div(length).unwrap_or(0);
        let margin = MARGIN.saturating_add(ours / 10);
        let most = ours.saturating_add(margin.saturating_mul(2));
        if uses.iter().any(|entry| self.is_own(entry.pid) && u64::from(entry.percent) > most) {
            self.proofs.clear();
        }
        if let [only] = uses
            && covered.saturating_mul(LISTED) >= length
            && u64::from(only.percent).abs_diff(ours) <= margin
        {
            self.prove(only.pid);
        }
    }

    fn prove(&mut self, pid: u32) {
        if let Some((_, proofs)) = self.proofs.iter_mut().find(|(known, _)| *known == pid) {
            *proofs = proofs.saturating_add(1);
        } else if self.proofs.len() < MOST {
            self.proofs.push((pid, 1));
        }
    }

    /// Whether the process that NVML calls this is one of ours.
    #[must_use]
    pub fn is_own(&self, pid: u32) -> bool {
        self.proofs.iter().any(|(known, proofs)| *known == pid && *proofs >= PROOFS)
    }

    /// How many numbers are proven. A slice with more processes than that has some which would be taken for others.
    #[must_use]
    pub fn proven(&self) -> usize {
        self.proofs.iter().filter(|(_, proofs)| *proofs >= PROOFS).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const WINDOW: Window = Window { from: 9 * S, to: 10 * S, is_cut: false };

    fn uses(entries: &[(u32, u32)]) -> Vec<Use> {
        entries.iter().map(|(pid, percent)| Use { pid: *pid, stamp: 1, percent: *percent }).collect()
    }

    /// What a window of a second with these entries, and so many percents of ours, comes to after so many times.
    fn after(times: u32, entries: &[(u32, u32)], ours: u64) -> Solitude {
        let mut solitude = Solitude::default();
        (0..times).for_each(|_| solitude.look(&uses(entries), WINDOW, S / 100 * ours, 1));
        solitude
    }

    #[test]
    fn whoever_alone_does_what_we_do_is_one_of_ours() {
        assert!(!after(2, &[(645_400, 30)], 30).is_own(645_400));
        let solitude = after(3, &[(645_400, 30)], 30);
        assert!(solitude.is_own(645_400) && !solitude.is_own(645_401));
        assert_eq!(solitude.proven(), 1);
    }

    #[test]
    fn a_neighbour_is_not_taken_for_us() {
        assert_eq!(after(9, &[(9, 97)], 20).proven(), 0, "it does more than we");
        assert_eq!(after(9, &[(9, 20)], 90).proven(), 0, "it does less than we");
        assert_eq!(after(9, &[(9, 5)], 5).proven(), 0, "we hardly do anything");
        assert_eq!(after(9, &[(9, 47), (8, 47)], 95).proven(), 0, "there are two");
        assert_eq!(after(9, &[], 95).proven(), 0);
    }

    #[test]
    fn what_is_known_is_forgotten_when_the_slice_has_other_processes() {
        let mut solitude = after(3, &[(9, 30)], 30);
        solitude.look(&uses(&[(9, 30), (8, 40)]), WINDOW, S / 100 * 70, 1);
        assert!(solitude.is_own(9));
        solitude.look(&uses(&[(9, 30), (8, 40)]), WINDOW, S / 100 * 70, 2);
        assert!(!solitude.is_own(9));
    }

    #[test]
    fn nvml_may_differ_from_us_by_its_rounding_and_a_tenth() {
        let proven = |percent, ours| after(3, &[(9, percent)], ours).proven();
        assert_eq!([71, 72, 49, 48].map(|percent| proven(percent, 60)), [1, 0, 1, 0]);
    }

    #[test]
    fn windows_of_which_not_all_is_known_or_that_are_none_prove_nothing() {
        for window in [Window { is_cut: true, ..WINDOW }, Window { to: WINDOW.from, ..WINDOW }] {
            let mut solitude = Solitude::default();
            (0..9).for_each(|_| solitude.look(&uses(&[(9, 0)]), window, 0, 1));
            (0..9).for_each(|_| solitude.look(&uses(&[(9, 50)]), window, S / 2, 1));
            assert_eq!(solitude.proven(), 0, "{window:?}");
        }
    }

    #[test]
    fn no_more_than_so_many_numbers_are_kept_in_mind() {
        let mut solitude = Solitude::default();
        (1..100).for_each(|pid| solitude.look(&uses(&[(pid, 50)]), WINDOW, S / 2, 1));
        assert_eq!(solitude.proofs.len(), MOST);
    }

    #[test]
    fn a_number_that_shows_more_work_than_the_slice_did_is_not_ours() {
        // The margin is 7 there, twice of it is believed.
        for (percent, proven) in [(60, 0), (35, 0), (34, 1)] {
            let mut solitude = after(3, &[(9, 30)], 30);
            solitude.look(&uses(&[(9, percent), (8, 40)]), WINDOW, S / 100 * 20, 1);
            assert_eq!(solitude.proven(), proven, "{percent}");
        }
    }
}
