//! A program: launches, waits and host work.

use gpuslice_policy::compute::cost::estimate::{Key, LaunchShape};
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

use crate::chance::Chance;

/// A kind of kernel or graph.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub key: Key,
    pub graph: bool,
    pub duration: GpuTime,
    /// Variation of a launch's duration, in thousandths of it.
    pub jitter: u64,
}

impl Kind {
    pub fn kernel(function: u64, duration: GpuTime) -> Self {
        let shape = LaunchShape {
            function,
            grid: [1 + (duration.nanos() / 1000) as u32, 1, 1],
            block: [256, 1, 1],
            shared: 0,
        };
        Self { key: Key::kernel(&shape), graph: false, duration, jitter: 20 }
    }

    pub fn graph(executable: u64, duration: GpuTime) -> Self {
        Self { key: Key::graph(executable), graph: true, duration, jitter: 20 }
    }

    /// Returns the most by which a launch differs from the duration.
    fn spread(&self) -> GpuTime {
        (self.jitter * self.duration).part(1000)
    }
}

/// The next action of a host.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    Launch {
        stream: usize,
        kind: Kind,
        duration: GpuTime,
    },
    /// Waits for a stream, inside the driver.
    Sync(usize),
    /// Works on the host until an instant.
    Until(Monotonic),
}

#[derive(Debug, Clone)]
pub struct Program {
    pub kinds: Vec<Kind>,
    pub streams: usize,
    /// Number of contexts. The streams belong to them in turn.
    pub contexts: usize,
    /// Number of launches between waits; 0 for never.
    pub sync_every: u64,
    /// Mean host time between launches.
    pub think: WallTime,
    /// Number of launches of a request, and the mean interval of requests. The program waits for the end of each request.
    pub requests: Option<(u64, WallTime)>,
    /// Number of launches after which kernels take three times as long; 0 for never.
    pub slower_after: u64,
    state: State,
}

#[derive(Debug, Clone, Default)]
struct State {
    launches: u64,
    since_sync: u64,
    thought: bool,
    arrival: Monotonic,
    in_request: u64,
    /// Time from arrival to end of each request.
    latencies: Vec<WallTime>,
}

impl Program {
    pub fn new(kinds: Vec<Kind>) -> Self {
        Self {
            kinds,
            streams: 1,
            contexts: 1,
            sync_every: 0,
            think: WallTime::ZERO,
            requests: None,
            slower_after: 0,
            state: State::default(),
        }
    }

    pub fn sync(self, every: u64) -> Self {
        Self { sync_every: every, ..self }
    }

    pub fn streams(self, streams: usize) -> Self {
        Self { streams, ..self }
    }

    /// Gives the program contexts with one stream each.
    pub fn contexts(self, contexts: usize) -> Self {
        Self { streams: contexts, contexts, ..self }
    }

    pub fn think(self, mean: WallTime) -> Self {
        Self { think: mean, ..self }
    }

    pub fn slower_after(self, launches: u64) -> Self {
        Self { slower_after: launches, ..self }
    }

    pub fn requests(self, mean: WallTime, launches: u64) -> Self {
        Self { requests: Some((launches, mean)), ..self }
    }

    /// Sets the arrival of the first request.
    pub fn starting(mut self, at: Monotonic) -> Self {
        self.state.arrival = at;
        self
    }

    /// Returns the latency below which `percent` of a hundred requests stay. Zero if no request has ended.
    pub fn latency(&self, percent: usize) -> WallTime {
        let mut latencies = self.state.latencies.clone();
        latencies.sort_unstable();
        latencies.get(latencies.len() * percent / 100).copied().unwrap_or_default()
    }

    pub fn latencies(&self) -> &[WallTime] {
        &self.state.latencies
    }

    /// Returns the longest kernel that the program may launch.
    pub fn longest(&self) -> GpuTime {
        self.kinds.iter().map(|kind| kind.duration + kind.spread()).max().unwrap_or_default()
    }

    /// Returns the mean duration of the program's launches.
    pub fn mean(&self) -> GpuTime {
        let all = self.kinds.iter().map(|kind| kind.duration).fold(GpuTime::ZERO, GpuTime::saturating_add);
        all.part(self.kinds.len() as u64)
    }

    pub fn next(&mut self, now: Monotonic, chance: &mut Chance) -> Step {
        if let Some((launches, mean)) = self.requests {
            return self.request(now, (launches, mean), chance);
        }
        if self.sync_every > 0 && self.state.since_sync >= self.sync_every {
            self.state.since_sync = 0;
            return Step::Sync(self.stream());
        }
        if !self.think.is_zero() && !self.state.thought {
            self.state.thought = true;
            return Step::Until(now + chance.wait(self.think));
        }
        self.launch(chance)
    }

    fn request(&mut self, now: Monotonic, (launches, mean): (u64, WallTime), chance: &mut Chance) -> Step {
        if self.state.in_request > launches {
            self.state.latencies.push(now.since(self.state.arrival));
            self.state.arrival += chance.wait(mean);
            self.state.in_request = 0;
        }
        if self.state.in_request == 0 && self.state.arrival > now {
            return Step::Until(self.state.arrival);
        }
        self.state.in_request += 1;
        if self.state.in_request > launches { Step::Sync(0) } else { self.launch(chance) }
    }

    fn launch(&mut self, chance: &mut Chance) -> Step {
        self.state.launches += 1;
        self.state.since_sync += 1;
        self.state.thought = false;
        let kind = chance.of(&self.kinds);
        let shortest = kind.duration - kind.spread();
        let duration = shortest + chance.span(2 * kind.spread());
        let is_slower = self.slower_after > 0 && self.state.launches > self.slower_after;
        let duration = if is_slower { 3 * duration } else { duration };
        Step::Launch { stream: self.stream(), kind, duration }
    }

    fn stream(&self) -> usize {
        (self.state.launches % self.streams as u64) as usize
    }
}
