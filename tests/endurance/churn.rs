//! Slices stay whole while programs come and go, are killed and fork, and while limits change.
//!
//! The ordinary run takes a few seconds. `GPUSLICE_TEST_CHURN` sets the seconds, e.g. 86400 (`ci/churn.sh`), and makes the run
//! fail if a slice stalls for longer than the target. `GPUSLICE_TEST_SEED` repeats the random choices.

use crate::support::bench::{Bench, Host};
use crate::support::chance::{Chance, seed, variable};
use crate::support::living::Living;
use crate::support::{compiler, machine, monotonic};
use gpuslice_region::{Limits, Monitor, Trust};
use serde_json::Value;
use simgpu::state::file::Shared;
use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Seconds of an ordinary run.
const SECONDS: u64 = 10;
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// Interval between two calms. In a calm all guests have ended, and only the memory of the residents may be left.
const CALM: Duration = Duration::from_secs(4);
/// Time in which everything that a dead process held must be available again.
const SOON: Duration = Duration::from_secs(1);
/// Longest time that a slice may stand still beyond the debt of its ledger, in milliseconds.
const STALL: u64 = 250;
/// Mappings of regions: two of the process's own, and one of each slice if this process reads them all.
const MAPPINGS: usize = 2 + KINDS.len();
/// KiB that a resident may grow by, in a run of any length: estimates of launches, buffers of threads.
const MORE_KIB: u64 = 4096;
/// Guests of a slice: programs that come and go at the same time.
const GUESTS: usize = 3;
const MIB: u64 = 1 << 20;
/// Quotas that a slice has in turn.
const QUOTAS: [u64; 3] = [48 * MIB, 64 * MIB, 96 * MIB];

/// Kind of a slice: its settings, and the shares that it has in turn, in percent.
struct Kind {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
    shares: [u32; 3],
}

const KINDS: [Kind; 3] = [
    Kind { name: "steady", settings: &[], shares: [30, 20, 40] },
    Kind { name: "bursts", settings: &[("GPU_CORE_BURST", "latency")], shares: [20, 10, 30] },
    Kind {
        name: "rest",
        settings: &[("GPU_CORE_POLICY", "best-effort"), ("GPU_PRIORITY", "low")],
        shares: [100, 100, 50],
    },
];

/// Number of events of each kind.
#[derive(Debug, Default)]
struct Count {
    started: u64,
    killed: u64,
    terminated: u64,
    ended: u64,
    changes: u64,
    calms: u64,
}

/// A slice with a resident program that stays, and the stalls of that program.
struct Slice<'a> {
    kind: &'a Kind,
    monitor: Monitor,
    /// Program that always has work.
    resident: Living,
    guests: Vec<Guest>,
    /// Last millisecond in which the resident ran, the millisecond until which the slice owed since, and the longest stall.
    ran: u64,
    owed_until: u64,
    stall: u64,
    /// Footprint of the resident at the first calm.
    at_first: Option<Footprint>,
}

/// Resources of a process that must not grow.
#[derive(Debug, Clone, Copy)]
struct Footprint {
    descriptors: usize,
    mappings: usize,
    threads: usize,
    /// Memory of the process's own.
    kib: u64,
}

struct Guest {
    living: Living,
    dies_at: Instant,
    signal: Option<libc::c_int>,
}

impl Footprint {
    fn of(pid: u32) -> Self {
        let count = |part: &str| fs::read_dir(format!("/proc/{pid}/{part}")).unwrap().count();
        let text = |part: &str| fs::read_to_string(format!("/proc/{pid}/{part}")).unwrap();
        let status = text("status");
        let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        Self {
            descriptors: count("fd"),
            mappings: text("maps").lines().filter(|line| line.contains("/region-")).count(),
            threads: count("task"),
            kib: kib.trim().trim_end_matches(" kB").parse().unwrap(),
        }
    }
}

impl<'a> Slice<'a> {
    fn start(bench: &'a Bench, kind: &'a Kind) -> Self {
        let host = bench.program(&compiler::plain("load"), &["1e9", "100000"]);
        let mut resident = settled(host, kind).start();
        assert_eq!(resident.hear().as_deref(), Some("ready"));
        let monitor = Monitor::open(&bench.region_of(kind.name), Trust::AnyOwner)
            .unwrap()
            .expect("the resident has made it");
        resident.order("");
        let guests = Vec::new();
        Self { kind, monitor, resident, guests, ran: 0, owed_until: 0, stall: 0, at_first: None }
    }

