//! Reports the use of a device's time by a slice.
//!
//! The region counts the charges since it was made. The difference of two looks is the use between them.

use crate::figures;
use gpuslice_policy::compute::attribution::correction;
use gpuslice_policy::compute::attribution::source::{Measured, Source};
use gpuslice_policy::config::CorePolicy;
use gpuslice_policy::time::{GpuTime, Nanos, WallTime};
use gpuslice_policy::units::Setting as _;
use gpuslice_region::{DeviceFigures, ProcessView, Reader, RegionError, TimeUsed};
use serde::Serialize;
use std::time::{Duration, Instant};

/// A device's time, as a slice uses it. Its form is that of `status --json`; spans are nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Time {
    /// The slice's share in thousandths; 1000 is no limit.
    pub share_permille: u32,
    /// Policy by which slices divide the device's time, as a value of `GPU_CORE_POLICY`.
    pub policy: String,
    /// The slice's weight beside others.
    pub weight: u32,
    /// The slice's priority, as a value of `GPU_PRIORITY`.
    pub priority: String,
    /// GPU time that it may save up.
    pub burst_ns: u64,
    /// GPU time that it was charged since the region was made.
    pub used_ns: u64,
    /// Thousandths of the device's time that it was charged over `used_over_ns`; null without a look, and if the time is not
    /// measured.
    pub used_permille: Option<u64>,
    /// Span of that look.
    pub used_over_ns: Option<u64>,
    /// The slice's charges over the last 1, 10 and 60 seconds.
    pub lately: [Lately; 3],
    /// Wall time that its launches waited for the share, summed over threads.
    pub throttled_ns: u64,
    /// GPU time of its copies on the device and fills.
    pub copied_ns: u64,
    /// Predicted GPU time of its work that was launched and has not ended.
    pub queued_ns: u64,
    /// GPU time that it owes: launches wait until the share has paid for it.
    pub owed_ns: u64,
    /// Number of its launches that were counted.
    pub launches: u64,
    /// The source of its time.
    pub meter: Meter,
    /// The reason why NVML does not help to measure the time. Null if NVML helps, or if the slice has not asked it.
    pub meter_why: Option<String>,
    /// The part of the time between events that was its own, in millionths; 1000000 if nothing is taken off.
    pub own_millionths: u32,
    /// `meter` and `meter_why`, as the region has them.
    #[serde(skip)]
    measured: Measured,
    /// True if launches are paid for.
    #[serde(skip)]
    is_paced: bool,
}

/// The charges of a slice over the last seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Lately {
    /// Seconds that the caller asked for.
    pub seconds: u64,
    /// Span of the figures: up to a second more, because the region keeps sums from the beginnings of seconds.
    pub span_ns: u64,
    /// GPU time that was charged.
    pub used_ns: u64,
    /// The charged GPU time in thousandths of the span.
    pub used_permille: u64,
    /// Wall time that launches waited for the share, summed over threads.
    pub throttled_ns: u64,
}

impl Lately {
    fn of(reader: &Reader, device: gpuslice_region::Device, seconds: u64) -> Result<Self, RegionError> {
        let gpuslice_region::RecentUsage { used, throttled, span } = reader.used_over(device, seconds)?;
        Ok(Self {
            seconds,
            span_ns: span.nanos(),
            used_ns: used.nanos(),
            used_permille: permille(used, span),
            throttled_ns: throttled.nanos(),
        })
    }
}

/// Returns a time in thousandths of `span`.
pub fn permille(time: impl Nanos, span: WallTime) -> u64 {
    WallTime::from_nanos(time.nanos()).scaled(1000, span.nanos().max(1)).unwrap_or(WallTime::MAX).nanos()
}

/// Returns the use of a device's time over a span, or `None` if it was not measured. Nothing is measured while launches are not
/// paid for. If that has changed within the span, the use of a part of it is known.
#[must_use]
pub fn measured(is_paced: bool, used: u64) -> Option<u64> {
    (is_paced || used > 0).then_some(used)
}

/// A device's time, as one process of the slice uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ProcessTime {
    /// GPU time that it was charged.
    pub used_ns: u64,
    /// Thousandths of the device's time over the span that the device tells; null without a look.
    pub used_permille: Option<u64>,
    /// Wall time that its launches waited for the share.
    pub throttled_ns: u64,
    /// Predicted GPU time of its work that was launched and has not ended.
    pub queued_ns: u64,
    /// Number of its launches.
    pub launches: u64,
}

