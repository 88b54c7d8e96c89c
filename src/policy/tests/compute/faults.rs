//! Faults of a world: changes of the rate limit, deaths, stops, clock jumps and NVML's samples.

use gpuslice_policy::compute::attribution::nvml_windows::Sample;
use gpuslice_policy::compute::limiter::refund;
use gpuslice_policy::compute::limiter::token_bucket::RateLimit;
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

use crate::world::{Phase, Process, World};

/// A fault of the world.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// The rate limit of a slice changes.
    RateLimit(usize, RateLimit),
    /// A process is killed.
    Kill(usize),
    /// Other processes notice the death and reclaim.
    Reap(usize),
    /// A process is stopped for a time.
    Stop(usize, WallTime),
    /// The monotonic clock jumps. The GPU's clock does not.
    Jump(WallTime),
}

/// Time between two requests to NVML.
const ASK_EVERY: WallTime = WallTime::from_millis(100);

/// NVML's view of the GPU.
pub struct Sampler {
    pub next: Monotonic,
    pub from: Monotonic,
    /// Busy time of all clients at the end of the last window.
    pub busy: Vec<u64>,
    pub due: Vec<(Monotonic, Vec<Sample>)>,
}

impl World {
    pub fn apply(&mut self, fault: Fault) {
        match fault {
            Fault::RateLimit(slice, rate_limit) => {
                self.watch.counts.changes += 1;
                self.slices[slice].change(rate_limit, self.now);
                self.wake_sleepers(slice);
            }
            Fault::Jump(by) => {
                self.now += by;
                self.clock_offset += by;
                self.watch.jumped(by, self.now);
            }
            Fault::Stop(me, time) => {
                let process = &mut self.processes[me];
                for at in [&mut process.wake, &mut process.tick] {
                    *at = if *at == Monotonic::NEVER { *at } else { (*at).max(self.now + time) };
                }
                self.watch.stopped(me, self.now + time);
            }
            Fault::Kill(me) => {
                let process = &mut self.processes[me];
                self.watch.counts.deaths += u64::from(process.is_alive());
                (process.wake, process.tick) = (Monotonic::NEVER, Monotonic::NEVER);
                process.killed_at = self.now;
                process.phase = Phase::Dead;
                self.gpu.remove(process.client);
            }
            Fault::Reap(me) => self.reap(me),
        }
    }

    fn reap(&mut self, me: usize) {
        let process = &mut self.processes[me];
        if process.is_alive() || process.reaped {
            return;
        }
        let slice = &mut self.slices[process.slice];
        slice.asks[me].requested = GpuTime::ZERO;
        let outstanding = core::mem::take(&mut process.shim.outstanding);
        let rest = refund::on_death(
            outstanding,
            refund::Work::Predicted,
            process.shim.settled_at,
            process.killed_at,
        );
        let unmeasured = process.shim.unmeasured();
        slice.settle(rest, self.now);
        slice.lost += unmeasured as i128 + i128::from(rest.nanos());
        process.reaped = true;
        let at = process.slice;
        self.wake_sleepers(at);
    }

    pub fn sample(&mut self) {
        while let Some((_, samples)) = self.sampler.due.first().filter(|(at, _)| *at <= self.now).cloned() {
            self.sampler.due.remove(0);
            for (me, sample) in samples.iter().enumerate() {
                let at = self.processes[me].slice;
                let own = self.processes.iter().map(|process| process.slice == at);
                let named = own.zip(&samples).find(|(is_own, sample)| *is_own && sample.processes > 0);
                self.settle_by_nvml(me, *sample, *named.map_or(sample, |(_, sample)| sample));
            }
        }
        if self.sampler.next <= self.now {
            let (window, lag) = self.machine.nvml;
            let busy: Vec<u64> = self.processes.iter().map(|process| self.gpu.busy(process.client)).collect();
            let used = busy.iter().sum::<u64>() - self.sampler.busy.iter().sum::<u64>();
            // This is as a driver does it: a window names one process, and gives it the whole use of the GPU.
            let is_named = |process: &Process| self.gpu.is_owner(process.client) && used > 0;
            let samples = self.processes.iter().map(|process| self.told(is_named(process), used)).collect();
            let asked = self.chance.span(ASK_EVERY);
            self.sampler.due.push((self.now + lag + asked, samples));
            (self.sampler.busy, self.sampler.from) = (busy, self.now);
            self.sampler.next = self.now + window;
        }
    }

    /// Returns NVML's sample of a process: the use of the GPU in whole percent, rounded down, if the window names the process.
    fn told(&self, is_named: bool, used: u64) -> Sample {
        let (from, to) = (self.sampler.from, self.now);
        let total = u32::try_from(used * 100 / to.since(from).nanos().max(1)).unwrap();
        let percent = if is_named { total } else { 0 };
        Sample { from, to, percent, total, processes: u32::from(is_named) }
    }
}