    fn invite(&mut self, bench: &Bench, chance: &mut Chance) {
        let calls = [0, 20 + chance.below(400)][chance.index(2)];
        let words =
            [chance.below(1 << 20), 1 + chance.below(4), calls, chance.below(4)].map(|word| word.to_string());
        let host = bench.host("churn", &words.each_ref().map(String::as_str));
        let living = settled(host, self.kind).start();
        let dies_at = Instant::now() + Duration::from_millis(1 + chance.below(1_500));
        let signal = [libc::SIGKILL, libc::SIGKILL, libc::SIGTERM][chance.index(3)];
        self.guests.push(Guest { living, dies_at, signal: Some(signal) });
    }

    /// Ends the guests whose time is over, or all guests if `all`.
    fn see_off(&mut self, all: bool, count: &mut Count) {
        let now = Instant::now();
        for mut guest in std::mem::take(&mut self.guests) {
            if let Some(status) = guest.living.has_ended() {
                let by_itself = guest
                    .signal
                    .is_some_and(|_| status.success() || signal_of(status) == Some(libc::SIGABRT));
                let (_, said) = guest.living.end();
                assert!(by_itself && said.is_empty(), "{}: {status}: {said}", self.kind.name);
                count.ended += 1;
                continue;
            }
            if !all && guest.dies_at > now {
                self.guests.push(guest);
                continue;
            }
            let signal = guest.signal.take().unwrap_or(libc::SIGKILL);
            guest.living.signal(signal);
            let (status, said) = guest.living.end();
            // The guest may have come to its end just before the signal.
            let by_it = signal_of(status) == Some(signal);
            let by_itself = status.success() || signal_of(status) == Some(libc::SIGABRT);
            assert!((by_it || by_itself) && said.is_empty(), "{}: {status}: {said}", self.kind.name);
            *if signal == libc::SIGKILL { &mut count.killed } else { &mut count.terminated } += 1;
        }
    }

    fn change(&self, chance: &mut Chance) {
        for view in self.monitor.devices() {
            let limits = self.monitor.limits(view.device);
            let memory = Some(QUOTAS[chance.index(3)]);
            let cores_permille = self.kind.shares[chance.index(3)] * 10;
            self.monitor.set_limits(view.device, Limits { memory, cores_permille, ..limits });
        }
    }

    /// Updates the longest stall of the resident. A stall begins when the resident has stopped running and the slice's debt is
    /// paid, whichever is later. `last` is the last millisecond in which the resident ran, and `now` is in nanoseconds.
    fn look(&mut self, last: Option<u64>, now: u64) {
        let device = self.monitor.devices()[0].device;
        if let Some(last) = last {
            self.ran = self.ran.max(last);
        }
        self.owed_until = self
            .owed_until
            .max(self.monitor.paid_until(device).nanos().min(now + 60_000_000_000) / 1_000_000);
        let waits_since = self.ran.max(self.owed_until.min(now / 1_000_000));
        self.stall = self.stall.max((now / 1_000_000).saturating_sub(waits_since));
    }

    fn held(&self) -> u64 {
        self.monitor.reap().expect("dead members can be found");
        self.monitor.held(self.monitor.devices()[0].device)
    }
}

/// Returns the most bytes that the processes of a slice held together in truth.
fn peak_of(report: &str, name: &str) -> u64 {
    let report: Value = serde_json::from_str(report).unwrap();
    let groups = report["groups"].as_array().unwrap();
    let group =
        groups.iter().find(|group| group["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"));
    group["devices"][0]["peak"].as_u64().unwrap()
}

fn signal_of(status: std::process::ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

fn settled<'b>(host: Host<'b>, kind: &Kind) -> Host<'b> {
    let host = host.loaded().set("SIMGPU_GROUP", kind.name).in_slice(kind.name);
    let host = host
        .set("GPU_MEM_LIMIT", &QUOTAS[0].to_string())
        .set("GPU_CORE_PERCENT", &kind.shares[0].to_string());
    // Limits change while guests live. A later guest prints a warning, which this log level leaves out.
    let host = host.set("GPUSLICE_LOG", "error");
    host.set_all(kind.settings)
}

