//! Faults: calls that go wrong on request.
//!
//! A fault has the form `function=action@when`. Semicolons separate several faults. Example: `cuMemAlloc_v2=2@3` fails the
//! third allocation with status 2.
//!
//! - Actions: a status number, `delay:500ms` (also `us`, `s`), `kill`, `kill-after`, or `hold`. With `kill`, the process
//!   dies by SIGKILL before the call does anything. With `kill-after`, it dies when the call has done its work. With `hold`,
//!   the call waits before its work, until the faults of the state file are set again.
//! - When: `3` is the third call, `3+` the third and all later ones. Without `@when`, the fault affects every call.
//!
//! Faults in the environment (`SIMGPU_FAULTS`) count the calls of their process. Faults in the state file
//! count the calls of all processes.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use gpuslice_driver::Symbol;
use gpuslice_driver::types::Status;

use crate::os::{clock, messages};

/// Largest number of faults in the state file.
pub const FAULTS: usize = 64;

/// The effect of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The call does nothing and returns this status.
    Fail(Status),
    /// The call takes this many nanoseconds longer.
    Delay(u64),
    /// The call waits before its work until the faults of the state file are set again.
    Hold,
    /// The process dies before the call does anything.
    Kill,
    /// The process dies after the call has done its work.
    KillAfter,
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The function that goes wrong.
    pub symbol: Symbol,
    /// The effect.
    pub action: Action,
    /// The first call that the fault affects. Calls count from 1.
    pub from: u64,
    /// True if the fault affects all later calls too.
    pub stays: bool,
}

/// A fault and its number of calls, as atomic words. Calls read them without a lock.
#[repr(C)]
#[derive(Debug, Default)]
pub struct FaultEntry {
    /// Number of the symbol plus one; 0 for no fault. This word is written last.
    symbol: AtomicU32,
    action: AtomicU32,
    value: AtomicU64,
    from: AtomicU64,
    stays: AtomicU64,
    calls: AtomicU64,
}

/// The faults of the state file.
#[repr(C)]
#[derive(Debug)]
pub struct FaultTable {
    entries: [FaultEntry; FAULTS],
    /// Number of entries that may contain a fault.
    used: AtomicU64,
    /// Number of times that the faults were set. Calls that wait read it.
    sets: AtomicU64,
}

/// A text that describes no fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub String);

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "not a fault: {}", self.0)
    }
}

/// Reads faults separated by semicolons.
///
/// # Errors
/// The first part of the text that describes no fault.
pub fn parse(text: &str) -> Result<Vec<Fault>, Malformed> {
    let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| fault(part).ok_or_else(|| Malformed(part.to_owned()))).collect()
}

fn fault(text: &str) -> Option<Fault> {
    let (name, rest) = text.split_once('=')?;
    let (what, when) = rest.split_once('@').unwrap_or((rest, "1+"));
    let (from, stays) = when.strip_suffix('+').map_or((when, false), |from| (from, true));
    let action = match what {
        "hold" => Action::Hold,
        "kill" => Action::Kill,
        "kill-after" => Action::KillAfter,
        _ => match what.strip_prefix("delay:") {
            Some(duration) => Action::Delay(nanoseconds(duration)?),
            None => Action::Fail(what.parse().ok()?),
        },
    };
    Some(Fault { symbol: Symbol::find(name.trim().as_bytes())?, action, from: from.parse().ok()?, stays })
}

fn nanoseconds(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

impl Action {
    fn code(self) -> (u32, u64) {
        match self {
            Self::Fail(status) => (0, u64::from(status)),
            Self::Delay(nanos) => (1, nanos),
            Self::Kill => (2, 0),
            Self::KillAfter => (3, 0),
            Self::Hold => (4, 0),
        }
    }

    fn decode(code: u32, value: u64) -> Self {
        match code {
            0 => Self::Fail(Status::try_from(value).unwrap_or(999)),
            1 => Self::Delay(value),
            2 => Self::Kill,
            3 => Self::KillAfter,
            _ => Self::Hold,
        }
    }
}

impl FaultTable {
    /// Replaces all faults.
    pub fn set(&self, faults: &[Fault]) {
        self.used.store(0, Ordering::Release);
        for entry in &self.entries {
            entry.symbol.store(0, Ordering::Release);
        }
        for (entry, fault) in self.entries.iter().zip(faults) {
            let (code, value) = fault.action.code();
            entry.action.store(code, Ordering::Relaxed);
            entry.value.store(value, Ordering::Relaxed);
            entry.from.store(fault.from, Ordering::Relaxed);
            entry.stays.store(u64::from(fault.stays), Ordering::Relaxed);
            entry.calls.store(0, Ordering::Relaxed);
            let number = u32::try_from(fault.symbol.index()).unwrap_or(0);
            entry.symbol.store(number + 1, Ordering::Release);
        }
        self.used.store(faults.len().min(FAULTS) as u64, Ordering::Release);
        self.sets.fetch_add(1, Ordering::Release);
    }

    /// Waits until the faults are set again.
    fn wait_for_others(&self) {
        let sets = self.sets.load(Ordering::Acquire);
        while self.sets.load(Ordering::Acquire) == sets {
            clock::sleep_until(clock::now().saturating_add(clock::MS));
        }
    }

    /// Counts a call, and passes the actions of its faults to `act`.
    fn apply(&self, symbol: Symbol, mut act: impl FnMut(Action)) {
        let used = self.used.load(Ordering::Acquire);
        let number = u32::try_from(symbol.index()).unwrap_or(0) + 1;
        for entry in self.entries.iter().take(usize::try_from(used).unwrap_or(0)) {
            if entry.symbol.load(Ordering::Acquire) != number {
                continue;
            }
            let call = entry.calls.fetch_add(1, Ordering::Relaxed) + 1;
            let from = entry.from.load(Ordering::Relaxed);
            if call == from || (call > from && entry.stays.load(Ordering::Relaxed) != 0) {
                act(Action::decode(
                    entry.action.load(Ordering::Relaxed),
                    entry.value.load(Ordering::Relaxed),
                ));
            }
        }
    }
}

/// The faults of the environment.
static OWN: OnceLock<Option<Box<FaultTable>>> = OnceLock::new();

fn own() -> Option<&'static FaultTable> {
    let made = OWN.get_or_init(|| {
        let text = std::env::var("SIMGPU_FAULTS").ok()?;
        match parse(&text) {
            Ok(faults) => {
                let table = Box::new(FaultTable::default());
                table.set(&faults);
                Some(table)
            }
            Err(error) => {
                messages::say(&format!("SIMGPU_FAULTS: {error}"));
                None
            }
        }
    });
    made.as_deref()
}

