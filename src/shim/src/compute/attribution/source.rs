//! The source of the measured GPU time of a device, as the region and the log name it: events, a replay, or NVML.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::os::messages;
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use core::sync::atomic::{AtomicU64, Ordering};
use gpuslice_policy::compute::attribution::source::{Measured, Source};
use gpuslice_policy::config::LogLevel;
use gpuslice_region::{Device, Uuid};

/// Sources that the log has named. Each source has one bit, at the position that the low bits of its word give.
#[derive(Debug, Default)]
pub(crate) struct LoggedSources(AtomicU64);

impl LoggedSources {
    /// Writes the source of a device's time to the region, unless the region says that events fail. Logs each source once.
    ///
    /// A failure of events stays in the region until events measure a batch again ([`override_source`]). Otherwise the next step
    /// of the replay would overwrite it.
    pub(crate) fn report(&self, slice: &Slice, gpu: SliceDevice, measured: Measured) {
        let word = slice.region().measure_source(gpu.device);
        if word == measured.word() || Measured::of_word(word).source == Source::Failing {
            return;
        }
        slice.member().set_measure_source(gpu.device, measured.word());
        let bit = 1_u64.wrapping_shl(measured.word());
        if self.0.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let uuid = Uuid(gpu.uuid);
            messages::say(
                LogLevel::Info,
                &format_args!("gpuslice: {uuid}: GPU time is measured by {measured}."),
            );
        }
    }
}

/// Writes to the region that events measure or that they fail, if the region does not say so.
///
/// Events replace only an unknown source or a failure. A more precise source, such as a replay of event times, stays.
pub(crate) fn override_source(slice: &Slice, device: Device, source: Source) {
    let before = Measured::of_word(slice.region().measure_source(device)).source;
    let is_news = match source {
        Source::Failing => before != Source::Failing,
        _ => matches!(before, Source::Unknown | Source::Failing),
    };
    if is_news {
        slice.member().set_measure_source(device, Measured::by(source).word());
    }
}
