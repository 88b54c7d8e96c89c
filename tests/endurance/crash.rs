//! Deaths at any instruction and at any instant: a killed process leaves nothing behind.
//!
//! The ordinary run takes samples. `GPUSLICE_TEST_STORM=10000` runs that many deaths of each kind, and `GPUSLICE_TEST_SEED`
//! repeats a run.

use crate::support::aftermath::{Aftermath, HELD, QUOTA};
use crate::support::chance::{seed, variable};
use crate::support::living::Living;
use crate::support::{bench::Bench, machine, skip};
use std::time::Duration;

/// Most instructions that the stepper steps without a breakpoint.
const REACH: u64 = 5_000;

/// Makes a slice in which hundreds of processes die one after the other, or dozens together. The device gets their memory back at
/// once, because a delay of 300 ms after each death would make the tests take minutes. In a storm, a wait for leaving memory
/// could also end too early, and the peak would show that. The tests `lifecycle/leaving` and `endurance/churn` cover the delay.
fn of_many_deaths() -> Aftermath {
    Aftermath::on(Bench::simulated_without_contexts().with_quick_nvml().with("SIMGPU_TEARDOWN_MS", "0"))
}

/// Returns the number of deaths: the one asked for, or the one that an ordinary run has time for.
fn deaths(ordinary: u64) -> u64 {
    variable("GPUSLICE_TEST_STORM").unwrap_or(ordinary)
}

/// Starts the program that steps hosts through a call. Returns `None` if no process may trace another.
fn stepper(bench: &Bench) -> Option<Living> {
    let mut stepper = bench.host("stepper", &[&QUOTA.to_string()]).loaded().start();
    assert_eq!(stepper.hear().as_deref(), Some("ready"));
    if stepper.ask("at alloc 1") == "killed" {
        return Some(stepper);
    }
    skip(
        "deaths at single instructions: no process may trace another; elsewhere: where ptrace is allowed (Docker: --cap-add SYS_PTRACE)",
    );
    None
}

/// Kills hosts inside a call, at about `wanted` of the library's instructions, beginning at a random one. Before its death each
/// host stands still, and no other process may wait for it.
fn killed_inside(call: &str, wanted: u64) {
    let _alone = machine();
    let mut chance = seed(call);
    let mut aftermath = of_many_deaths();
    let Some(mut stepper) = stepper(&aftermath.bench) else { return };
    aftermath.settles();
    let answer = stepper.numbers(&format!("trace {call}"));
    let &[all, inside] = answer.as_slice() else { panic!("{answer:?}") };
    assert!(inside > 100, "the library has no part in {call}: {inside} of {all} instructions");
    let stride = inside.div_ceil(wanted).max(1);
    let [mut killed, mut ended] = [0_u64; 2];
    let mut count = |answer: &str| match answer {
        "killed" => killed += 1,
        // A host may end before it reaches the instruction: hashes have another seed in each process, so its way can be shorter.
        "ended" => ended += 1,
        other => panic!("{call}: {other}"),
    };
    let mut at = chance.below(stride);
    while at < inside {
        if stepper.ask(&format!("stop {call} {at}")) == "stopped" {
            let status = aftermath.take(4096);
            // If a host stands still while it finds out that its request is too large, its reservation may deny the witness room.
            let fine = status == 0 || (matches!(call, "refused" | "reap") && status == 2);
            assert!(fine, "{status} beside a host that stands still at {at}");
        }
        count(&stepper.ask("kill"));
        aftermath.settles();
        at += stride;
    }
    // These hosts die at any instruction: in the driver, in the C library, or between them. That is slow, so they are fewer.
    for _ in 0..wanted.div_ceil(20) {
        let at = chance.below(all.min(REACH));
        count(&stepper.ask(&format!("at {call} {at}")));
        aftermath.settles();
    }
    assert_eq!(stepper.ask(&format!("live {call}")), "ended with 0");
    aftermath.settles();
    let longest = aftermath.end();
    println!(
        "{call}: {inside} instructions of {all} are the library's; killed at {killed} (one in {stride}), \
         {ended} got through; a member waited {longest:?} at most"
    );
    assert!(killed > ended * 4, "most hosts are killed inside the call");
}

#[test]
fn a_process_may_be_killed_at_any_instruction_of_an_allocation() {
    killed_inside("alloc", deaths(300));
}

#[test]
fn a_process_may_be_killed_at_any_instruction_of_a_free() {
    killed_inside("free", deaths(300));
}

#[test]
fn a_process_may_be_killed_at_any_instruction_of_a_refusal() {
    killed_inside("refused", deaths(300));
}

#[test]
fn a_process_may_be_killed_at_any_instruction_of_an_allocation_of_rows() {
    killed_inside("pitch", deaths(100));
}

#[test]
fn a_process_may_be_killed_at_any_instruction_of_a_managed_allocation() {
    killed_inside("managed", deaths(100));
}

#[test]
fn a_process_may_be_killed_at_any_instruction_of_making_mapping_and_releasing_physical_memory() {
    killed_inside("physical", deaths(200));
}

#[test]
fn a_process_may_be_killed_at_any_instruction_of_an_allocation_from_a_pool() {
    killed_inside("pooled", deaths(200));
}

#[test]
fn a_process_may_be_killed_at_any_instruction_of_giving_a_context_more_room() {
    killed_inside("grow", deaths(200));
}

#[test]
fn a_process_may_be_killed_at_any_instruction_of_the_end_of_a_context() {
    killed_inside("destroy", deaths(200));
}

