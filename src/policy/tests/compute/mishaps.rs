//! What befalls the world? Changes of terms, deaths, stops, jumps of the clock, and NVML's samples.

use gpuslice_policy::compute::bucket::Terms;
use gpuslice_policy::compute::lease;
use gpuslice_policy::compute::trim::Sample;

use crate::gpu::NEVER;
use crate::world::{Meter, Phase, Process, World};

/// Something that befalls the world.
#[derive(Debug, Clone, Copy)]
pub enum Mishap {
    /// A slice's terms are changed.
    Terms(usize, Terms),
    /// A process is killed.
    Kill(usize),
    /// The others find out and clear up.
    Reap(usize),
    /// A process is stopped for so long.
    Stop(usize, u64),
    /// The monotonic clock jumps, the GPU's does not.
    Jump(u64),
}

/// What NVML knows.
pub struct Sampler {
    pub next: u64,
    pub from: u64,
    /// Of all clients, at the last window's end.
    pub busy: Vec<u64>,
    pub due: Vec<(u64, Vec<Told>)>,
}

/// A sample, and what it should have said.
#[derive(Debug, Clone, Copy)]
pub struct Told {
    pub sample: Sample,
    /// For how long the GPU was busy with what it tells of.
    pub busy: u64,
    pub is_lie: bool,
}

impl World {
    pub fn strike(&mut self, mishap: Mishap) {
        match mishap {
            Mishap::Terms(slice, terms) => {
                self.watch.counts.changes += 1;
                self.slices[slice].change(terms, self.now);
                self.wake_sleepers(slice);
            }
            Mishap::Jump(by) => {
                self.now += by;
                self.ahead += by;
                self.watch.jumped(by, self.now);
            }
            Mishap::Stop(me, time) => {
                let process = &mut self.processes[me];
                for at in [&mut process.wake, &mut process.tick] {
                    *at = if *at == NEVER { NEVER } else { (*at).max(self.now + time) };
                }
                self.watch.stopped(me, self.now + time);
            }
            Mishap::Kill(me) => {
                let process = &mut self.processes[me];
                self.watch.counts.deaths += u64::from(process.is_alive());
                (process.wake, process.tick, process.killed_at) = (NEVER, NEVER, self.now);
                process.phase = Phase::Dead;
                self.gpu.remove(process.client);
            }
            Mishap::Reap(me) => self.reap(me),
        }
    }

    fn reap(&mut self, me: usize) {
        let process = &mut self.processes[me];
        if process.is_alive() || process.reaped {
            return;
        }
        let slice = &mut self.slices[process.slice];
        slice.asks[me].wants = 0;
        let outstanding = core::mem::take(&mut process.shim.outstanding);
        let rest =
            lease::estate(outstanding, lease::Work::Predicted, process.shim.settled_at, process.killed_at);
        let unmeasured = process.shim.unmeasured();
        slice.settle(rest, self.now);
        slice.lost += unmeasured as i128 + i128::from(rest);
        process.reaped = true;
        let at = process.slice;
        self.wake_sleepers(at);
    }

    pub fn sample(&mut self) {
        while let Some((_, samples)) = self.sampler.due.first().filter(|(at, _)| *at <= self.now).cloned() {
            self.sampler.due.remove(0);
            for (at, told) in samples.into_iter().enumerate() {
                match self.machine.meter {
                    Meter::Events => self.learn(at, told),
                    Meter::Nvml => self.settle_blindly(at, told.sample),
                }
            }
        }
        if self.sampler.next <= self.now
            && let Some((window, lag)) = self.machine.nvml
        {
            let busy: Vec<u64> = self.processes.iter().map(|process| self.gpu.busy(process.client)).collect();
            let samples = match self.machine.meter {
                Meter::Events => (0..self.slices.len())
                    .map(|slice| self.look(&busy, |_, process| process.slice == slice))
                    .collect(),
                Meter::Nvml => (0..busy.len()).map(|me| self.look(&busy, |other, _| other == me)).collect(),
            };
            self.sampler.due.push((self.now + lag, samples));
            (self.sampler.busy, self.sampler.from) = (busy, self.now);
            self.sampler.next = self.now + window;
        }
    }

    /// What NVML says of processes: whole percents, cut off.
    fn look(&mut self, busy: &[u64], own: impl Fn(usize, &Process) -> bool) -> Told {
        let (from, to) = (self.sampler.from, self.now);
        let mut sample = Sample { from, to, percent: 0, processes: 0, others: false };
        let mut ran = 0;
        let both = busy.iter().zip(&self.sampler.busy);
        for (me, (process, (busy, before))) in self.processes.iter().zip(both).enumerate() {
            let percent = u32::try_from((busy - before) * 100 / (to - from).max(1)).unwrap();
            if !own(me, process) {
                sample.others |= busy > before;
            } else if busy > before {
                ran += busy - before;
                (sample.percent, sample.processes) = (sample.percent + percent, sample.processes + 1);
            }
        }
        let is_lie = self.machine.lies > 0 && self.chance.one_in(self.machine.lies);
        if is_lie {
            sample.percent = self.chance.between(0, 150) as u32;
        }
        Told { sample, busy: ran, is_lie }
    }

    /// Who of a slice asks NVML: the first whose helper is awake, since something is under way or waits.
    pub fn elected(&self, at: usize) -> Option<usize> {
        let alive = |me: &usize| self.processes[*me].slice == at && self.processes[*me].is_alive();
        let members = || (0..self.processes.len()).filter(alive);
        members().find(|me| self.processes[*me].has_helper()).or_else(|| members().next())
    }

    /// Whoever of the slice is elected compares the sample with what was covered.
    fn learn(&mut self, at: usize, told: Told) {
        let sample = told.sample;
        let Some(elected) = self.elected(at) else { return };
        let (slice, process) = (&mut self.slices[at], &mut self.processes[elected]);
        process.shim.read(slice.places, self.now, slice);
        let covered = process.shim.history.covered(sample.from, sample.to);
        let (before, [.., last]) = (slice.factor, slice.trim.words());
        slice.trim.learn(&sample, covered);
        slice.factor = slice.trim.factor();
        let [.., now] = slice.trim.words();
        if now > last {
            let late = u64::from(self.now > sample.to);
            self.watch.counts.late_samples += late;
            self.watch.counts.trimmed += if sample.others { late } else { 0 };
            self.watch.counts.lies += u64::from(told.is_lie && slice.factor != before);
        }
        let has_holes = process.shim.has_holes_until > sample.from;
        let mut watch = core::mem::take(&mut self.watch);
        watch.learned(self, at, &told, (!has_holes).then_some(covered));
        self.watch = watch;
    }
}