/// The source of GPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meter {
    /// Nothing has been measured yet.
    #[default]
    None,
    /// Timing events; no neighbour's time is taken off.
    Events,
    /// Timing events, beside programs that publish nothing.
    EventsAndOthers,
    /// Timing events, less the time that belongs to neighbours by the intervals that the slices publish.
    EventsAndSlices,
    /// The same, beside programs that publish nothing.
    EventsAndSlicesAndOthers,
    /// NVML's samples.
    Nvml,
    /// Events fail: estimates only.
    Estimates,
}

impl Meter {
    /// Returns the source that a region's word means.
    #[must_use]
    pub fn of_word(word: u32) -> Self {
        Self::of(Measured::of_word(word).source)
    }

    /// Returns its name in the JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Events => "events",
            Self::EventsAndOthers => "events-and-others",
            Self::EventsAndSlices => "events-and-slices",
            Self::EventsAndSlicesAndOthers => "events-and-slices-and-others",
            Self::Nvml => "nvml",
            Self::Estimates => "estimates",
        }
    }

    fn of(source: Source) -> Self {
        match source {
            Source::Unknown => Self::None,
            Source::Events => Self::Events,
            Source::Whole => Self::EventsAndOthers,
            Source::Nvml => Self::Nvml,
            Source::Failing => Self::Estimates,
            Source::Replayed => Self::EventsAndSlices,
            Source::ReplayedWhole => Self::EventsAndSlicesAndOthers,
        }
    }
}

/// The use up to one moment, by process and in all.
#[derive(Debug)]
struct Moment {
    at: Instant,
    devices: Vec<TimeUsed>,
    processes: Vec<ProcessView>,
}

impl Moment {
    fn now(reader: &Reader) -> Result<Self, RegionError> {
        Ok(Self {
            at: Instant::now(),
            devices: reader.devices()?.iter().map(|read| read.time).collect(),
            processes: reader.processes()?,
        })
    }

    fn by(&self, process: &ProcessView, device: usize) -> GpuTime {
        let same = |other: &&ProcessView| {
            (other.slot, other.pid, other.start) == (process.slot, process.pid, process.start)
        };
        self.processes.iter().find(same).map_or(GpuTime::ZERO, |other| used_by(other, device).used)
    }
}

/// The use between two moments.
#[derive(Debug)]
pub struct UsageBetween {
    before: Moment,
    after: Moment,
}

impl UsageBetween {
    /// Returns the thousandths of a device's time that the slice used, or `None` if it got the device between the two
    /// moments.
    fn at(&self, device: usize) -> Option<u64> {
        let [before, after] = [&self.before, &self.after].map(|moment| moment.devices.get(device));
        Some(self.permille(after?.used.saturating_sub(before?.used)))
    }

    /// Returns the thousandths of a device's time that one process of the slice used.
    fn at_by(&self, process: &ProcessView, device: usize) -> u64 {
        self.permille(self.after.by(process, device).saturating_sub(self.before.by(process, device)))
    }

    /// Returns true if the slice's use of a device is measured.
    pub(crate) fn measures(&self, read: &DeviceFigures) -> bool {
        self.at(read.device.index()).and_then(|used| measured(read.limits.is_paced(), used)).is_some()
    }

    fn span(&self) -> WallTime {
        WallTime::of(self.after.at.saturating_duration_since(self.before.at)).max(WallTime::NANOSECOND)
    }

    fn permille(&self, used: GpuTime) -> u64 {
        permille(used, self.span())
    }
}

/// Looks at the GPU time of slices over the time `long`, which `wait` lets pass. It does not look if no slice is
/// limited or launches anything. A slice that ends meanwhile gets no look.
pub fn looks(readers: &[&Reader], long: Duration, wait: impl FnOnce(Duration)) -> Vec<Option<UsageBetween>> {
    let is_counted = |reader: &&Reader| {
        let devices = reader.devices().unwrap_or_default();
        devices.iter().any(|read| read.limits.is_paced() || read.time.launches > 0)
    };
    if long.is_zero() || !readers.iter().any(is_counted) {
        return readers.iter().map(|_| None).collect();
    }
    let moments = || readers.iter().map(|reader| Moment::now(reader).ok()).collect::<Vec<_>>();
    let before = moments();
    wait(long);
    let pairs = before.into_iter().zip(moments());
    pairs.map(|(before, after)| Some(UsageBetween { before: before?, after: after? })).collect()
}