#[test]
fn a_process_may_be_killed_at_any_instruction_of_joining() {
    killed_inside("join", deaths(200));
}

#[test]
fn a_process_may_be_killed_at_any_instruction_of_clearing_the_dead() {
    killed_inside("reap", deaths(100));
}

/// Kills hosts inside a call at each entry into the kernel and at each return, because only there the system may have changed.
/// Asserts that a host that then does `next` finds everything as if the killed host had never been.
fn killed_at_every_system_call(call: &str, next: &str) {
    let _alone = machine();
    let mut aftermath = of_many_deaths();
    let Some(mut stepper) = stepper(&aftermath.bench) else { return };
    aftermath.settles();
    let mut killed = 0;
    while stepper.ask(&format!("system {call} {killed}")) == "killed" {
        aftermath.settles();
        assert_eq!(stepper.ask(&format!("live {next}")), "ended with 0", "after {killed} stops in {call}");
        killed += 1;
    }
    aftermath.settles();
    println!("{call}: killed at {killed} entries and returns; a member waited {:?} at most", aftermath.end());
    assert!(killed > 10, "{killed}");
}

#[test]
fn a_process_may_be_killed_at_every_system_call_of_joining() {
    killed_at_every_system_call("join", "join");
}

#[test]
fn a_process_may_be_killed_at_every_system_call_of_clearing_the_dead() {
    killed_at_every_system_call("reap", "alloc");
}

#[test]
fn a_process_may_be_killed_at_every_system_call_of_making_a_region() {
    killed_at_every_system_call("make", "renew");
}

#[test]
fn a_process_may_be_killed_at_every_system_call_of_making_a_region_anew() {
    killed_at_every_system_call("renew", "renew");
}

/// Kills busy processes until `wanted` were killed. Asserts after each round that everything is as before it.
fn storm(processes: u64, threads: u64, wanted: u64, within: u64) {
    let _alone = machine();
    let mut chance = seed("storm");
    let mut killed = 0;
    let mut rounds = 0;
    let mut longest = Duration::ZERO;
    let mut most = 0;
    while killed < wanted {
        let mut aftermath = of_many_deaths();
        let words = [processes, threads, chance.below(1 << 30)].map(|word| word.to_string());
        let mut storm = aftermath.bench.host("storm", &words.each_ref().map(String::as_str)).loaded().start();
        assert_eq!(storm.hear().as_deref(), Some("ready"));
        for _ in 0..20 {
            let answer = storm.numbers(&within.to_string());
            let &[dead, ended, wrong] = answer.as_slice() else { panic!("{answer:?}") };
            assert_eq!((ended, wrong), (0, 0), "busy hosts end by being killed only");
            killed += dead;
            rounds += 1;
            aftermath.settles();
            if killed >= wanted {
                break;
            }
        }
        most = most.max(aftermath.bench.truth(0).peak);
        longest = longest.max(aftermath.end());
    }
    println!(
        "storm: {killed} busy processes with {threads} threads killed in {rounds} rounds; \
         a member waited {longest:?} at most; {most} bytes at the peak with a quota of {QUOTA}"
    );
}

#[test]
fn busy_processes_may_be_killed_at_any_instant() {
    storm(4, 4, deaths(200), 10_000);
}

#[test]
fn members_do_not_wait_for_members_that_die_beside_them() {
    let _alone = machine();
    let mut aftermath = of_many_deaths();
    let seed = seed("beside").below(1 << 30).to_string();
    let mut storm = aftermath.bench.host("storm", &["4", "4", &seed]).loaded().start();
    assert_eq!(storm.hear().as_deref(), Some("ready"));
    for _ in 0..deaths(200).div_ceil(40) {
        storm.order("20000");
        // Busy processes live and die until the answer comes.
        let mut calls = 0_u64;
        let answer = loop {
            let status = aftermath.take(4096);
            assert!(status == 0 || status == 2, "status {status}");
            calls += 1;
            if let Some(answer) = storm.heard() {
                break answer;
            }
        };
        assert_eq!(answer, "4 0 0", "after {calls} calls of the witness");
        aftermath.settles();
    }
    println!("beside: a member waited {:?} at most", aftermath.end());
}

#[test]
fn sixty_four_processes_with_sixteen_threads_each_come_and_go_together() {
    let _alone = machine();
    let mut aftermath = of_many_deaths();
    let mut storm = aftermath.bench.host("storm", &["64", "16", "1", "20"]).loaded().start();
    assert_eq!(storm.hear().as_deref(), Some("ready"));
    assert_eq!(storm.ask("1"), "0 64 0");
    aftermath.settles();
    aftermath.end();
}

#[test]
fn sixty_four_processes_with_sixteen_threads_each_may_be_killed_together() {
    storm(64, 16, 64, 1_000);
}

#[test]
fn hundreds_of_short_processes_leave_nothing() {
    let _alone = machine();
    // A round of eight takes seconds: each context waits for memory of the round before, which the others' calls hide.
    let wanted = deaths(400);
    let mut aftermath = of_many_deaths();
    let mut storm = aftermath.bench.host("storm", &["8", "1", "1", "4"]).loaded().start();
    assert_eq!(storm.hear().as_deref(), Some("ready"));
    for round in 0..wanted / 8 {
        assert_eq!(storm.ask("1"), "0 8 0");
        if round.is_multiple_of(10) {
            aftermath.settles();
        }
    }
    aftermath.settles();
    assert_eq!(aftermath.take(QUOTA - HELD), 0);
    println!("short: {wanted} processes; a member waited {:?} at most", aftermath.end());
}
