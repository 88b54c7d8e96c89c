//! Memory that the library gets back before it refuses a request.

use super::state::Memory;
use super::{leaving, measurement};
use gpuslice_region::Device;

impl Memory {
    /// Tries to make room for `bytes` bytes before the caller refuses them, in this order:
    ///
    /// 1. The thread reconciles charges that had no exact measurement.
    /// 2. It makes the driver release memory that ended graphs left in their pools.
    /// 3. It reads the driver's counters of pools, because the driver may have released memory in a call that is not hooked.
    /// 4. It waits for memory that streams are about to free, and for memory of dead processes, if `bytes` then fit.
    ///
    /// Returns false if nothing can have changed.
    pub(crate) fn reclaim(&'static self, device: Device, bytes: u64) -> bool {
        let reconciled = measurement::reconcile(self, device, 1);
        let graphs = self.graphs.reclaim(self, device);
        let pools = self.pools.any();
        self.pools.reconcile_all(self);
        let frees = self.wait_for_stream_frees(device, bytes);
        leaving::wait(self, device, bytes, 0) || reconciled || graphs || pools || frees
    }
}
