//! Memory that is given back before a request is refused.

use super::state::Memory;
use super::{leaving, measurement};
use gpuslice_region::Device;

impl Memory {
    /// Makes room for `bytes` bytes before they are refused. The thread brings the pools of this process up to date. The driver
    /// may have taken memory out of one in a call that is not hooked. Charges that had no exact measurement are reconciled.
    /// Memory that ended graphs left in their pools is given back. Then the thread waits for memory that streams are about to
    /// free, and for memory of dead processes, if the bytes fit with it. Returns false if nothing can have changed.
    pub(crate) fn reclaim(&'static self, device: Device, bytes: u64) -> bool {
        let reconciled = measurement::reconcile(self, device, 1);
        let graphs = self.graphs.reclaim(self, device);
        let pools = self.pools.any();
        self.pools.reconcile_all(self);
        let frees = self.wait_for_stream_frees(device, bytes);
        leaving::wait(self, device, bytes, 0) || reconciled || graphs || pools || frees
    }
}