fn used_by(process: &ProcessView, device: usize) -> TimeUsed {
    process.time.get(device).copied().unwrap_or_default()
}

impl Time {
    /// Returns a device's time now, and over a look.
    ///
    /// # Errors
    /// The region is another one than `reader` has opened: see [`Reader::check`].
    pub fn of(
        reader: &Reader,
        read: &DeviceFigures,
        look: Option<&UsageBetween>,
    ) -> Result<Self, RegionError> {
        let (limits, used) = (read.limits, read.time);
        let measured = Measured::of_word(read.measure_source);
        let lately = |seconds| Lately::of(reader, read.device, seconds);
        Ok(Self {
            share_permille: limits.cores_permille,
            policy: limits.sharing.policy.setting(),
            weight: limits.sharing.weight,
            priority: limits.sharing.priority.setting(),
            burst_ns: limits.burst.nanos(),
            lately: [lately(1)?, lately(10)?, lately(60)?],
            used_ns: used.used.nanos(),
            used_permille: look.and_then(|look| look.at(read.device.index())),
            used_over_ns: look.map(|look| look.span().nanos()),
            throttled_ns: used.throttled.nanos(),
            copied_ns: used.copied.nanos(),
            queued_ns: used.queued.nanos(),
            owed_ns: read.owed.nanos(),
            launches: used.launches,
            meter: Meter::of(measured.source),
            meter_why: measured.why.map(|why| why.to_string()),
            measured,
            own_millionths: read.correction,
            is_paced: limits.is_paced(),
        })
    }

    /// Returns true if the time is worth a line in the output.
    #[must_use]
    pub fn is_of_interest(&self) -> bool {
        self.is_paced || self.launches > 0
    }

    /// Returns the part of the device's time that was used in one of the last seconds, like `30%`; `-` if it is not measured.
    #[must_use]
    pub fn used(&self, lately: &Lately) -> String {
        measured(self.is_paced, lately.used_permille).map_or_else(|| "-".to_owned(), figures::percent)
    }

    /// Returns the share, like `30%`, and with it the policy unless that is `fixed`.
    #[must_use]
    pub fn share(&self) -> String {
        let share = figures::percent(self.share_permille.into());
        if self.policy == CorePolicy::Fixed.setting() { share } else { format!("{share} {}", self.policy) }
    }

    /// Describes how the time is measured, and which part of it counts as the slice's own.
    #[must_use]
    pub fn measurement(&self) -> String {
        if self.measured.source == Source::Unknown {
            return "nothing measured yet".to_owned();
        }
        let by = format!("measured by {}", self.measured);
        if self.own_millionths >= correction::WHOLE_FACTOR {
            return by;
        }
        let own = (u64::from(self.own_millionths) * 1000).div_ceil(correction::WHOLE_FACTOR.into());
        format!("{by}: {} of the measured time is its own", figures::percent(own))
    }
}

impl ProcessTime {
    /// Returns a process's time on a device now, and over a look.
    #[must_use]
    pub fn of(process: &ProcessView, device: usize, look: Option<&UsageBetween>) -> Self {
        let used = used_by(process, device);
        Self {
            used_ns: used.used.nanos(),
            used_permille: look.map(|look| look.at_by(process, device)),
            throttled_ns: used.throttled.nanos(),
            queued_ns: used.queued.nanos(),
            launches: used.launches,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_one_name() {
        let all = [
            Meter::None,
            Meter::Events,
            Meter::EventsAndOthers,
            Meter::EventsAndSlices,
            Meter::Nvml,
            Meter::Estimates,
        ];
        for meter in all {
            assert_eq!(serde_json::to_value(meter).unwrap(), meter.name());
        }
        assert_eq!(Meter::of_word(Measured::by(Source::Failing).word()), Meter::Estimates);
        assert_eq!(Meter::of_word(u32::MAX), Meter::None, "a tenant can write any word");
    }
}
