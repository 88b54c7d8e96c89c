//! Sampler that finds programs on the GPU that publish nothing.
//!
//! Beside such a program, the time between two events contains the program's time slices. The library cannot tell them from
//! the slice's own time slices. NVML's samples do not help: each names one process, but has the use of the whole GPU.
//! So that time counts as the slice's own, and the slice stays within its share. The library asks NVML only whether
//! there is such a program, so that the region and the log can report it.
//!
//! The elected process of a slice asks NVML; the other processes keep NVML closed. It asks once a second, and less
//! often if NVML is slow. If slices see each other, [one of them asks](super::slicing_replay).

use crate::compute::attribution::nvml_schedule::{RETRY_NVML, next_call};
use crate::compute::attribution::utilization_windows::UtilizationReader;
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use crate::slice::settings;
use gpuslice_policy::compute::attribution::source::{Measured, Source, Why};
use gpuslice_policy::compute::attribution::unknown_processes::UnknownProcesses;
use gpuslice_policy::config::CoreMeter;
use gpuslice_policy::time::{Monotonic, WallTime};
use std::collections::BTreeSet;

/// Interval of the queries to NVML for the programs on the GPU.
const SAMPLE_EVERY: WallTime = WallTime::from_millis(1_000);

/// The sampler of one device.
#[derive(Debug, Default)]
pub(crate) struct ProgramSampler {
    open: Option<UtilizationReader>,
    unknown: UnknownProcesses,
    /// Instant at which the next question is due.
    next: Monotonic,
}

impl ProgramSampler {
    /// Closes NVML, and forgets the programs: they may have ended when NVML is asked again.
    pub(crate) fn close(&mut self) {
        (self.open, self.unknown) = (None, UnknownProcesses::default());
    }

    /// Adds processes of co-tenants that published intervals. Each has the number of its slice and its number in the slice.
    pub(crate) fn note_publishers(&mut self, publishers: BTreeSet<(u64, u32)>, now: Monotonic) {
        self.unknown.note_members(publishers, now);
    }

    /// Asks NVML, if that is due. Returns the source of the measured time for a slice without co-tenants. `None`: nothing is new,
    /// or another process of the slice asks.
    ///
    /// Only the process with the sampler lease asks. `renew_lease` renews the lease at each question. If the holder does not
    /// renew it for 1.5 s, another process takes it over. So after a kill the slice has no sampler for that time only.
    pub(crate) fn tick(
        &mut self,
        slice: &Slice,
        gpu: SliceDevice,
        now: Monotonic,
        renew_lease: impl FnOnce() -> bool,
    ) -> Option<Measured> {
        if self.next == Monotonic::BEGIN {
            // Opening NVML delays all other processes on the machine that open it. A program that ends sooner does not open it.
            self.next = now.saturating_add(SAMPLE_EVERY);
        }
        if now < self.next {
            return None;
        }
        self.next = now.saturating_add(SAMPLE_EVERY);
        if !is_wanted() {
            self.next = now.saturating_add(RETRY_NVML);
            return Some(Measured::by(Source::Events));
        }
        if !renew_lease() {
            self.close();
            return None;
        }
        let read = self.read_window(slice, gpu, now);
        self.next = self.next.max(next_call(now, read.err()));
        let source = if self.unknown.are_there() { Source::Whole } else { Source::Events };
        Some(Measured { source, why: read.err() })
    }

    /// Asks NVML which processes used the GPU since the last window.
    fn read_window(&mut self, slice: &Slice, gpu: SliceDevice, now: Monotonic) -> Result<(), Why> {
        let reader = match &mut self.open {
            Some(reader) => reader,
            closed => closed.insert(UtilizationReader::open(gpu)?),
        };
        let window = reader.window();
        if matches!(window, Err(why) if why != Why::Undated) {
            self.close();
        }
        if let Some((_, uses)) = window? {
            let members = slice.region().processes();
            let members = members.iter().map(|member| (member.pid_namespace, member.pid));
            self.unknown.look(&uses, members, now);
        }
        Ok(())
    }
}

/// Returns true if the settings let the library ask NVML.
fn is_wanted() -> bool {
    settings::settings().is_none_or(|settings| settings.config.core_meter == CoreMeter::Auto)
}
