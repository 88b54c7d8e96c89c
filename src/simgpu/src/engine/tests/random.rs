//! Tests properties of random schedules.

use super::*;

/// A small random generator (splitmix64). The same seed gives the same schedule on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    /// Returns a number below a random power of two. So small numbers are as frequent as large ones.
    fn below_power(&mut self, powers: u64) -> u64 {
        let sides = 1 << self.roll(powers);
        self.roll(sides)
    }
}

/// A schedule in progress.
struct World {
    d: Box<EngineState>,
    clients: Vec<ClientId>,
    streams: Vec<(ClientId, StreamId)>,
    /// The records of each stream, in the order in which they were enqueued.
    records: Vec<(StreamId, EventId)>,
    now: u64,
}

impl World {
    fn new(dice: &mut Dice) -> Self {
        let mut d = device();
        let config = DeviceConfig {
            switch_ns: [0, 50 * US, 300 * US][dice.roll(3) as usize],
            slice_ns: [200 * US, 2 * MS][dice.roll(2) as usize],
            concurrent: [1, 2, 32][dice.roll(3) as usize],
            event_resolution_ns: 1,
            ..DeviceConfig::DEFAULT
        };
        d.set_config(config, T0);
        let mut world = Self { d, clients: Vec::new(), streams: Vec::new(), records: Vec::new(), now: T0 };
        for pid in 0..1 + dice.roll(4) as u32 {
            let c = world.d.add_client(pid, T0).unwrap();
            world.clients.push(c);
            let legacy = world.d.legacy_stream(c).unwrap();
            world.streams.push((c, legacy));
            for _ in 0..dice.roll(4) {
                let kind = [StreamKind::Blocking, StreamKind::NonBlocking][dice.roll(2) as usize];
                let s = world.d.add_stream(c, kind).unwrap();
                world.streams.push((c, s));
            }
        }
        world
    }

    /// Makes one random call.
    fn step(&mut self, dice: &mut Dice) {
        let (c, s) = self.streams[dice.roll(self.streams.len() as u64) as usize];
        let bytes = dice.roll(5_000_000);
        let occupancy = [10, 300, 500, 1000][dice.roll(4) as usize];
        let work = match dice.roll(12) {
            0..5 => Work::Kernel { ns: dice.below_power(23), occupancy },
            5 => Work::Graph { kernels_ns: dice.roll(MS), nodes: dice.roll(50) as u32, occupancy },
            6 => Work::Fill { bytes: bytes * 1000 },
            7 => Work::Copy { direction: Direction::HostToDevice, bytes },
            8 => Work::Copy { direction: Direction::DeviceToHost, bytes },
            9 if !self.records.is_empty() => {
                let (_, event) = self.records[dice.roll(self.records.len() as u64) as usize];
                Work::Wait(event)
            }
            10 => Work::Marker,
            _ => {
                let event = self.d.add_event(c).unwrap();
                self.records.push((s, event));
                Work::Record(event)
            }
        };
        match self.d.enqueue(s, work, self.now) {
            Ok(_) => {}
            Err(EnqueueError::WouldBlock { retry_at }) => assert!(retry_at > self.now),
            Err(EnqueueError::NoEvent | EnqueueError::NoStream) => panic!("gone"),
        }
        if dice.roll(3) == 0 {
            self.now += dice.below_power(24);
        }
    }

    /// Returns everything that a caller can see of the device.
    fn picture(&mut self) -> impl PartialEq + core::fmt::Debug + use<> {
        let mut clients = Vec::new();
        self.d.each_client(self.now, |c| clients.push(c));
        let device = self.d.device_truth(self.now);
        let (d, now) = (&mut self.d, self.now);
        let events: Vec<_> = self.records.iter().map(|&(_, e)| d.event_status(e, now)).collect();
        let (mut of_device, mut of_processes) = (Vec::new(), Vec::new());
        d.device_samples(now, 0, |s| of_device.push(s));
        d.process_samples(now, 0, |s| of_processes.push(s));
        let spans: Vec<_> = (0..20).map(|i| d.busy_between(None, T0 + i * 7 * MS, now)).collect();
        (clients, device, events, of_device, of_processes, spans)
    }
}

#[test]
fn busy_times_and_idleness_add_up_to_the_time_that_passed() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut w = World::new(&mut dice);
        for _ in 0..400 {
            w.step(&mut dice);
        }
        let mut sum = 0;
        w.d.each_client(w.now, |c| {
            assert!(c.kernel_busy_ns <= c.busy_ns, "seed {seed}");
            sum += c.busy_ns;
        });
        let truth = w.d.device_truth(w.now);
        assert_eq!(sum, truth.busy_ns, "seed {seed}");
        assert!(sum <= w.now - T0, "seed {seed}");
        let whole = w.now / MS * MS;
        let at_whole = w.d.busy_between(None, T0, whole).unwrap();
        assert!(truth.busy_ns - at_whole <= MS, "seed {seed}");
    }
}

