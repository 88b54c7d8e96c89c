//! State about co-tenants: the process divides GPUs with them, and finds its own part of the measured time.

use super::arbiter_client::ArbiterClient;
use super::program_sampler::ProgramSampler;
use super::slices::Cotenants;
use super::slicing_replay::{Sight, SlicingReplay};
use crate::compute::attribution::nvml_only::NvmlOnly;
use crate::compute::attribution::nvml_schedule::LINGER;
use crate::compute::measuring::usage::UsageState;
use crate::os::clock;
use core::time::Duration;
use gpuslice_policy::arbiter;
use gpuslice_policy::compute::attribution::source::Measured;
use gpuslice_region::Uuid;
use parking_lot::Mutex;
use std::path::PathBuf;

/// State about co-tenants. The worker and the thread that asks NVML take its locks. If the worker does not run, launching threads
/// tick in its place, and take the locks too.
///
/// `samplers` is locked before `replays`, and `replays` or `arbiter` before `slices`. The thread that asks NVML holds `samplers`
/// during the question, and the other locks only between questions. So the worker continues while NVML takes long.
#[derive(Debug)]
pub(crate) struct CotenantState {
    slices: Mutex<Cotenants>,
    arbiter: Mutex<ArbiterClient>,
    /// One replay for each device.
    replays: Mutex<Vec<SlicingReplay>>,
    /// One sampler for each device.
    samplers: Mutex<Vec<ProgramSampler>>,
    /// True if the daemon of MPS may let processes run at the same time on a GPU. The driver then gives no time slices.
    has_mps: bool,
}

impl CotenantState {
    /// Makes the state for `devices` devices, without co-tenants.
    pub(crate) fn new(devices: usize) -> Self {
        Self {
            slices: Mutex::default(),
            arbiter: Mutex::default(),
            replays: Mutex::new((0..devices).map(|_| SlicingReplay::default()).collect()),
            samplers: Mutex::new((0..devices).map(|_| ProgramSampler::default()).collect()),
            has_mps: has_mps(),
        }
    }

    /// Replays the time slicing on each device, if that is due. Returns true if there may be a question to NVML. Such questions
    /// are about programs that publish nothing, or about the cost of launches that events do not measure.
    pub(crate) fn replay(&self, usage: &UsageState) -> bool {
        let is_measured_by_nvml = usage.nvml_only.iter().any(NvmlOnly::is_waiting);
        if !usage.timing.is_enabled {
            return is_measured_by_nvml;
        }
        let devices = usage.limiters.iter().enumerate();
        // `count` visits all devices. `any` would stop at the first device that has a question, and not replay the others.
        let asks = devices.filter(|(at, limiter)| self.replay_device(usage, *at) && limiter.is_pacing(usage));
        asks.count() > 0 || is_measured_by_nvml
    }

    /// Publishes new intervals of the slice for slices of other directories. If another thread holds the lock of the replays, the
    /// next tick publishes them.
    pub(crate) fn publish(&self, usage: &UsageState) {
        let Some(mut replays) = self.replays.try_lock() else { return };
        for (replay, limiter) in replays.iter_mut().zip(&usage.limiters) {
            replay.publish(usage, limiter.gpu);
        }
    }

    /// Replays the time slicing on a device, if that is due. Returns true if this slice asks NVML for the programs that use the
    /// device. It also returns true if it replays nothing, or if another thread holds the lock of the replays. In these cases
    /// [`ask_nvml`](Self::ask_nvml) decides again.
    fn replay_device(&self, usage: &UsageState, at: usize) -> bool {
        let (Some(mut replays), Some(limiter)) = (self.replays.try_lock(), usage.limiters.get(at)) else {
            return true;
        };
        let replay = replays.get_mut(at).filter(|_| !self.has_mps && limiter.is_pacing(usage));
        replay.is_none_or(|replay| replay.tick(usage, &usage.sources, limiter.gpu, &self.slices))
    }

