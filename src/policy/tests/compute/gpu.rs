//! A simulated GPU: streams in order, kernels of one context at once, contexts in time slices.
//!
//! Times are bare nanoseconds of the GPU's own clock. The ground truth shares no type and no arithmetic with the code under
//! test.

use core::ops::Range;
use std::collections::VecDeque;

/// No instant: for an event that has not passed, or a change that never comes.
pub const NEVER: u64 = u64::MAX;

#[derive(Debug, Clone, Copy)]
enum Item {
    Kernel(u64),
    Event(usize),
}

#[derive(Debug, Clone, Default)]
struct Stream {
    items: VecDeque<Item>,
    /// The instant until which events occupy the stream. A kernel behind them waits.
    ready: u64,
}

#[derive(Debug, Default)]
struct Context {
    streams: Vec<Stream>,
    /// The ground truth: time in which a kernel of the context ran, or waited only for an event.
    busy: u64,
    /// Duration of the context's kernels, each counted by itself, without waits for events.
    work: u64,
}

#[derive(Debug)]
pub struct Gpu {
    clock: u64,
    contexts: Vec<Context>,
    /// The contexts of each client.
    clients: Vec<Range<usize>>,
    events: Vec<u64>,
    /// The context that runs, or the last one that ran.
    owner: usize,
    slice_end: u64,
    resume: u64,
    slice: u64,
    switch: u64,
    /// Time for which an event occupies its stream, from the instant that it records.
    pub event_time: u64,
    /// True if a context without competitors begins another time slice when its own is over. Others then wait for the end of
    /// that time slice.
    pub renews: bool,
    /// True if a context that returns begins another time slice although no other context had one in between.
    pub restarts: bool,
    /// True if an event passes only in a time slice of its context, even if no work is before it.
    pub waits: bool,
    /// Sum of the times of switches between contexts.
    pub switching: u64,
}

impl Gpu {
    pub fn new(slice: u64, switch: u64) -> Self {
        Self {
            clock: 0,
            contexts: Vec::new(),
            clients: Vec::new(),
            events: Vec::new(),
            owner: 0,
            slice_end: 0,
            resume: 0,
            slice,
            switch,
            event_time: 0,
            renews: false,
            restarts: false,
            waits: false,
            switching: 0,
        }
    }

    /// Adds a client. Its streams belong to its contexts in turn.
    pub fn client(&mut self, streams: usize, contexts: usize) -> usize {
        let first = self.contexts.len();
        let context = || Context { streams: vec![Stream::default(); streams], busy: 0, work: 0 };
        self.contexts.extend((0..contexts).map(|_| context()));
        self.clients.push(first..self.contexts.len());
        self.clients.len() - 1
    }

    /// Returns the context of a stream.
    fn context(&self, client: usize, stream: usize) -> usize {
        let own = &self.clients[client];
        own.start + stream % own.len()
    }

    fn own(&self, client: usize) -> &[Context] {
        &self.contexts[self.clients[client].clone()]
    }

    /// Returns true if the client runs, or was the last one that ran.
    pub fn is_owner(&self, client: usize) -> bool {
        self.clients[client].contains(&self.owner)
    }

    pub fn busy(&self, client: usize) -> u64 {
        self.own(client).iter().map(|context| context.busy).sum()
    }

    pub fn work(&self, client: usize) -> u64 {
        self.own(client).iter().map(|context| context.work).sum()
    }

    pub fn depth(&self, client: usize, stream: usize) -> usize {
        self.contexts[self.context(client, stream)].streams[stream].items.len()
    }

    /// Returns true if no work of the client is queued or runs.
    pub fn is_idle(&self, client: usize) -> bool {
        self.own(client).iter().flat_map(|context| &context.streams).all(|stream| stream.items.is_empty())
    }

    /// Returns the instant at which the event passed, by the GPU's clock. [`NEVER`]: it has not passed.
    pub fn event(&self, event: usize) -> u64 {
        self.events[event]
    }

