//! Launches inside the driver, and the batches around them.

use gpuslice_policy::compute::limiter::overdraft;
use gpuslice_policy::compute::limiter::settlement::Settlement;
use gpuslice_policy::compute::measuring::batch::{Batch, OLDEST_BATCH, Spell};
use gpuslice_policy::compute::measuring::event_clock::AT_FIRST;
use gpuslice_policy::compute::measuring::when_alone::{self, Timing};
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

use crate::gpu::Gpu;
use crate::program::Kind;
use crate::shim::{Paid, Shim, TimedBatch};

impl Shim {
    /// Enters the driver with a paid launch. Batches are opened and closed.
    pub fn enter(&mut self, kind: &Kind, paid: &Paid, stream: usize, now: Monotonic, gpu: &mut Gpu) {
        // The wait of this process itself was inside the driver's call.
        self.left = now;
        if self.nvml_only.is_some() {
            return;
        }
        let gap = self.outside - self.launched[stream];
        let long = when_alone::long(kind.graph, self.cost.get());
        let mut timing = Timing::of(paid.is_known.then_some(&paid.estimate), long, gap);
        let may_be_empty = || {
            self.empty[stream].is_none()
                && self.spells[stream].as_ref().is_some_and(|(since, _, spell)| {
                    let batch = self.open[stream].as_ref().map(|open| &open.batch);
                    spell.may_have_ended(batch, now.since(*since), 2 * paid.estimate.duration)
                })
        };
        if timing == Timing::Batched {
            if !self.sampler.is_due(&paid.estimate) {
                self.sampler.passes();
            } else if self.sampler.launch(&paid.estimate, may_be_empty) {
                timing = Timing::Single;
            }
        }
        // Otherwise batches of streams that take turns would overlap although their kernels do not.
        for other in (0..self.open.len()).filter(|other| *other != stream) {
            if self.empty[other].is_some() {
                self.close(other, now, gpu);
            }
        }
        let is_old = self.open[stream].as_ref().is_some_and(|open| now.since(open.opened) >= OLDEST_BATCH);
        if timing == Timing::Single || is_old {
            self.close(stream, now, gpu);
        }
        if self.open[stream].is_none() {
            self.record(stream, timing, now, gpu);
            self.open[stream].as_mut().unwrap().known_idle = self.empty[stream].take().is_some();
        } else if self.empty[stream].is_none() {
            self.open[stream].as_mut().unwrap().batch.add_idle_between(gap);
        }
    }

    /// Leaves the driver, which has submitted the launch to the GPU.
    pub fn leave(
        &mut self,
        kind: &Kind,
        paid: &Paid,
        (stream, truth): (usize, GpuTime),
        now: Monotonic,
        gpu: &mut Gpu,
    ) {
        if self.nvml_only.is_some() {
            self.launches += 1;
            return;
        }
        let open = self.open[stream].as_mut().unwrap();
        (self.launched[stream], self.last[stream]) = (self.outside, now);
        let is_idle = open.known_idle || open.opened >= self.until[stream];
        let is_first = self.spells[stream].is_none() && open.batch.is_empty() && is_idle;
        if self.empty[stream].is_some() || is_first {
            self.spells[stream] = Some((now, self.outside, Spell::default()));
        }
        match self.empty[stream].take() {
            Some(since) => open.batch.add_idle_between(now.since(since)),
            None if open.batch.is_empty() => {
                let delay = if open.known_idle {
                    when_alone::delay(open.opened.since(self.closed[stream]), self.cost.get())
                } else {
                    WallTime::ZERO
                };
                open.batch.set_idle_before_first(now.since(open.opened) - delay);
            }
            None => {}
        }
        if !paid.is_known {
            self.unknown.add(&kind.key);
            open.is_unknown = true;
        }
        open.truth += truth;
        (self.left, self.entering) = (now, GpuTime::ZERO);
        self.launches += 1;
        if open.batch.add(&kind.key, &paid.estimate) {
            self.close(stream, now, gpu);
        }
    }

    /// Records that the host enters the driver. It was outside until now.
    pub fn enters(&mut self, now: Monotonic) {
        self.outside += now.since(self.left);
        self.left = now;
    }

    /// Records that the host returns from a wait for a stream.
    pub fn waited(&mut self, stream: usize, now: Monotonic) {
        // The other streams may have been empty during the whole wait.
        let inside = now.since(self.left);
        self.outside += inside;
        self.left = now;
        self.empty[stream] = Some(now);
        let spell = self.spells[stream].take();
        if let Some(open) = &mut self.open[stream] {
            let all = spell.map(|(since, outside, spell)| {
                spell.left(now.since(since) - (self.launched[stream] - outside))
            });
            open.batch.host_synchronised(all.unwrap_or(inside));
        }
        self.launched[stream] += inside;
    }

    fn record(&mut self, stream: usize, timing: Timing, now: Monotonic, gpu: &mut Gpu) {
        let start = gpu.record(self.client, stream);
        self.events += 2;
        self.open[stream] = Some(TimedBatch {
            batch: Batch::open(timing, self.cost.get()),
            context: stream % self.contexts,
            start,
            end: 0,
            opened: now,
            is_unknown: false,
            known_idle: false,
            settlement: Settlement::new(GpuTime::ZERO),
            charged_to: Monotonic::BEGIN,
            progress: WallTime::ZERO,
            truth: GpuTime::ZERO,
        });
    }

    fn close(&mut self, stream: usize, now: Monotonic, gpu: &mut Gpu) {
        if self.open[stream].is_none() {
            return;
        }
        if let (Some((since, outside, spell)), Some(open)) =
            (&mut self.spells[stream], &mut self.open[stream])
        {
            let inside = self.last[stream].since(*since) - (self.launched[stream] - *outside);
            spell.close(&mut open.batch, inside);
        }
        match self.empty[stream] {
            Some(since) => self.open[stream].as_mut().unwrap().batch.close(now.since(since)),
            None => {
                self.enters(now);
                let idle = self.outside - self.launched[stream];
                self.open[stream].as_mut().unwrap().batch.close(idle);
            }
        }
        let mut open = self.open[stream].take().unwrap();
        open.end = gpu.record(self.client, stream);
        self.closed[stream] = now;
        if !core::mem::replace(&mut self.is_calibrated, true) {
            self.at_first = (0..AT_FIRST).map(|_| gpu.record(self.client, stream)).collect();
        }
        open.settlement = Settlement::new(open.batch.prepaid());
        self.until[stream] = overdraft::done(self.until[stream], open.opened, open.batch.predicted());
        self.queued_work.add(open.batch.prepaid());
        self.ends = self.ends.max(now) + open.batch.prepaid().wall_if_alone();
        self.pending[stream].push_back(open);
    }

    pub fn close_all(&mut self, now: Monotonic, gpu: &mut Gpu) {
        (0..self.open.len()).for_each(|stream| self.close(stream, now, gpu));
        self.spells.fill(None);
    }
}