    /// Asks NVML two questions, if they are due: which programs use the GPUs, and how much time launches take that events do not
    /// measure.
    ///
    /// The thread that asks NVML calls this. If that thread does not run, a ticking thread does. It holds the lock of the replays
    /// only between questions. If it held the lock during a question, the worker could neither publish nor replay.
    pub(crate) fn ask_nvml(&self, usage: &UsageState) {
        if usage.timing.are_used() {
            usage.by_nvml().for_each(|(nvml_only, gpu)| nvml_only.stop(usage, gpu));
        } else {
            for (nvml_only, gpu) in usage.by_nvml() {
                if nvml_only.is_waiting() {
                    nvml_only.tick(usage, &usage.sources, gpu);
                } else {
                    nvml_only.close_idle(usage, gpu);
                }
            }
        }
        if !usage.timing.is_enabled {
            return;
        }
        let mut samplers = self.samplers.lock();
        for (at, (limiter, sampler)) in usage.limiters.iter().zip(samplers.iter_mut()).enumerate() {
            let sight = self.replays.lock().get_mut(at).map_or(Sight::Alone, SlicingReplay::sight);
            let has_cotenants = !matches!(sight, Sight::Alone);
            match sight {
                Sight::Listens => {
                    sampler.close();
                    continue;
                }
                Sight::Asks(publishers) => sampler.note_publishers(publishers, clock::now()),
                Sight::Alone => {}
            }
            if !limiter.is_pacing(usage) {
                continue;
            }
            let renew_lease = || {
                let mut replays = self.replays.lock();
                // The clock is read under the lock. With an earlier time, a lease that another thread has renewed would look
                // invalid.
                replays.get_mut(at).is_some_and(|replay| replay.renew_lease(usage, limiter.gpu, clock::now()))
            };
            if let Some(measured) = sampler.tick(usage, limiter.gpu, clock::now(), renew_lease) {
                self.tell_programs(usage, at, measured, has_cotenants);
            }
        }
    }

    /// Tells the slice whether NVML names programs on a device that publish nothing. If there are co-tenants, the replay writes
    /// the source of the time. So this function writes it only without co-tenants.
    fn tell_programs(&self, usage: &UsageState, at: usize, measured: Measured, has_cotenants: bool) {
        let are_there = measured.source.is_beside_programs();
        if let Some(replay) = self.replays.lock().get_mut(at) {
            replay.set_programs(are_there);
        }
        let Some(limiter) = usage.limiters.get(at).filter(|_| !has_cotenants) else { return };
        usage.sources.report(usage, limiter.gpu, measured);
        if let Some(mut slices) = self.slices.try_lock().filter(|_| are_there) {
            slices.warn_if_alone(usage, &Uuid(limiter.gpu.uuid), false);
        }
    }

    /// Reads the grants of the arbiters, and divides the GPUs whose arbiter leases this process holds. Each process reads the
    /// grants, because the arbiter may be a process of another slice.
    pub(crate) fn arbitrate(&self, usage: &UsageState) {
        usage.limiters.iter().for_each(|limiter| limiter.read_grant(usage));
        let Some(mut arbiter) = self.arbiter.try_lock() else { return };
        if usage.limiters.iter().any(|limiter| limiter.is_divided(usage)) {
            arbiter.tick(usage, &usage.limiters, &self.slices, clock::now());
        } else if arbiter.holds_any() {
            arbiter.release(&usage.limiters);
        }
    }

    /// Gives the arbiter leases back, because this process has nothing to do. Other processes may become the arbiters.
    pub(crate) fn release_arbiter(&self, usage: &UsageState) {
        if let Some(mut arbiter) = self.arbiter.try_lock() {
            arbiter.release(&usage.limiters);
        }
    }

    /// Closes NVML.
    pub(crate) fn close_nvml(&self, usage: &UsageState) {
        usage.by_nvml().for_each(|(nvml_only, gpu)| nvml_only.close_idle(usage, gpu));
        self.samplers.lock().iter_mut().for_each(ProgramSampler::close);
    }

    /// Closes the regions of co-tenants that were not used for [`LINGER`]. Returns true if any is open.
    pub(crate) fn close_idle(&self) -> bool {
        self.slices.lock().close_idle(LINGER, clock::now())
    }
}

/// Returns true if a thread of this process waits for a share in which other slices have a part. Then the worker keeps ticking
/// although no work is under way, because perhaps no other process can be the arbiter. Without an arbiter the thread would wait
/// by an old grant although the GPU is idle.
pub(crate) fn needs_arbiter(usage: &UsageState) -> bool {
    usage
        .limiters
        .iter()
        .any(|limiter| usage.member().is_waiting(limiter.gpu.device) && limiter.is_divided(usage))
}

/// Returns the pause of the worker between two ticks.
pub(crate) fn tick_interval(usage: &UsageState) -> Duration {
    let is_beside_high =
        usage.limiters.iter().any(|limiter| limiter.must_yield() || limiter.has_priority(usage));
    let step = if is_beside_high { arbiter::STEP_BESIDE_HIGH } else { arbiter::ARBITER_STEP };
    step.duration()
}

/// Returns true if the pipes of the MPS daemon exist at the place where programs look for them.
fn has_mps() -> bool {
    let named = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map(PathBuf::from);
    named.unwrap_or_else(|| PathBuf::from("/tmp/nvidia-mps")).join("control").exists()
}
