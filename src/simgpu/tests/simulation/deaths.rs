//! Tests that the machine gets back everything of a dead process, and that sums over several processes are exact.

use std::io::{BufRead, BufReader, Write};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::support::Machine;

/// Reads one line, which a program prints when it is ready.
fn ready(child: &mut Child) {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_process_holds_nothing_as_soon_as_it_is_gone() {
    let Some(machine) = Machine::with_easy_sums(&[]) else { return };
    let mut child = machine.command("hold").spawn().unwrap();
    ready(&mut child);
    for kind in ["linear", "managed", "vmm", "pool", "array", "context", "module"] {
        assert_ne!(machine.number("\"kinds\"", kind), 0, "{kind}");
    }
    kill(child);
    assert_eq!(machine.number("\"processes\"", "contexts"), 0);
    assert_eq!(machine.number("\"processes\"", "held"), 0);
    assert_eq!(machine.held_at_rest(), 0);
}

#[test]
fn the_device_has_memory_of_the_dead_back_300_ms_later_or_when_it_is_told() {
    for (settings, ms) in
        [(vec![], 300), (vec![("TEARDOWN_MS", "700")], 700), (vec![("TEARDOWN_MS", "0")], 0)]
    {
        let settings: Vec<_> = [("CONTEXT_BYTES", "0")].into_iter().chain(settings).collect();
        let Some(machine) = Machine::with_easy_sums(&settings) else { return };
        let mut child = machine.command("exact").arg("1000").spawn().unwrap();
        ready(&mut child);
        let began = Instant::now();
        kill(child);
        // The first look at the machine notices the death, and the time counts from that look.
        let left = if ms > 0 { 1000 } else { 0 };
        assert_eq!((machine.held(), machine.number("\"devices\"", "leaving")), (left, left), "{ms} ms");
        assert_eq!(machine.held_at_rest(), 0);
        assert!(began.elapsed() >= Duration::from_millis(ms), "{:?} instead of {ms} ms", began.elapsed());
    }
}

#[test]
fn the_next_program_finds_the_whole_device_after_a_death() {
    let Some(machine) = Machine::with_easy_sums(&[("MEMORY", "1GiB")]) else { return };
    let mut child = machine.command("exact").arg("700000000").spawn().unwrap();
    ready(&mut child);
    kill(child);
    assert_eq!(machine.held_at_rest(), 0);
    let mut child = machine.command("exact").arg("700000000").spawn().unwrap();
    ready(&mut child);
    kill(child);
}

#[test]
fn a_death_at_any_call_leaves_nothing_behind() {
    let Some(machine) = Machine::with_easy_sums(&[]) else { return };
    let functions =
        ["cuMemAlloc_v2", "cuMemFree_v2", "cuMemCreate", "cuMemRelease", "cuCtxCreate_v2", "cuInit"];
    for function in functions {
        for how in ["kill", "kill-after"] {
            let fault = format!("{function}={how}@{}", if function.starts_with("cuMem") { 9 } else { 1 });
            let status = machine.command("churn").arg("2000").env("SIMGPU_FAULTS", &fault).status().unwrap();
            assert!(!status.success(), "{fault} does not strike");
            assert_eq!(machine.held_at_rest(), 0, "{fault}");
        }
    }
}

/// Processes die at random instants. Some of them hold the lock of the file at that instant.
#[test]
fn deaths_at_random_instants_leave_nothing_behind() {
    let Some(machine) = Machine::with_easy_sums(&[("CONTEXT_BYTES", "1MiB")]) else { return };
    let churn = || {
        let mut command = machine.command("churn");
        command.env("SIMGPU_GROUP", "churn");
        command
    };
    // This makes the group. On a busy machine, all children below may die before they have joined it.
    assert!(churn().arg("1").status().unwrap().success());
    let mut seed = u64::from(std::process::id());
    for _ in 0..25 {
        let mut children: Vec<Child> = (0..4).map(|_| churn().spawn().unwrap()).collect();
        for child in &mut children {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            std::thread::sleep(Duration::from_micros(seed >> 50));
            child.kill().unwrap();
        }
        for child in &mut children {
            child.wait().unwrap();
        }
        assert_eq!(machine.held_at_rest(), 0);
        assert_eq!(machine.number("\"groups\"", "held"), 0);
    }
    assert!(churn().arg("100").status().unwrap().success());
}

#[test]
fn the_peak_of_a_group_is_the_exact_sum_of_its_processes() {
    let Some(machine) = Machine::with_easy_sums(&[("CONTEXT_BYTES", "0")]) else { return };
    let outsider = machine.command("exact").arg("999").output().unwrap();
    assert!(outsider.status.success());
    assert_eq!(machine.held_at_rest(), 0);
    let sizes = [1_000_003_u64, 77, 5_000_000_021, 4096];
    let mut children = Vec::new();
    for size in sizes {
        let mut command = machine.command("exact");
        children.push(command.arg(size.to_string()).env("SIMGPU_GROUP", "slice").spawn().unwrap());
    }
    children.iter_mut().for_each(ready);
    let sum: u64 = sizes.iter().sum();
    assert_eq!(machine.number("\"slice\"", "held"), sum);
    for mut child in children {
        child.stdin.take().unwrap().write_all(b"x").unwrap();
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(machine.held_at_rest(), 0);
    assert_eq!((machine.number("\"slice\"", "held"), machine.number("\"slice\"", "peak")), (0, sum));
    assert_eq!(machine.number("\"devices\"", "peak"), sum);
    machine.truth(&["--reset-peaks"]);
    assert_eq!(machine.number("\"slice\"", "peak"), 0);
}