impl Default for FaultTable {
    fn default() -> Self {
        Self {
            entries: core::array::from_fn(|_| FaultEntry::default()),
            used: AtomicU64::new(0),
            sets: AtomicU64::new(0),
        }
    }
}

/// The effect of all faults on a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The status to return instead of doing the work.
    pub status: Option<Status>,
    /// True if the process dies when the call is done.
    pub last: bool,
}

/// Applies the faults that act before a call. Returns the effects that remain.
#[must_use]
pub fn before(symbol: Symbol, shared: Option<&FaultTable>) -> Verdict {
    let mut verdict = Verdict::default();
    for table in own().into_iter().chain(shared) {
        verdict = verdict.with(symbol, table, shared);
    }
    verdict
}

impl Verdict {
    /// Applies the faults of one table that act before a call. A call that must wait watches
    /// `shared`, the faults of the state file.
    pub(crate) fn with(self, symbol: Symbol, table: &FaultTable, shared: Option<&FaultTable>) -> Self {
        let mut verdict = self;
        table.apply(symbol, |action| match action {
            Action::Fail(status) => verdict.status = Some(status),
            Action::Delay(nanos) => clock::sleep_until(clock::now().saturating_add(nanos)),
            Action::Hold => shared.into_iter().for_each(FaultTable::wait_for_others),
            Action::Kill => die(),
            Action::KillAfter => verdict.last = true,
        });
        verdict
    }
}

/// Kills the process at once by SIGKILL.
pub fn die() {
    // SAFETY: `getpid` takes no pointer and has no requirement.
    let own = unsafe { libc::getpid() };
    // SAFETY: `kill` takes no pointer. It sends the signal to this process, which then runs no more code.
    unsafe { libc::kill(own, libc::SIGKILL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(table: &FaultTable, symbol: Symbol) -> Vec<Action> {
        let mut actions = Vec::new();
        table.apply(symbol, |action| actions.push(action));
        actions
    }

    #[test]
    fn a_fault_on_the_third_call_happens_then_and_only_then() {
        let table = FaultTable::default();
        table.set(&parse("cuMemAlloc_v2=2@3; cuInit=delay:500ms").unwrap());
        let seen: Vec<_> = (0..4).map(|_| applied(&table, Symbol::cuMemAlloc_v2)).collect();
        assert_eq!(seen, [vec![], vec![], vec![Action::Fail(2)], vec![]]);
        assert_eq!(applied(&table, Symbol::cuInit), [Action::Delay(500_000_000)]);
        assert_eq!(applied(&table, Symbol::cuMemFree_v2), []);
    }

    #[test]
    fn a_fault_from_the_second_call_on_stays() {
        let table = FaultTable::default();
        table.set(&parse("cuInit=100@2+").unwrap());
        let seen: Vec<_> = (0..3).map(|_| applied(&table, Symbol::cuInit).len()).collect();
        assert_eq!(seen, [0, 1, 1]);
    }

    #[test]
    fn a_held_call_waits_until_the_faults_are_set_anew() {
        let table = FaultTable::default();
        table.set(&parse("cuInit=hold@1").unwrap());
        std::thread::scope(|scope| {
            let call = scope.spawn(|| before(Symbol::cuInit, Some(&table)));
            while table.entries[0].calls.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            clock::sleep_until(clock::now() + 20 * clock::MS);
            assert!(!call.is_finished());
            while !call.is_finished() {
                table.set(&[]);
            }
        });
        assert_eq!(before(Symbol::cuInit, Some(&table)), Verdict::default());
    }

    #[test]
    fn a_malformed_fault_is_named() {
        for wrong in ["cuNothing=1", "cuInit", "cuInit=delay:5", "cuInit=2@x", "cuInit=explode"] {
            assert_eq!(parse(wrong), Err(Malformed(wrong.to_owned())), "{wrong}");
        }
    }
}
