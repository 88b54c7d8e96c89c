//! Decisions of one thread about its batches: which launches are measured alone.

use super::stream_state::StreamState;
use crate::compute::launch::LaunchKind;
use crate::os::clock::CycleInstant;
use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::compute::measuring::when_alone::{self, Sampler, Timing};
use gpuslice_policy::time::WallTime;

/// State that a thread keeps for its batches.
#[derive(Debug, Default)]
pub(crate) struct Batching {
    /// Chooses launches to be measured alone.
    pub(crate) sampler: Sampler,
    /// Number of batches with gaps that the sampler has counted.
    gaps_counted: u64,
    /// True if a stream that is known to be empty may have an open batch.
    pub(crate) has_idle: bool,
    /// True if a batch may be open on a legacy default stream.
    pub(crate) has_legacy: bool,
    /// Least duration of a kernel, and of a graph, that is measured alone. Computed when a batch was last opened.
    long: [WallTime; 2],
}

impl Batching {
    /// Computes the least durations from the cost of an event.
    pub(crate) fn set_event_cost(&mut self, cost: WallTime) {
        self.long = [false, true].map(|is_graph| when_alone::long(is_graph, cost));
    }

    /// Returns the least duration of a launch that is measured alone because it is long. A chained launch is never measured
    /// alone.
    #[inline(always)]
    pub(crate) const fn long(&self, kind: LaunchKind) -> WallTime {
        let [kernel, graph] = self.long;
        match kind {
            LaunchKind::Chained => WallTime::MAX,
            LaunchKind::Graph => graph,
            LaunchKind::Kernel | LaunchKind::Copy => kernel,
        }
    }

    /// Decides whether a launch is measured alone or together with others. `pause`: the time since the host last left the driver.
    pub(crate) fn choose(
        &mut self,
        known: Option<&Estimate>,
        kind: LaunchKind,
        pause: WallTime,
        stream: &StreamState,
        now: CycleInstant,
    ) -> Timing {
        let timing = Timing::of(known, self.long(kind), pause);
        if timing == Timing::Batched
            && kind != LaunchKind::Chained
            && let Some(known) = known
            && self.sampler.launch(known, || stream.may_be_empty(now, known))
        {
            return Timing::Single;
        }
        timing
    }

    /// Tells the sampler about new batches with gaps. `gaps`: the number of batches with gaps until now, of all threads.
    ///
    /// Another thread measures the batches later. So each thread keeps the count that it has seen, and passes the increase to the
    /// sampler. The count is of the process, because threads of one program usually launch alike.
    pub(crate) fn note_gaps(&mut self, gaps: u64) {
        self.sampler.note_gaps(gaps.saturating_sub(self.gaps_counted));
        self.gaps_counted = gaps;
    }
}
