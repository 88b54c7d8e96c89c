//! Limits of a slice on a device.

use gpuslice_policy::compute::bucket::Terms;

use crate::{
    compute::terms::{MOST_BURST, terms},
    handle::sharing::Sharing,
    layout::{
        DeviceEntry, Header,
        constants::{NO_LIMIT, OVERSUBSCRIBED, WHOLE_SHARE},
    },
    memory::ledger::limit_of,
    sync::atomics::full_fence,
};

/// What a slice may use of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that it may hold. `None`: no limit.
    pub memory: Option<u64>,
    /// Its share of the device's time, 1 to 1000. 1000: no limit.
    pub cores_permille: u32,
    /// GPU time that it may save up, in nanoseconds, up to a minute.
    pub burst_ns: u64,
    /// How it shares the device's time with other slices.
    pub sharing: Sharing,
    /// Whether what passes the memory limit is served from host memory.
    pub oversubscribe: bool,
}

impl Limits {
    /// Nothing is limited.
    pub const NONE: Self = Self {
        memory: None,
        cores_permille: WHOLE_SHARE,
        burst_ns: Self::DEFAULT_BURST,
        sharing: Sharing::FIXED,
        oversubscribe: false,
    };
    /// The GPU time that may be saved up unless something else is asked for, in nanoseconds: 20 ms.
    pub const DEFAULT_BURST: u64 = 20_000_000;

    /// Whether launches are paid for: less than the whole time is the slice's, or others divide it with the slice.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        self.cores_permille < WHOLE_SHARE || self.sharing.divides()
    }

    /// The limits, brought into their range.
    pub(crate) fn bounded(self) -> Self {
        Self {
            cores_permille: self.cores_permille.clamp(1, WHOLE_SHARE),
            burst_ns: self.burst_ns.min(MOST_BURST),
            sharing: self.sharing.bounded(),
            ..self
        }
    }

    /// The limits of an entry, brought into their range: another process may have written anything.
    pub(crate) fn of(entry: &DeviceEntry) -> Self {
        Self {
            memory: limit_of(entry.memory_limit.get()),
            cores_permille: entry.cores_permille.get(),
            burst_ns: entry.burst.get(),
            sharing: Sharing::of(entry.sharing.get()),
            oversubscribe: entry.oversubscribe.get() == OVERSUBSCRIBED,
        }
        .bounded()
    }

    /// Writes the limits into an entry, and says what the terms of its time were, and are. They take effect at once.
    pub(crate) fn write(self, header: &Header, entry: &DeviceEntry) -> (Terms, Terms) {
        let limits = self.bounded();
        let Self { memory, cores_permille, burst_ns, sharing, oversubscribe } = limits;
        // Before: who is killed in between has not written limits that nobody looks at. And behind: the region may be made anew
        // meanwhile.
        let mark = || {
            if limits.is_paced() {
                header.unlimited_hint.set(0);
            }
        };
        mark();
        full_fence();
        entry.memory_limit.set(memory.unwrap_or(NO_LIMIT));
        entry.sharing.set(sharing.word());
        entry.oversubscribe.set(if oversubscribe { OVERSUBSCRIBED } else { 0 });
        // Of two who change the terms at once, each has what the other one wrote, or what was there before both.
        let before = terms(entry.cores_permille.swap(cores_permille), entry.burst.swap(burst_ns));
        full_fence();
        mark();
        (before, terms(cores_permille, burst_ns))
    }
}