#[test]
fn records_of_a_stream_complete_in_the_order_of_the_calls() {
    for seed in 100..160 {
        let mut dice = Dice(seed);
        let mut w = World::new(&mut dice);
        for _ in 0..400 {
            w.step(&mut dice);
        }
        for client in w.clients.clone() {
            w.now = wait(&mut w.d, Target::Client(client), w.now).0;
        }
        for &(_, stream) in &w.streams {
            let own = w.records.iter().filter(|(s, _)| *s == stream);
            let times: Vec<_> = own.map(|&(_, e)| time(&mut w.d, e, w.now).unwrap()).collect();
            assert!(times.is_sorted(), "seed {seed}: {times:?}");
        }
    }
}

#[test]
fn it_does_not_matter_how_often_the_device_is_looked_at() {
    for seed in 200..260 {
        let (mut one, mut other) = (Dice(seed), Dice(seed));
        let (mut w, mut v) = (World::new(&mut one), World::new(&mut other));
        for _ in 0..300 {
            let before = w.now;
            w.step(&mut one);
            v.step(&mut other);
            for part in 1..5 {
                v.d.advance(before + (v.now - before) * part / 5);
            }
        }
        w.now += 100 * MS;
        v.now += 100 * MS;
        assert_eq!(w.picture(), v.picture(), "seed {seed}");
    }
}

#[test]
fn nothing_completes_before_the_foretold_instant() {
    for seed in 300..400 {
        let mut dice = Dice(seed);
        let mut w = World::new(&mut dice);
        for _ in 0..100 {
            w.step(&mut dice);
        }
        for client in w.clients.clone() {
            let mut at = w.now;
            loop {
                match w.d.completion(Target::Client(client), at).unwrap() {
                    Completion::Done => break,
                    Completion::NeedsHost => panic!("seed {seed}"),
                    Completion::NotBefore(instant) => {
                        // One nanosecond earlier, the target is not complete. So the bound is never late.
                        let early = w.d.completion(Target::Client(client), instant - 1).unwrap();
                        assert_ne!(early, Completion::Done, "seed {seed}");
                        at = instant;
                    }
                }
            }
            w.now = at;
        }
    }
}

#[test]
fn the_device_never_idles_while_a_client_has_kernels_to_run() {
    for seed in 400..430 {
        let mut dice = Dice(seed);
        let mut d = plain_device();
        let clients: Vec<_> =
            (0..1 + dice.roll(6) as u32).map(|pid| d.add_client(pid, T0).unwrap()).collect();
        let mut work = 0;
        for _ in 0..300 {
            let c = clients[dice.roll(clients.len() as u64) as usize];
            let s = d.legacy_stream(c).unwrap();
            let ns = dice.below_power(23);
            work += ns;
            d.enqueue(s, kernel(ns), T0).unwrap();
        }
        assert_eq!(d.device_truth(T0 + work - 1).busy_ns, work - 1, "seed {seed}");
        assert_eq!(d.device_truth(T0 + work + S).busy_ns, work, "seed {seed}");
    }
}

#[test]
fn clients_may_die_and_be_repaired_at_any_instant_and_the_sums_still_hold() {
    for seed in 500..560 {
        let mut dice = Dice(seed);
        let mut w = World::new(&mut dice);
        for round in 0..400 {
            w.step(&mut dice);
            if dice.roll(100) == 0 {
                w.d.repair(w.now);
            }
            if round == 200 {
                let dead = w.clients.remove(0);
                w.d.remove_client(dead, w.now).unwrap();
                w.streams.retain(|&(c, _)| c != dead);
                w.records.retain(|&(_, e)| w.d.event_status(e, w.now).is_ok());
                if w.streams.is_empty() {
                    break;
                }
            }
        }
        for client in w.clients.clone() {
            w.now = wait(&mut w.d, Target::Client(client), w.now).0;
        }
        let mut sum = 0;
        w.d.each_client(w.now, |c| {
            assert_eq!(c.queued, 0, "seed {seed}");
            sum += c.busy_ns;
        });
        let truth = w.d.device_truth(w.now);
        assert_eq!(sum + truth.retired_busy_ns, truth.busy_ns, "seed {seed}");
        assert!(truth.busy_ns <= w.now - T0, "seed {seed}");
    }
}