    pub fn kernel(&mut self, client: usize, stream: usize, duration: u64) {
        let context = self.context(client, stream);
        if self.restarts && context == self.owner && self.shortest(context).is_none() {
            self.slice_end = self.clock + self.slice;
        }
        self.contexts[context].streams[stream].items.push_back(Item::Kernel(duration.max(1)));
        self.choose();
    }

    pub fn record(&mut self, client: usize, stream: usize) -> usize {
        let context = self.context(client, stream);
        self.events.push(NEVER);
        let event = self.events.len() - 1;
        self.contexts[context].streams[stream].items.push_back(Item::Event(event));
        if self.waits {
            self.choose();
        }
        if !self.waits || (context == self.owner && self.clock >= self.resume) {
            self.pass_events(context);
        }
        event
    }

    /// Removes a client whose process died.
    pub fn remove(&mut self, client: usize) {
        let own = &mut self.contexts[self.clients[client].clone()];
        own.iter_mut().flat_map(|context| &mut context.streams).for_each(|stream| stream.items.clear());
        self.choose();
    }

    /// Returns the instant at which the next kernel or the next time slice ends.
    pub fn next(&self) -> u64 {
        let Some(left) = self.shortest(self.owner) else {
            return NEVER;
        };
        if self.resume > self.clock {
            return self.resume;
        }
        let end = self.clock + left;
        if self.others_wait() { end.min(self.slice_end.max(self.clock + 1)) } else { end }
    }

    /// Runs until an instant.
    pub fn advance(&mut self, to: u64) {
        while self.clock < to {
            let step = self.next().min(to);
            if self.clock >= self.resume {
                self.run(step - self.clock);
            }
            self.clock = step;
            if !self.waits || self.clock >= self.resume {
                self.pass_events(self.owner);
            }
            self.choose();
        }
    }

    fn run(&mut self, time: u64) {
        let context = &mut self.contexts[self.owner];
        let mut ran = false;
        for stream in &mut context.streams {
            if let Some(Item::Kernel(left)) = stream.items.front_mut() {
                ran = true;
                let time = time.saturating_sub(stream.ready.saturating_sub(self.clock));
                context.work += time;
                *left -= time;
                if *left == 0 {
                    stream.items.pop_front();
                }
            }
        }
        context.busy += if ran { time } else { 0 };
    }

    fn pass_events(&mut self, context: usize) {
        for stream in &mut self.contexts[context].streams {
            while let Some(Item::Event(event)) = stream.items.front() {
                let passes = stream.ready.max(self.clock);
                self.events[*event] = passes;
                stream.ready = passes + self.event_time;
                stream.items.pop_front();
            }
        }
    }

    /// Ends the owner's time slice if its end has come.
    fn choose(&mut self) {
        let idle = self.shortest(self.owner).is_none();
        if !idle && (self.clock < self.slice_end || !self.others_wait()) {
            if self.renews && self.clock >= self.slice_end {
                self.slice_end += (1 + (self.clock - self.slice_end) / self.slice) * self.slice;
            }
            return;
        }
        let count = self.contexts.len();
        let next =
            (1..count).map(|by| (self.owner + by) % count).find(|other| self.shortest(*other).is_some());
        if let Some(next) = next {
            self.owner = next;
            self.resume = self.clock + self.switch;
            self.switching += self.switch;
            self.slice_end = self.resume + self.slice;
        } else if !idle {
            self.slice_end = self.clock + self.slice;
        }
    }

    fn others_wait(&self) -> bool {
        (0..self.contexts.len()).any(|other| other != self.owner && self.shortest(other).is_some())
    }

    fn shortest(&self, context: usize) -> Option<u64> {
        let heads = self.contexts.get(context)?.streams.iter();
        heads
            .filter_map(|stream| match stream.items.front() {
                Some(Item::Kernel(left)) => Some(stream.ready.saturating_sub(self.clock) + *left),
                Some(Item::Event(_)) if self.waits => Some(0),
                _ => None,
            })
            .min()
    }
}
