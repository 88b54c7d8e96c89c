//! Tests a process that has no measurement but NVML's samples.

use gpuslice_policy::compute::attribution::nvml_only::{Learned, NvmlCostModel};
use gpuslice_policy::compute::attribution::nvml_windows::Sample;
use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::time::{GpuTime, GpuTimeChange, Monotonic};

use crate::shim::{Paid, Shim, Wait};
use crate::slice::Slice;
use crate::world::World;
use gpuslice_policy::compute::attribution::prepayments::PrepaymentHistory;

/// The state of such a process.
#[derive(Debug)]
pub struct NvmlOnly {
    model: NvmlCostModel,
    course: PrepaymentHistory,
    /// Time that the slice has counted for this process.
    counted: GpuTime,
}

impl Default for NvmlOnly {
    fn default() -> Self {
        Self { model: NvmlCostModel::new(true), course: PrepaymentHistory::default(), counted: GpuTime::ZERO }
    }
}

impl Shim {
    /// Pays for a launch as with events. If that fails, returns the reason to wait.
    pub fn admit_without_events(&mut self, now: Monotonic, slice: &mut Slice) -> Result<Paid, Wait> {
        let nvml_only = self.nvml_only.as_mut().unwrap();
        let cost = nvml_only.model.cost();
        if !self.lease.spend(cost) {
            let lacks = self.lease.shortfall(cost, slice.lease(self.me, now)).max(GpuTime::NANOSECOND);
            slice.take(self.me, lacks, now).map_err(Wait::Word)?;
            self.lease.fill(lacks);
            assert!(self.lease.spend(cost));
        }
        let counted = nvml_only.course.add(now, 1, cost);
        nvml_only.counted += counted;
        slice.prepaid += counted;
        let mut estimate = Estimate::default();
        (estimate.charged, estimate.duration) = (cost, cost.wall_if_alone());
        Ok(self.pay(None, estimate))
    }
}

impl World {
    /// Applies NVML's samples of a process and of its slice.
    pub fn settle_by_nvml(&mut self, me: usize, own: Sample, slice: Sample) {
        let process = &mut self.processes[me];
        let (at, is_alive) = (process.slice, process.is_alive());
        if let Some(nvml_only) = process.shim.nvml_only.as_mut().filter(|_| is_alive) {
            let prepaid = nvml_only.course.within(own.from, own.to);
            let learned = nvml_only.model.learn((&own, &slice), &prepaid, self.now);
            if let Learned::Settled(change) = learned {
                let charge = change.max(GpuTimeChange::NONE).amount();
                nvml_only.course.uncount(change.min(GpuTimeChange::NONE).amount());
                nvml_only.course.count(self.now, charge);
                nvml_only.counted += charge;
                self.slices[at].prepaid += charge;
                self.slices[at].settle(change, self.now);
                self.wake_sleepers(at);
            }
        }
    }

    /// Lets each process of a slice read the prepayments of the slice.
    pub fn read_prepaid(&mut self, at: usize) {
        let sum = self.slices[at].prepaid;
        let own = self.processes.iter_mut().filter(|process| process.slice == at);
        own.filter_map(|process| process.shim.nvml_only.as_mut())
            .for_each(|nvml_only| nvml_only.course.add_beside(self.now, sum - nvml_only.counted));
    }
}
