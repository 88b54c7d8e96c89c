//! Utilisation that a slice is shown if NVML does not name its processes by their own numbers.
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a test: it ends where something is wrong, and waits for what must come"
)]

use super::hosts;
use crate::support::bench::{Bench, Host};
use crate::support::living::Living;
use crate::support::neighbours::{BUSY, IN_A_CONTAINER, begin, neighbour};
use crate::support::{compiler, skip_without_rights};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Ways in which NVML numbers processes, each with the CUDA version of a driver that does so.
const NUMBERINGS: [(&str, &str); 3] = [("mixed", "12040"), ("offset", "12040"), ("foreign", "13000")];
/// Percentages that a slice may be shown if it uses all of its 30 %.
const ABOUT_30: std::ops::RangeInclusive<u64> = 20..=40;

/// Utilization that the device is shown with, in percent: GPU and memory by the rates, by the domains, and on average over two
/// seconds. Then the statuses of both functions that report the use by process.
#[derive(Debug, Clone, Copy)]
struct Shown {
    rates: [u64; 2],
    domains: [u64; 2],
    samples: [u64; 2],
    uses: [u64; 2],
}

fn look(viewer: &mut Living) -> Shown {
    let numbers = viewer.numbers("busy");
    let two = |at: usize| [numbers[at], numbers[at + 1]];
    Shown { rates: two(0), domains: two(2), samples: two(4), uses: two(6) }
}

fn at_home<'bench>(bench: &'bench Bench, name: &str, does: &[&str]) -> Host<'bench> {
    bench.host(name, does).loaded().set("SIMGPU_GROUP", "home")
}

/// Starts a process of the slice that is always busy.
fn member(bench: &Bench) -> Living {
    begin(at_home(bench, "load", &BUSY).start())
}

/// Starts a process of the slice that looks and holds `holds` bytes. With zero bytes it does not use CUDA.
fn viewer(bench: &Bench, holds: &str) -> Living {
    ready(at_home(bench, "reports", &["watch", "0", holds]).start())
}

fn ready(viewer: Living) -> Living {
    assert_eq!(viewer.hear().as_deref(), Some("ready"));
    viewer
}

/// Waits until `is_so` accepts the figures.
#[track_caller]
fn until(viewer: &mut Living, is_so: impl Fn(&Shown) -> bool) {
    hosts::until(|| look(viewer), is_so);
}

/// Asserts that a viewer of a slice that uses its 30 % is shown about 30 % for some time, and never an idle slice.
#[track_caller]
fn is_busy_for_about_30(viewer: &mut Living) {
    // The first seconds contain time without work.
    until(viewer, |shown| ABOUT_30.contains(&shown.rates[0]) && ABOUT_30.contains(&shown.samples[0]));
    let looks: Vec<Shown> = (0..60).map(|_| look_again(viewer)).collect();
    let forms: [fn(&Shown) -> u64; 3] =
        [|shown| shown.rates[0], |shown| shown.domains[0], |shown| shown.samples[0]];
    for form in forms {
        assert!(looks.iter().all(|shown| form(shown) > 0), "{looks:?}");
        let mean = looks.iter().map(form).sum::<u64>() / 60;
        assert!(ABOUT_30.contains(&mean), "{mean}: {looks:?}");
    }
}

fn look_again(viewer: &mut Living) -> Shown {
    sleep(Duration::from_millis(50));
    look(viewer)
}

#[test]
fn a_busy_slice_beside_a_busy_neighbour_is_shown_its_share() {
    for (pids, version) in NUMBERINGS {
        let bench = Bench::simulated().with("GPU_CORE_PERCENT", "30");
        let bench = bench.with("SIMGPU_NVML_PIDS", pids).with("SIMGPU_CUDA_VERSION", version);
        let (_neighbour, _member) = (neighbour(&bench), member(&bench));
        for holds in ["0", "1"] {
            is_busy_for_about_30(&mut viewer(&bench, holds));
        }
    }
}

/// Returns the GPU time that the slice was charged for so far, in nanoseconds, with the instant of the look.
fn charged(bench: &Bench) -> (u64, Instant) {
    (bench.time_used().used.nanos(), Instant::now())
}

#[test]
fn where_nvml_names_one_process_for_each_sample_a_slice_is_shown_its_charge() {
    let bench = Bench::simulated().with("GPU_CORE_PERCENT", "30");
    let (_neighbour, _member, mut viewer) = (neighbour(&bench), member(&bench), viewer(&bench, "0"));
    until(&mut viewer, |shown| shown.rates[0] > 0);
    let (before, began) = charged(&bench);
    let looks: Vec<Shown> = (0..80).map(|_| look_again(&mut viewer)).collect();
    let (after, ended) = charged(&bench);
    let span = u64::try_from(ended.duration_since(began).as_nanos()).unwrap();
    let (ledger, mean) =
        ((after - before) * 100 / span, looks.iter().map(|shown| shown.rates[0]).sum::<u64>() / 80);
    // Each figure shown is a mean over a second, and the first of these seconds began before the look.
    assert!(mean.abs_diff(ledger) <= 5, "{mean} shown, {ledger} charged: {looks:?}");
    assert!(looks.iter().all(|shown| (1..=45).contains(&shown.rates[0])), "{looks:?}");
}

