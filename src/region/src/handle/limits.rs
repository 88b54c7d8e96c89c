//! Limits of a slice on a device.

use gpuslice_policy::compute::limiter::token_bucket::RateLimit;
use gpuslice_policy::config::{Ceiling, CorePolicy, Priority};
use gpuslice_policy::time::GpuTime;
use gpuslice_policy::units::Bytes;

use crate::{
    compute::rate_limit::{MOST_BURST, rate_limit},
    layout::{
        DeviceEntry, Header,
        constants::{NO_LIMIT, OVERSUBSCRIBED, WHOLE_SHARE},
    },
    memory::ledger::limit_of,
    sync::atomics::full_fence,
};

/// The limits of a slice on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that the slice may hold. `None`: no limit.
    pub memory: Option<u64>,
    /// Share of the device's time, 1 to 1000. 1000: no limit.
    pub cores_permille: u32,
    /// GPU time that the slice may save up, up to a minute.
    pub burst: GpuTime,
    /// The slice's part in dividing the device's time among slices.
    pub sharing: Sharing,
    /// Whether allocations beyond the memory limit are served from host memory.
    pub oversubscribe: bool,
}

impl Limits {
    /// No limits.
    pub const NONE: Self = Self {
        memory: None,
        cores_permille: WHOLE_SHARE,
        burst: Self::DEFAULT_BURST,
        sharing: Sharing::FIXED,
        oversubscribe: false,
    };
    /// The default of [`burst`](Self::burst): 20 ms.
    pub const DEFAULT_BURST: GpuTime = GpuTime::from_millis(20);

    /// Tells whether launches need GPU time from the ledger. They do if the share is less than the whole, or if other
    /// slices have a part in the rate.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        self.cores_permille < WHOLE_SHARE || self.sharing.divides()
    }

    /// Returns the limits, each lowered to the ceiling if it is above. A tenant's lower limits stay.
    #[must_use]
    pub fn within(self, ceiling: &Ceiling) -> Self {
        let memory = [self.memory, ceiling.memory.map(Bytes::get)].into_iter().flatten().min();
        let cores_permille =
            ceiling.cores.map_or(self.cores_permille, |most| self.cores_permille.min(most.get().into()));
        Self {
            memory,
            cores_permille,
            burst: ceiling.burst.map_or(self.burst, |most| self.burst.min(most)),
            sharing: self.sharing.within(ceiling),
            oversubscribe: self.oversubscribe && ceiling.oversubscribe.unwrap_or(true),
        }
    }

    /// Returns the limits [`within`](Self::within) the ceiling. `None`: none of them is above it.
    #[must_use]
    pub fn lowered(self, ceiling: &Ceiling) -> Option<Self> {
        Some(self.within(ceiling)).filter(|within| *within != self)
    }

    /// Returns the limits, each brought into its range.
    pub(crate) fn bounded(self) -> Self {
        Self {
            cores_permille: self.cores_permille.clamp(1, WHOLE_SHARE),
            burst: self.burst.min(MOST_BURST),
            sharing: self.sharing.bounded(),
            ..self
        }
    }

    /// Returns the limits in a device entry, each brought into its range, because another process may have written
    /// anything.
    pub(crate) fn of(entry: &DeviceEntry) -> Self {
        Self {
            memory: limit_of(entry.memory_limit.get()),
            cores_permille: entry.cores_permille.get(),
            burst: entry.burst.get(),
            sharing: Sharing::of(entry.sharing.get()),
            oversubscribe: entry.oversubscribe.get() == OVERSUBSCRIBED,
        }
        .bounded()
    }

    /// Returns the rate and burst of these limits.
    pub(crate) fn rate_limit(&self) -> RateLimit {
        rate_limit(self.cores_permille, self.burst)
    }

    /// Writes the limits into a device entry. They take effect at once. Returns the rate limit that they replace.
    pub(crate) fn write(self, header: &Header, entry: &DeviceEntry) -> RateLimit {
        let limits = self.bounded();
        let Self { memory, cores_permille, burst, sharing, oversubscribe } = limits;
        // The mark comes before the limits: a process killed in between must not leave limits that launches do not read. It
        // comes again after them, because another process may initialise the region meanwhile.
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
        // These are exchanges. If two processes change the rate limit at once, each returns the limit that it replaces. It
        // is the limit of the other process, or the one before both.
        let before = rate_limit(entry.cores_permille.swap(cores_permille), entry.burst.swap(burst));
        full_fence();
        mark();
        before
    }
}

