//! The events of a world in virtual time: hosts, worker threads, samplers and faults around one GPU.

use gpuslice_policy::compute::limiter::token_bucket::{self, RateLimit};
use gpuslice_policy::time::literals::{ms, ns, us};
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

use crate::attribution::Attribution;
use crate::chance::Chance;
use crate::faults::{Fault, Sampler};
use crate::gpu::Gpu;
use crate::nvml_only::NvmlOnly;
use crate::program::{Kind, Program, Step};
use crate::shim::{Paid, Shim, Wait};
use crate::slice::{PLACES, Slice};
use crate::watch::Watch;

pub use crate::machine::{Machine, Meter};

#[derive(Debug, Clone, Copy)]
pub enum Phase {
    Ready,
    /// A launch that waits for admission since an instant.
    Asks {
        launch: Launch,
        since: Monotonic,
        wait: Option<Wait>,
    },
    /// The thread is inside the driver, whose queue is full.
    Full {
        launch: Launch,
        paid: Option<Paid>,
    },
    Inside {
        launch: Launch,
        paid: Option<Paid>,
    },
    /// The thread is inside the driver, which has submitted the work to the GPU.
    Submitted {
        launch: Launch,
        paid: Option<Paid>,
    },
    Syncs(usize),
    Dead,
}

#[derive(Debug, Clone, Copy)]
pub struct Launch {
    stream: usize,
    kind: Kind,
    truth: GpuTime,
}

pub struct Process {
    pub slice: usize,
    pub client: usize,
    pub program: Program,
    /// The program's own random choices. So it does the same with and without a limit.
    chance: Chance,
    pub shim: Shim,
    pub phase: Phase,
    pub wake: Monotonic,
    pub tick: Monotonic,
    /// Number of delayed launches.
    held: u64,
    pub killed_at: Monotonic,
    pub reaped: bool,
}

impl Process {
    pub fn is_alive(&self) -> bool {
        !matches!(self.phase, Phase::Dead)
    }

    /// Returns true if the process's worker is awake.
    pub fn has_worker(&self) -> bool {
        self.is_alive() && (self.shim.is_busy() || matches!(self.phase, Phase::Asks { .. }))
    }

    /// Returns the instant since which the process waits for the word.
    pub fn waits_for_word(&self) -> Option<Monotonic> {
        match self.phase {
            Phase::Asks { wait: Some(Wait::Word(_)), since, .. } => Some(since),
            _ => None,
        }
    }
}

pub struct World {
    pub now: Monotonic,
    /// The host's clock minus the GPU's.
    pub clock_offset: WallTime,
    pub machine: Machine,
    pub gpu: Gpu,
    pub slices: Vec<Slice>,
    pub processes: Vec<Process>,
    pub chance: Chance,
    pub watch: Watch,
    /// True if any slice has a limit.
    pub limited: bool,
    pub faults: Vec<(Monotonic, Fault)>,
    pub sampler: Sampler,
    /// The knowledge of each slice about all slices.
    pub attributions: Vec<Attribution>,
}

impl World {
    /// Makes one program for each process, with the index of its slice.
    pub fn new(
        machine: Machine,
        rate_limits: &[RateLimit],
        programs: Vec<(usize, Program)>,
        seed: u64,
    ) -> Self {
        let now = Monotonic::from_nanos(1 << 44);
        let mut gpu = Gpu::new(machine.slice.nanos(), machine.switch.nanos());
        (gpu.renews, gpu.restarts, gpu.waits) = (machine.renews, machine.rings, machine.waits);
        gpu.event_time = machine.event.nanos();
        let count = programs.len();
        let mut chance = Chance::new(seed);
        let processes: Vec<Process> = programs
            .into_iter()
            .enumerate()
            .map(|(me, (slice, program))| {
                let client = gpu.client(program.streams, program.contexts);
                let mut shim = Shim::new(me, client, program.streams, machine.readings, now);
                shim.contexts = program.contexts;
                shim.nvml_only = (machine.meter == Meter::Nvml).then(NvmlOnly::default);
                let start = now + ns(chance.between(0, 3_000_000));
                Process {
                    slice,
                    client,
                    program: program.starting(start),
                    chance: Chance::new(seed ^ (me as u64 + 1) << 40),
                    shim,
                    phase: Phase::Ready,
                    wake: start,
                    tick: Monotonic::NEVER,
                    held: 0,
                    killed_at: Monotonic::BEGIN,
                    reaped: false,
                }
            })
            .collect();
        let mut slices: Vec<Slice> =
            rate_limits.iter().map(|rate_limit| Slice::new(*rate_limit, count)).collect();
        let (by_events, several) = (machine.meter == Meter::Events, rate_limits.len() > 1);
        let replays = machine.rings && by_events && several;
        slices.iter_mut().for_each(|slice| {
            slice.is_replayed = replays;
            slice.unattributed = several && by_events && !replays;
        });
        let next = if by_events { Monotonic::NEVER } else { now + machine.nvml.0 };
        let attributions = if replays { Attribution::all(rate_limits.len(), now) } else { Vec::new() };
        Self {
            now,
            clock_offset: now.since(Monotonic::BEGIN),
            machine,
            gpu,
            watch: Watch::new(&slices, now, machine.meter == Meter::Nvml),
            slices,
            processes,
            chance,
            limited: true,
            faults: Vec::new(),
            attributions,
            sampler: Sampler { next, from: now, busy: vec![0; count], due: Vec::new() },
        }
    }