#[test]
fn an_idle_slice_beside_a_busy_neighbour_is_shown_an_idle_device() {
    for (pids, version) in NUMBERINGS {
        let bench = Bench::simulated().with("GPU_CORE_PERCENT", "30");
        let bench = bench.with("SIMGPU_NVML_PIDS", pids).with("SIMGPU_CUDA_VERSION", version);
        let _neighbour = neighbour(&bench);
        let mut outside = ready(bench.host("reports", &["watch", "0", "0"]).start());
        until(&mut outside, |shown| shown.rates[0] > 90);
        for holds in ["0", "1"] {
            let mut viewer = viewer(&bench, holds);
            let idle = [look_again(&mut viewer), look_again(&mut viewer)];
            let sum = |shown: &Shown| shown.rates[0] + shown.domains[0] + shown.samples[0];
            assert!(idle.iter().map(sum).sum::<u64>() == 0, "{pids}: {idle:?}");
        }
    }
}

#[test]
fn work_that_has_ended_is_shown_no_more() {
    let bench = Bench::simulated().with("GPU_CORE_PERCENT", "30").with("SIMGPU_NVML_PIDS", "mixed");
    let (_neighbour, mut member, mut viewer) = (neighbour(&bench), member(&bench), viewer(&bench, "1"));
    until(&mut viewer, |shown| ABOUT_30.contains(&shown.rates[0]));
    member.kill();
    until(&mut viewer, |shown| shown.rates[0] == 0 && shown.domains[0] == 0);
}

#[test]
fn where_nvml_tells_no_processes_apart_a_slice_sees_its_share_and_as_much_memory_use() {
    let bench = Bench::simulated().with("GPU_CORE_PERCENT", "30").with("STRANGE_SILENT", "1");
    let _member = member(&bench);
    let viewer = at_home(&bench, "reports", &["watch", "0", "1"]).preload(&compiler::wrapper("strange_nvml"));
    let mut viewer = ready(viewer.start());
    until(&mut viewer, |shown| ABOUT_30.contains(&shown.rates[0]));
    // The wrapped NVML reports a GPU that is busy for 90 percent and a memory that is busy for 80. So do its samples.
    let shown = look(&mut viewer);
    assert_eq!(shown.rates[1], shown.rates[0] * 80 / 90, "{shown:?}");
    assert_eq!(shown.domains[1], shown.domains[0] * 80 / 90, "{shown:?}");
    assert!((15..=36).contains(&shown.samples[1]), "{shown:?}");
}

/// Starts a viewer beside a busy neighbour, in a process-number namespace of its own. If `member` is not empty, starts a process
/// of the slice with these words there too. Returns `None` if that is not allowed.
fn in_a_container(bench: &Bench, member: &[&str]) -> Option<Living> {
    let programs = ["load", "reports"].map(|name| compiler::plain(name).display().to_string());
    let [load, reports] = programs.each_ref().map(String::as_str);
    let begin = "load=$1 reports=$2; shift 2; [ $# = 0 ] || \"$load\" \"$@\" </dev/null >/dev/null & \
                 exec \"$reports\" watch 0 0";
    let words = [IN_A_CONTAINER.as_slice(), &[begin, "sh", load, reports], member].concat();
    let host = bench.program(Path::new("/usr/bin/unshare"), &words);
    let viewer = host.loaded().start();
    (viewer.hear()? == "ready").then_some(viewer)
}

/// Condition on the figures.
type Claim<'a> = &'a dyn Fn(&Shown) -> bool;

#[test]
fn in_a_container_of_an_old_driver_a_slice_is_shown_its_share_if_it_has_one_and_else_the_device() {
    let about_30 = |shown: &Shown| ABOUT_30.contains(&shown.rates[0]);
    let whole = |shown: &Shown| shown.rates[0] > 90 && shown.samples[0] > 90;
    let cases: [(_, _, &[&str], Claim<'_>); 3] = [
        ("GPU_CORE_PERCENT", "30", &BUSY, &about_30),
        ("GPU_MEM_LIMIT", "1GiB", &BUSY, &whole),
        // No process of the container has used the device, so the library knows that the work is not the slice's.
        ("GPU_MEM_LIMIT", "1GiB", &[], &|shown| shown.rates[0] == 0),
    ];
    for (name, value, does, is_so) in cases {
        let bench = Bench::simulated().with("SIMGPU_NVML_PIDS", "mixed").with("SIMGPU_CUDA_VERSION", "12040");
        // A process that uses the device holds memory of it, as on every real device.
        let bench = bench.with("SIMGPU_CONTEXT_BYTES", "64MiB").with(name, value);
        let _neighbour = neighbour(&bench);
        let mut outside = ready(bench.host("reports", &["watch", "0", "0"]).start());
        until(&mut outside, |shown| shown.rates[0] > 90);
        let Some(mut viewer) = in_a_container(&bench, does) else {
            return skip_without_rights("utilisation in a container");
        };
        until(&mut viewer, is_so);
        // NVML cannot name a process of the container.
        assert_eq!(look(&mut viewer).uses, [6, 6]);
    }
}
