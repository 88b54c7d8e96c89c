//! Memory that the library gets back before it refuses a request.

use super::state::Memory;
use super::{leaving, measurement};
use crate::os::clock::now;
use gpuslice_region::{Device, LEAVING};

impl Memory {
    /// Makes room for a request of `bytes` bytes that did not fit, and repeats it. Returns its result; `None` if it does not fit.
    ///
    /// The thread corrects the charges of this process. Then it waits for memory that streams are about to free, and for memory
    /// of dead processes, if `bytes` fit with it. Another thread may take the memory that came back. So the thread waits again
    /// while more is to come. No wait begins later than [`LEAVING`] after the corrections.
    pub(crate) fn repeat_with_room<T>(
        &'static self,
        device: Device,
        bytes: u64,
        mut request: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let mut has_changed = self.correct_charges(device);
        let until = now().saturating_add(LEAVING);
        loop {
            has_changed |= self.wait_for_stream_frees(device, bytes, until);
            has_changed |= leaving::wait(self, device, bytes, 0);
            if !has_changed {
                return None;
            }
            if let Some(granted) = request() {
                return Some(granted);
            }
            if now() >= until {
                return None;
            }
            has_changed = false;
        }
    }

    /// Corrects the charges of this process, in this order:
    ///
    /// 1. The thread reconciles charges that had no exact measurement.
    /// 2. It makes the driver release memory that ended graphs left in their pools.
    /// 3. It reads the driver's counters of pools, because the driver may have released memory in a call that is not hooked.
    ///
    /// Returns false if nothing can have changed.
    fn correct_charges(&'static self, device: Device) -> bool {
        let reconciled = measurement::reconcile(self, device, 1);
        let graphs = self.graphs.reclaim(self, device);
        let pools = self.pools.any();
        self.pools.reconcile_all(self);
        reconciled || graphs || pools
    }
}