    pub fn inject(&mut self, at: Monotonic, fault: Fault) {
        self.faults.push((at, fault));
        self.faults.sort_by_key(|(at, _)| core::cmp::Reverse(*at));
    }

    pub fn used(&self, slice: usize) -> u64 {
        let own = self.processes.iter().filter(|process| process.slice == slice);
        own.map(|process| self.gpu.busy(process.client)).sum()
    }

    /// Returns the durations of a slice's kernels, each counted by itself.
    pub fn work(&self, slice: usize) -> u64 {
        let own = self.processes.iter().filter(|process| process.slice == slice);
        own.map(|process| self.gpu.work(process.client)).sum()
    }

    /// Runs until an instant, or until a check fails.
    pub fn run(&mut self, until: Monotonic) -> Result<(), String> {
        while self.now < until {
            self.step(until);
            self.check()?;
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        let mut watch = core::mem::take(&mut self.watch);
        let result = watch.look(self);
        self.watch = watch;
        result
    }

    /// Advances to the next event, but not beyond `until`, and handles everything that is due: first the GPU, then a fault,
    /// a sample, the looks for attribution, and last the processes.
    fn step(&mut self, until: Monotonic) {
        let gpu = ns::<Monotonic>(self.gpu.next()) + self.clock_offset;
        let never = Monotonic::NEVER;
        let own = self.processes.iter().map(|process| process.wake.min(process.tick)).min().unwrap_or(never);
        let fault = self.faults.last().map_or(never, |(at, _)| *at);
        let sample = self.sampler.due.first().map_or(never, |(at, _)| *at).min(self.sampler.next);
        let look = self.attributions.iter().map(|attribution| attribution.next).min().unwrap_or(never);
        let next = gpu.min(own).min(fault).min(sample).min(look).min(until).max(self.now);
        self.now = next;
        self.gpu.advance((next - self.clock_offset).nanos());
        if gpu <= next {
            self.gpu_moved();
        }
        if fault <= next
            && let Some((_, fault)) = self.faults.pop()
        {
            self.apply(fault);
        }
        if sample <= self.now {
            self.sample();
        }
        if look <= self.now {
            self.attribute_due();
        }
        if own <= self.now {
            for me in 0..self.processes.len() {
                if self.processes[me].tick <= self.now {
                    self.tick(me);
                }
                if self.processes[me].wake <= self.now {
                    self.act(me);
                }
            }
        }
    }

    /// Lets processes that wait inside the driver continue.
    fn gpu_moved(&mut self) {
        for process in &mut self.processes {
            match process.phase {
                Phase::Syncs(stream)
                    if process.wake == Monotonic::NEVER && self.gpu.depth(process.client, stream) == 0 =>
                {
                    process.wake = self.now + self.machine.back;
                }
                Phase::Full { launch, .. }
                    if process.wake == Monotonic::NEVER
                        && self.gpu.depth(process.client, launch.stream) < self.machine.depth =>
                {
                    process.wake = self.now;
                }
                _ => {}
            }
        }
    }

    fn act(&mut self, me: usize) {
        match self.processes[me].phase {
            Phase::Ready => self.begin(me),
            Phase::Asks { launch, since, .. } => self.ask(me, launch, since),
            Phase::Full { launch, paid } => self.enter(me, launch, paid),
            Phase::Inside { launch, paid } => self.submit(me, launch, paid),
            Phase::Submitted { launch, paid } => self.leave(me, launch, paid),
            Phase::Syncs(stream) => {
                self.processes[me].shim.waited(stream, self.now);
                self.processes[me].phase = Phase::Ready;
                self.begin(me);
            }
            Phase::Dead => self.processes[me].wake = Monotonic::NEVER,
        }
    }

    fn begin(&mut self, me: usize) {
        let process = &mut self.processes[me];
        match process.program.next(self.now, &mut process.chance) {
            Step::Until(at) => process.wake = at.max(self.now + WallTime::NANOSECOND),
            Step::Sync(stream) => {
                process.shim.enters(self.now);
                process.phase = Phase::Syncs(stream);
                let done = self.gpu.depth(process.client, stream) == 0;
                process.wake = if done { self.now + self.machine.back } else { Monotonic::NEVER };
            }
            Step::Launch { stream, kind, duration } => {
                process.shim.enters(self.now);
                let launch = Launch { stream, kind, truth: duration };
                self.ask(me, launch, self.now);
            }
        }
    }

    fn ask(&mut self, me: usize, launch: Launch, since: Monotonic) {
        if !self.limited {
            return self.enter(me, launch, None);
        }
        let process = &mut self.processes[me];
        let slice = &mut self.slices[process.slice];
        match process.shim.admit((&launch.kind, launch.stream), since, self.now, slice, &mut self.gpu) {
            Ok(paid) => {
                slice.throttled += self.now.since(since);
                let at = process.slice;
                self.read_prepaid(at);
                self.enter(me, launch, Some(paid));
            }
            Err(wait) => {
                self.watch.waits(&process.phase, wait);
                let late = self.chance.span(self.machine.late);
                process.wake = match wait {
                    Wait::Word(until) | Wait::Unknown(until) | Wait::Queue(until) => until + late,
                };
                process.phase = Phase::Asks { launch, since, wait: Some(wait) };
                self.arm(me);
            }
        }
    }

    fn enter(&mut self, me: usize, launch: Launch, paid: Option<Paid>) {
        let process = &mut self.processes[me];
        if self.gpu.depth(process.client, launch.stream) >= self.machine.depth {
            process.phase = Phase::Full { launch, paid };
            process.wake = Monotonic::NEVER;
            return;
        }
        if let Some(paid) = &paid {
            process.shim.enter(&launch.kind, paid, launch.stream, self.now, &mut self.gpu);
        }
        process.phase = Phase::Inside { launch, paid };
        process.wake = self.now + self.machine.launch;
        self.arm(me);
    }

    fn submit(&mut self, me: usize, launch: Launch, paid: Option<Paid>) {
        let process = &mut self.processes[me];
        self.gpu.kernel(process.client, launch.stream, launch.truth.nanos());
        let (launches, time) = self.machine.held;
        if process.held >= launches {
            return self.leave(me, launch, paid);
        }
        process.held += 1;
        process.phase = Phase::Submitted { launch, paid };
        process.wake = self.now + time;
    }

    fn leave(&mut self, me: usize, launch: Launch, paid: Option<Paid>) {
        let process = &mut self.processes[me];
        if let Some(paid) = &paid {
            let what = (launch.stream, launch.truth);
            process.shim.leave(&launch.kind, paid, what, self.now, &mut self.gpu);
        }
        process.phase = Phase::Ready;
        // After each launch, every program works on the host for a short time.
        process.wake = self.now + ns(300);
        self.arm(me);
    }

    /// Starts the worker thread. It looks once a millisecond while work is in flight.
    fn arm(&mut self, me: usize) {
        let busy = self.processes[me].shim.is_busy();
        let process = &mut self.processes[me];
        if busy && process.tick == Monotonic::NEVER {
            process.tick = self.now + ms(1) + self.chance.span(self.machine.late);
        }
    }

    fn tick(&mut self, me: usize) {
        let process = &mut self.processes[me];
        process.tick = Monotonic::NEVER;
        let at = process.slice;
        let ended = process.shim.poll_events(self.now, &mut self.slices[at], &self.gpu);
        if ended && let Phase::Asks { wait: Some(Wait::Queue(_) | Wait::Unknown(_)), .. } = process.phase {
            process.wake = self.now;
        }
        self.arm(me);
        self.wake_sleepers(at);
        self.read_along(at);
    }

    /// Lets the workers of waiting processes read the ring as often, so that they lose no interval.
    fn read_along(&mut self, at: usize) {
        let slice = &self.slices[at];
        for process in self.processes.iter_mut().filter(|process| process.slice == at && process.has_worker())
        {
            if process.shim.read_to + PLACES / 2 < slice.places {
                process.shim.read(slice.places, self.now, slice);
            }
        }
    }

    pub fn wake_sleepers(&mut self, at: usize) {
        let slice = &mut self.slices[at];
        if !core::mem::take(&mut slice.refunded) {
            return;
        }
        for process in self.processes.iter_mut().filter(|process| process.slice == at) {
            if let Phase::Asks { wait: Some(Wait::Word(until)), .. } = process.phase
                && token_bucket::wakes(until, slice.paid_until, self.now)
            {
                process.wake = process.wake.min(self.now + us(10));
            }
        }
    }
}
