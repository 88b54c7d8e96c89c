//! Arbiters of a GPU, and how soon another process takes the place of a dead one.
//!
//! The tests read the file of arbiter leases beside the regions, and the grants in the regions.

use crate::support::bench::{Bench, Host};
use crate::support::living::Living;
use gpuslice_policy::arbiter::grant_word;
use gpuslice_policy::compute::limiter::token_bucket::RateLimit;
use gpuslice_policy::time::GpuTime;
use gpuslice_policy::units::Permille;
use gpuslice_region::{Monitor, Trust};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time after which something counts as never happening. The machine may be busy.
const NEVER: Duration = Duration::from_secs(30);
/// Time for which a process is stopped to find out if it is the arbiter, which renews its word each millisecond. If the word does
/// not change, the process counts as the arbiter. Another process may be the arbiter and have had no processor; [`replacements`]
/// detects that.
const ARBITER_TEST: Duration = Duration::from_millis(40);
/// Offset of the first arbiter lease in the file, and size of a lease: a word for the GPU, then a word for the holder.
const FIRST_LEASE: usize = 16;
const LEASE_SIZE: usize = 16;
/// Bits of the holder's number. The bits above them hold the time of the last renewal.
const HOLDER_BITS: u64 = (1 << 24) - 1;

/// Returns the path of the file of arbiter leases beside the regions.
pub(crate) fn arbiter_leases(bench: &Bench) -> PathBuf {
    // SAFETY: the call has no arguments and cannot fail.
    bench.region().with_file_name(format!(".gpuslice-arbiter-{}", unsafe { libc::geteuid() }))
}

pub(crate) fn monitor(bench: &Bench, slice: usize) -> Monitor {
    Monitor::open(&bench.region_of(slice), Trust::AnyOwner).unwrap().expect("the slice has a region")
}

/// Returns the current grant of a slice, as a word of its region.
pub(crate) fn grant(bench: &Bench, slice: usize) -> u64 {
    let monitor = monitor(bench, slice);
    monitor.grant(monitor.devices()[0].device)
}

/// Returns the sum of the rates that the slices of `programs` are granted, in thousandths of the GPU.
fn rates(bench: &Bench, programs: &[(usize, Living)]) -> u16 {
    let own = RateLimit::new(Permille::FULL, GpuTime::MAX);
    programs.iter().map(|(slice, _)| grant_word::decode(grant(bench, *slice), own).0.rate().get()).sum()
}

/// Starts a program with work in a slice of its own. The program works until it is killed.
pub(crate) fn working(bench: &Bench, slice: usize, settings: &[(&'static str, &'static str)]) -> Living {
    begun(bench.host("load", &["60", "200000"]).loaded().set_all(settings).in_slice(slice))
}

/// Starts a program and lets it begin.
pub(crate) fn begun(host: Host<'_>) -> Living {
    let mut living = host.start();
    assert_eq!(living.hear().as_deref(), Some("ready"));
    living.order("");
    living
}

/// Returns the holder's word of the only GPU's arbiter lease, or zero if no process holds it.
fn holder(bench: &Bench) -> u64 {
    let bytes = fs::read(arbiter_leases(bench)).unwrap_or_default();
    let word =
        |at: usize| bytes.get(at..at + 8).map_or(0, |word| u64::from_ne_bytes(word.try_into().unwrap()));
    let taken = (FIRST_LEASE..bytes.len()).step_by(LEASE_SIZE).find(|at| word(*at) != 0);
    taken.map_or(0, |at| word(at + 8))
}

/// Times from the stop of the arbiter, which is killed afterwards: until another process held its lease, and until the other
/// slices had the part of the dead slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replaced {
    pub(crate) held: Duration,
    pub(crate) divided: Duration,
}

/// Thousandths of the GPU that the grants of several slices must reach together to count as the whole GPU. Less than 1000 leaves
/// room for the error of the arbiter's budget. Three of four equal slices have 750 before the fourth one dies.
const NEARLY_ALL: u16 = 800;
/// Time for which grants must stay to count as a division. The first grants of a new arbiter follow from one look alone.
const STAYS: Duration = Duration::from_millis(100);

/// Kills the arbiter of `slices` slices that always have work, again and again until one slice is left.
///
/// The test stops one program after the other until the lease's word stands still for [`ARBITER_TEST`]: that program counts as
/// the arbiter and is killed. On a busy machine the true arbiter may have had no processor for so long. It then renews the lease
/// as the same holder after the kill, and the function skips the figures of this death.
pub(crate) fn replacements(slices: usize) -> Vec<Replaced> {
    let bench = Bench::simulated();
    let equal = [("GPU_CORE_POLICY", "equal")];
    let mut programs: Vec<(usize, Living)> =
        (0..slices).map(|slice| (slice, working(&bench, slice, &equal))).collect();
    let mut replaced = Vec::new();
    while programs.len() > 1 {
        let has_grant = |(slice, _): &(usize, Living)| grant(&bench, *slice) != 0;
        wait("a slice has no grant, or no process holds the lease", || {
            programs.iter().all(has_grant) && holder(&bench) != 0
        });
        // While the programs start, each may have the whole GPU.
        let count = programs.len() as u16;
        wait("each slice has the whole GPU", || rates(&bench, &programs) * (count - 1) / count < NEARLY_ALL);
        let mut turns = (0..programs.len()).cycle();
        let (at, since) = turns.find_map(|at| Some((at, stopped_arbiter(&bench, &programs[at].1)?))).unwrap();
        let (_, mut program) = programs.swap_remove(at);
        let word = holder(&bench);
        program.kill();
        wait("no process takes the lease of the dead arbiter", || ![0, word].contains(&holder(&bench)));
        let held = since.elapsed();
        if holder(&bench) & HOLDER_BITS == word & HOLDER_BITS {
            continue; // The arbiter lives: it had no processor, so the test took another process for it and killed that one.
        }
        let mut divided = Instant::now();
        wait("the other slices do not get the part of the dead slice", || {
            if rates(&bench, &programs) < NEARLY_ALL {
                divided = Instant::now();
            }
            divided.elapsed() >= STAYS
        });
        replaced.push(Replaced { held, divided: divided.duration_since(since) });
    }
    replaced
}

/// Stops a program. If the program is the arbiter, returns the instant of the stop; otherwise lets the program go on.
fn stopped_arbiter(bench: &Bench, program: &Living) -> Option<Instant> {
    let since = Instant::now();
    program.suspend();
    let word = holder(bench);
    while since.elapsed() < ARBITER_TEST {
        if holder(bench) != word || word == 0 {
            program.signal(libc::SIGCONT);
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Some(since)
}

/// Waits until `is_so` returns true, for 30 s at most.
#[track_caller]
pub(crate) fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < NEVER, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