/// A slice's part in dividing a GPU's time among slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// The policy by which the slices divide the time.
    pub policy: CorePolicy,
    /// The priority of the slice.
    pub priority: Priority,
    /// Weight of the slice among the slices of its policy and priority: 1 to 1000.
    pub weight: u32,
}

impl Sharing {
    /// A fixed share, independent of other slices: the default.
    pub const FIXED: Self = Self { policy: CorePolicy::Fixed, priority: Priority::Normal, weight: 100 };
    /// The largest weight.
    const MOST_WEIGHT: u32 = 1000;

    /// Tells whether other slices have a part in this slice's rate, by their policy or priority.
    #[must_use]
    pub fn divides(self) -> bool {
        self.policy != CorePolicy::Fixed || self.priority != Priority::Normal
    }

    fn within(self, ceiling: &Ceiling) -> Self {
        Self {
            policy: ceiling.policy.unwrap_or(self.policy),
            priority: ceiling.priority.map_or(self.priority, |most| self.priority.min(most)),
            weight: ceiling.weight.map_or(self.weight, |most| self.weight.min(most.get().into())),
        }
    }

    /// Brings the settings into their ranges.
    pub(crate) fn bounded(self) -> Self {
        Self { weight: self.weight.clamp(1, Self::MOST_WEIGHT), ..self }
    }

    /// Returns the word of a device entry: policy in bits 0 to 7, priority in bits 8 to 15, weight from bit 16.
    pub(crate) fn word(self) -> u64 {
        let policy = match self.policy {
            CorePolicy::Fixed => 0,
            CorePolicy::Equal => 1,
            CorePolicy::BestEffort => 2,
        };
        let priority = match self.priority {
            Priority::Normal => 0,
            Priority::High => 1,
            Priority::Low => 2,
        };
        policy | priority << 8 | u64::from(self.bounded().weight) << 16
    }

    /// Reads the word of a device entry. An undefined policy or priority counts as the default.
    pub(crate) fn of(word: u64) -> Self {
        let policy = match word & 0xff {
            1 => CorePolicy::Equal,
            2 => CorePolicy::BestEffort,
            _ => CorePolicy::Fixed,
        };
        let priority = match word >> 8 & 0xff {
            1 => Priority::High,
            2 => Priority::Low,
            _ => Priority::Normal,
        };
        let weight = match u32::try_from(word >> 16).unwrap_or(Self::MOST_WEIGHT) {
            0 => Self::FIXED.weight,
            weight => weight,
        };
        Self { policy, priority, weight }.bounded()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_policy::units::Permille;

    #[test]
    fn limits_above_a_ceiling_are_lowered_to_it_and_others_stay() {
        let ceiling = Ceiling {
            memory: Some(Bytes::new(100)),
            cores: Permille::new(300),
            policy: Some(CorePolicy::Equal),
            weight: "50".parse().ok(),
            priority: Some(Priority::Normal),
            burst: Some(GpuTime::from_millis(5)),
            oversubscribe: Some(false),
        };
        let most = Limits {
            memory: Some(100),
            cores_permille: 300,
            burst: GpuTime::from_millis(5),
            sharing: Sharing { policy: CorePolicy::Equal, priority: Priority::Normal, weight: 50 },
            ..Limits::NONE
        };
        let high = Sharing { policy: CorePolicy::Fixed, priority: Priority::High, weight: 1000 };
        assert_eq!(Limits { sharing: high, oversubscribe: true, ..Limits::NONE }.within(&ceiling), most);
        let sharing = Sharing { priority: Priority::Low, weight: 1, ..most.sharing };
        let burst = GpuTime::from_millis(1);
        let lowered = Limits { memory: Some(0), cores_permille: 1, burst, sharing, oversubscribe: false };
        assert_eq!(lowered.within(&ceiling), lowered);
        let unbounded = Limits { oversubscribe: true, ..Limits::NONE };
        assert_eq!(unbounded.within(&Ceiling::default()), unbounded);
    }

    #[test]
    fn sharing_is_read_as_written_and_a_meaningless_word_as_the_usual() {
        for policy in [CorePolicy::Fixed, CorePolicy::Equal, CorePolicy::BestEffort] {
            for priority in [Priority::Low, Priority::Normal, Priority::High] {
                for weight in [1, 100, 1000] {
                    let sharing = Sharing { policy, priority, weight };
                    assert_eq!(Sharing::of(sharing.word()), sharing);
                }
            }
        }
        assert_eq!(Sharing::of(0), Sharing::FIXED);
        assert_eq!(Sharing::of(u64::MAX), Sharing { weight: 1000, ..Sharing::FIXED });
        assert_eq!(Sharing { weight: 0, ..Sharing::FIXED }.bounded().weight, 1);
    }
}
