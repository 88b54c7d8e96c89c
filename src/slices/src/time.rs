//! Reports a slice's use of a device's time.
//!
//! The region sums the charges since it was made. The use between two moments is the difference of the two sums.

use crate::figures;
use gpuslice_policy::compute::attribution::correction;
use gpuslice_policy::compute::attribution::source::{Measured, Source};
use gpuslice_policy::config::CorePolicy;
use gpuslice_policy::time::{GpuTime, Nanos, WallTime};
use gpuslice_policy::units::Setting as _;
use gpuslice_region::{DeviceFigures, ProcessView, Reader, RegionError, TimeUsed};
use serde::Serialize;
use std::time::{Duration, Instant};

/// A slice's use of a device's time. The fields are those of `status --json`; spans are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Time {
    /// The slice's share in thousandths; 1000 is no limit.
    pub share_permille: u32,
    /// Policy by which slices divide the device's time, as a value of `GPU_CORE_POLICY`.
    pub policy: String,
    /// The slice's weight, compared to other slices.
    pub weight: u32,
    /// The slice's priority, as a value of `GPU_PRIORITY`.
    pub priority: String,
    /// GPU time that the slice may save up.
    pub burst_ns: u64,
    /// GPU time that the slice was charged since the region was made.
    pub used_ns: u64,
    /// The slice's charges over `used_over_ns`, in thousandths of that span. Null if the caller did not look twice, or if the
    /// time is not measured.
    pub used_permille: Option<u64>,
    /// The span between the two looks.
    pub used_over_ns: Option<u64>,
    /// The slice's charges over the last 1, 10 and 60 seconds.
    pub lately: [Lately; 3],
    /// Wall time for which the slice's launches waited for the share, summed over threads.
    pub throttled_ns: u64,
    /// GPU time of the slice's copies on the device and fills.
    pub copied_ns: u64,
    /// Predicted GPU time of the slice's launched work that has not ended.
    pub queued_ns: u64,
    /// GPU time that the slice owes. Launches wait until the share has paid for it.
    pub owed_ns: u64,
    /// Number of the slice's launches that were counted.
    pub launches: u64,
    /// The source of the slice's time.
    pub meter: Meter,
    /// The reason why NVML does not help to measure the time. Null if NVML helps, or if the slice has not asked it.
    pub meter_why: Option<String>,
    /// The part of the time between events that belongs to the slice itself, in millionths; 1000000 if it is the whole.
    pub own_millionths: u32,
    /// `meter` and `meter_why`, as the region stores them.
    #[serde(skip)]
    measured: Measured,
    /// True if the slice's launches are paid for.
    #[serde(skip)]
    is_paced: bool,
}

/// The charges of a slice in the last seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Lately {
    /// Seconds that the caller asked for.
    pub seconds: u64,
    /// Span of the figures. It may be a second longer than `seconds`, because the region's sums begin with whole seconds.
    pub span_ns: u64,
    /// GPU time that was charged.
    pub used_ns: u64,
    /// The charged GPU time in thousandths of the span.
    pub used_permille: u64,
    /// Wall time for which launches waited for the share, summed over threads.
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

/// Returns the use of a device's time over a span, or `None` if the limiter did not measure it. The limiter measures nothing
/// while launches are not paid for. If that has changed within the span, `used` covers only a part of it.
#[must_use]
pub fn measured(is_paced: bool, used: u64) -> Option<u64> {
    (is_paced || used > 0).then_some(used)
}

/// The use of a device's time by one process of the slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ProcessTime {
    /// GPU time that the process was charged.
    pub used_ns: u64,
    /// The process's charges in thousandths of the span `used_over_ns` of the device. Null if the caller did not look twice.
    pub used_permille: Option<u64>,
    /// Wall time for which the process's launches waited for the share.
    pub throttled_ns: u64,
    /// Predicted GPU time of the process's launched work that has not ended.
    pub queued_ns: u64,
    /// Number of the process's launches.
    pub launches: u64,
}

/// The source of GPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meter {
    /// Nothing has been measured yet.
    #[default]
    None,
    /// Timing events. All of the measured time counts as the slice's own.
    Events,
    /// Timing events. Programs that publish no intervals use the GPU too.
    EventsAndOthers,
    /// Timing events, less the neighbours' time. The intervals that slices publish tell that time.
    EventsAndSlices,
    /// As `EventsAndSlices`, while programs that publish no intervals use the GPU too.
    EventsAndSlicesAndOthers,
    /// NVML's samples.
    Nvml,
    /// The events fail, so only estimates are left.
    Estimates,
}

impl Meter {
    /// Returns the source that a word of the region stands for.
    #[must_use]
    pub fn of_word(word: u32) -> Self {
        Self::of(Measured::of_word(word).source)
    }

    /// Returns the source's name in the JSON.
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

/// The use of GPU time up to one moment, by each process and by each device.
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

/// The use of GPU time between two moments.
#[derive(Debug)]
pub struct UsageBetween {
    before: Moment,
    after: Moment,
}

impl UsageBetween {
    /// Returns the slice's use in thousandths of a device's time. Returns `None` if the slice got the device between the two
    /// moments.
    fn at(&self, device: usize) -> Option<u64> {
        let [before, after] = [&self.before, &self.after].map(|moment| moment.devices.get(device));
        Some(self.permille(after?.used.saturating_sub(before?.used)))
    }

    /// Returns the use by one process of the slice, in thousandths of a device's time.
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

/// Reads the GPU time of slices twice. `wait` lets the time `long` pass between the two. If no slice is limited or has launched
/// anything, the function does not read or wait. If a slice ends before the second reading, it has no result.
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
    /// Returns a slice's use of a device now, and over the span of `look`.
    ///
    /// # Errors
    /// The region is not the one that `reader` has opened: see [`Reader::check`].
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

    /// Returns true if the time deserves a line in the output.
    #[must_use]
    pub fn is_of_interest(&self) -> bool {
        self.is_paced || self.launches > 0
    }

    /// Returns the slice's charges `lately` as a part of the device's time, like `30%`. Returns `-` if the time is not
    /// measured.
    #[must_use]
    pub fn used(&self, lately: &Lately) -> String {
        measured(self.is_paced, lately.used_permille).map_or_else(|| "-".to_owned(), figures::percent)
    }

    /// Returns the share, like `30%`. The policy follows unless it is `fixed`.
    #[must_use]
    pub fn share(&self) -> String {
        let share = figures::percent(self.share_permille.into());
        if self.policy == CorePolicy::Fixed.setting() { share } else { format!("{share} {}", self.policy) }
    }

    /// Describes the way in which the time is measured, and the part of it that counts as the slice's own.
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
    /// Returns a process's use of a device now, and over the span of `look`.
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