/// Asserts that only the residents are left: all memory is theirs, in the ledgers and in truth, and they have not grown.
fn calm(bench: &Bench, slices: &mut [Slice<'_>], residents: u64) {
    let began = Instant::now();
    loop {
        let held: Vec<u64> = slices.iter().map(Slice::held).collect();
        let here: Vec<usize> = slices.iter().map(|slice| slice.monitor.processes().len()).collect();
        let truth = bench.truth(0).held;
        if held.iter().sum::<u64>() == residents && truth == residents && here.iter().all(|here| *here == 1) {
            break;
        }
        assert!(
            began.elapsed() < SOON,
            "a second after all guests have gone: ledgers {held:?}, truth {truth}, residents' {residents}; {here:?} live"
        );
    }
    let report = bench.report();
    for slice in slices {
        let (name, now) = (slice.kind.name, Footprint::of(slice.resident.pid()));
        let first = *slice.at_first.get_or_insert(now);
        let counts = |of: Footprint| [of.descriptors, of.threads];
        assert_eq!(counts(now), counts(first), "{name}: what its resident has, now and at first");
        assert!(now.mappings <= MAPPINGS, "{name}: {now:?}");
        assert!(now.kib <= first.kib + MORE_KIB, "{name}: its resident has grown: {now:?}, {first:?}");
        let peak = slice.monitor.peak(slice.monitor.devices()[0].device);
        let truth = peak_of(&report, name);
        assert!(peak <= QUOTAS[2] && truth <= QUOTAS[2], "{name}: at the peak {peak}, in truth {truth}");
    }
}

/// The loop looks every [`LOOK`] at the ground truth and at the ledgers. It ends the guests whose time is over, starts others,
/// and changes limits at random instants. In each calm it ends all guests and compares the slices with their beginning.
#[test]
fn slices_stay_whole_while_programs_come_and_go() {
    let _alone = machine();
    let mut chance = seed("churn");
    let seconds = variable("GPUSLICE_TEST_CHURN").unwrap_or(SECONDS);
    let bench = Bench::simulated_without_contexts();
    let mut slices: Vec<Slice<'_>> = KINDS.iter().map(|kind| Slice::start(&bench, kind)).collect();
    let truth = Shared::open_existing(&bench.region().with_file_name("state")).unwrap();
    let residents = bench.truth(0).held;
    let (mut count, began) = (Count::default(), Instant::now());
    let (mut calm_at, mut change_at, mut seen) = (began + CALM, began, 0);
    while began.elapsed() < Duration::from_secs(seconds) {
        thread::sleep(LOOK);
        let mut last = HashMap::new();
        seen = truth.lock().course(0, seen, |span| {
            last.insert(span.pid, span.ms);
        });
        let now = monotonic();
        for slice in &mut slices {
            slice.look(last.get(&slice.resident.pid()).copied(), now);
            slice.see_off(false, &mut count);
            while slice.guests.len() < GUESTS && calm_at > Instant::now() {
                slice.invite(&bench, &mut chance);
                count.started += 1;
            }
        }
        if change_at <= Instant::now() {
            slices[chance.index(3)].change(&mut chance);
            count.changes += 1;
            change_at = Instant::now() + Duration::from_millis(50 + chance.below(500));
        }
        if calm_at <= Instant::now() {
            slices.iter_mut().for_each(|slice| slice.see_off(true, &mut count));
            calm(&bench, &mut slices, residents);
            count.calms += 1;
            calm_at = Instant::now() + CALM;
        }
    }
    slices.iter_mut().for_each(|slice| slice.see_off(true, &mut count));
    calm(&bench, &mut slices, residents);
    println!("churn: {seconds} s, {count:?}");
    for Slice { kind, stall, resident, at_first, .. } in &slices {
        let grown = Footprint::of(resident.pid()).kib.saturating_sub(at_first.map_or(0, |first| first.kib));
        println!(
            "churn: {}: {stall} ms at the most without work and beyond what is owed; {grown} KiB grown",
            kind.name
        );
    }
    for slice in slices {
        let Slice { kind, resident, stall, .. } = slice;
        resident.signal(libc::SIGKILL);
        let (_, said) = resident.end();
        assert!(said.is_empty(), "{}: {said}", kind.name);
        assert!(variable("GPUSLICE_TEST_CHURN").is_none() || stall <= STALL, "{}: {stall} ms", kind.name);
    }
}
