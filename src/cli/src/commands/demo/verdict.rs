//! The verdict of the demo on each promise of gpuslice.

use super::stage::Truth;
use super::wire::Counts;
use gpuslice_slices::figures::{percent, size};
use std::fmt;
use std::time::Duration;

/// Longest time until a slice has the memory of a killed process back.
const SOON: Duration = Duration::from_secs(1);

/// Thousandths of the GPU's time by which a slice may exceed its share, because the demo is short.
const SHARE_ABOVE: u64 = 30;
/// Thousandths of the GPU's time by which a slice may stay below its share. The demo is short, and switching between
/// contexts takes some of the GPU's time.
const SHARE_BELOW: u64 = 80;

/// A slice's use of GPU time, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) name: &'static str,
    /// The slice's share.
    pub(super) share: u64,
    /// The use by the slice's own charges.
    pub(super) charged: u64,
    /// GPU time by the count of the simulated GPU, if there is one.
    pub(super) counted: Option<u64>,
    /// True if the demo got too little processor time. A slice may then use less than its share.
    pub(super) starved: bool,
}

/// Memory and limits of a slice, as far as the demo saw them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) name: &'static str,
    /// The slice's quota now.
    pub(super) limit: u64,
    /// The slice's share of the GPU's time, in thousandths.
    pub(super) share: u64,
    /// Bytes that the slice held at the last look.
    pub(super) held: u64,
    /// The most bytes that the slice held.
    pub(super) peak: u64,
    /// True if the slice ever held more than its quota.
    pub(super) exceeded: bool,
}

/// All findings of the demo.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    findings: Vec<(bool, String)>,
}

impl Verdict {
    /// Tells whether gpuslice kept all promises.
    pub(super) fn is_good(&self) -> bool {
        self.findings.iter().all(|(good, _)| *good)
    }

    /// Notes a finding.
    pub(super) fn add(&mut self, good: bool, text: impl Into<String>) {
        self.findings.push((good, text.into()));
    }

    /// Judges whether a slice stayed within its quota. The slice's own charges decide, and the count of the
    /// simulated GPU, if there is one.
    pub(super) fn add_quota(&mut self, slice: &Account, truth: Option<&Truth>) {
        let counted = truth.map(|truth| truth.peak(slice.name));
        let gpu = counted.map_or_else(String::new, |peak| format!("; the GPU counted {}", size(peak)));
        let (name, most, limit) = (slice.name, size(slice.peak), size(slice.limit));
        self.add(
            !slice.exceeded && counted.is_none_or(|peak| peak <= slice.limit && peak > 0),
            format!("{name} held {most} at most, of {limit}{gpu}"),
        );
    }

    /// Judges whether a slice that wants all of the GPU's time got its share. The count of the simulated GPU decides,
    /// or else the slice's own charges.
    pub(super) fn add_share(&mut self, used: Used) {
        let Used { name, share, charged, counted, starved } = used;
        let most = share.saturating_add(SHARE_ABOVE);
        let least = if starved { 1 } else { share.saturating_sub(SHARE_BELOW) };
        let why = if starved { " (the machine is busy)" } else { "" };
        let gpu =
            counted.map_or_else(String::new, |counted| format!("; the GPU counted {}", percent(counted)));
        let (used, of) = (percent(charged), percent(share));
        self.add(
            (least..=most).contains(&counted.unwrap_or(charged)),
            format!("{name} used {used} of the GPU's time, of {of}{gpu}{why}"),
        );
    }

    /// Judges whether gpuslice denied the allocations beyond the quota.
    pub(super) fn add_refusals(&mut self, name: &str, counts: Counts) {
        self.add(
            counts.granted > 0 && counts.refused > 0,
            format!(
                "{name}'s programs were granted {} allocations, and refused {}",
                counts.granted, counts.refused
            ),
        );
    }

    /// Judges whether the slice got the memory of a killed process back in time.
    pub(super) fn add_return(&mut self, held: u64, back: Option<Duration>) {
        let when = back
            .map_or_else(|| "did not come back".to_owned(), |back| format!("came back in {}", millis(back)));
        self.add(
            held > 0 && back.is_some_and(|back| back <= SOON),
            format!("the {} of the killed process {when}", size(held)),
        );
    }
}

/// Returns a time as whole milliseconds.
pub(super) fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (good, text) in &self.findings {
            writeln!(f, "  {} {text}", if *good { "ok  " } else { "FAIL" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const WITHIN: Account =
        Account { name: "red", limit: 100, share: 300, held: 50, peak: 100, exceeded: false };

    fn truth(peak: u64) -> Truth {
        Truth { held: 0, peaks: BTreeMap::from([("red".to_owned(), peak)]), busy: BTreeMap::new() }
    }

    fn is_good(find: impl Fn(&mut Verdict)) -> bool {
        let mut verdict = Verdict::default();
        find(&mut verdict);
        verdict.is_good()
    }

    #[test]
    fn one_byte_over_the_quota_fails_by_either_count() {
        assert!(is_good(|verdict| verdict.add_quota(&WITHIN, None)));
        assert!(is_good(|verdict| verdict.add_quota(&WITHIN, Some(&truth(100)))));
        assert!(!is_good(|verdict| verdict.add_quota(&WITHIN, Some(&truth(101)))));
        assert!(!is_good(
            |verdict| verdict.add_quota(&Account { exceeded: true, ..WITHIN }, Some(&truth(100)))
        ));
    }

    #[test]
    fn a_gpu_that_counted_nothing_proves_nothing() {
        assert!(!is_good(|verdict| verdict.add_quota(&WITHIN, Some(&truth(0)))));
        assert!(!is_good(|verdict| verdict.add_quota(&Account { name: "blue", ..WITHIN }, Some(&truth(1)))));
    }

    #[test]
    fn memory_that_comes_back_late_or_never_fails() {
        let back = |time| is_good(|verdict| verdict.add_return(1, time));
        assert!(back(Some(Duration::from_secs(1))));
        assert!(!back(Some(Duration::from_millis(1001))));
        assert!(!back(None));
        assert!(!is_good(|verdict| verdict.add_return(0, Some(Duration::ZERO))));
    }

    #[test]
    fn a_share_that_is_not_kept_fails_whatever_the_slice_says_of_itself() {
        let is_kept = |charged, counted, starved| {
            is_good(|verdict| verdict.add_share(Used { name: "red", share: 300, charged, counted, starved }))
        };
        let used = |charged, counted| is_kept(charged, counted, false);
        assert!(used(300, None) && used(300, Some(330)) && used(300, Some(220)));
        assert!(!used(331, None) && !used(300, Some(331)) && !used(300, Some(219)) && !used(300, Some(0)));
        assert!(used(0, Some(300)), "the GPU's count is what happened");
        assert!(
            is_kept(300, Some(1), true) && !is_kept(300, Some(331), true) && !is_kept(300, Some(0), true)
        );
    }

    #[test]
    fn a_slice_that_was_refused_nothing_fails() {
        assert!(is_good(|verdict| verdict.add_refusals("red", Counts { granted: 1, refused: 1 })));
        assert!(!is_good(|verdict| verdict.add_refusals("red", Counts { granted: 1, refused: 0 })));
    }

    #[test]
    fn one_bad_finding_is_a_bad_verdict() {
        assert!(!is_good(|verdict| {
            verdict.add(false, "one");
            verdict.add(true, "another");
        }));
    }
}
