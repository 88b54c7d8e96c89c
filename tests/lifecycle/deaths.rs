//! Ends of processes: nothing of a dead process stays, and a process that only seems to have ended keeps its memory.

use crate::support::aftermath::{Aftermath, HELD, QUOTA};
use crate::support::bench::Bench;
use crate::support::living::{Living, send};
use crate::support::timed::within;
use crate::support::{compiler, skip, skip_without_rights};
use gpuslice_region::layout::MAX_SLOTS;
use gpuslice_region::{Member, Trust};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Bytes that each host takes.
const PIECE: u64 = 8 << 20;
/// Rest of the quota beside the witness and one host.
const REST: u64 = QUOTA - HELD - PIECE;

/// Starts a host that holds its piece.
fn holder(aftermath: &Aftermath, way: &str) -> Living {
    let host = aftermath.bench.host("deaths", &[way]).loaded().start();
    assert_eq!(host.hear().as_deref(), Some("holds"), "{way}");
    host
}

/// Formats the end of a process: `exit 4` or `signal 6`.
fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

/// Asserts that exactly the bytes that a host holds are charged.
#[track_caller]
fn keeps(aftermath: &mut Aftermath, others: usize) {
    aftermath.holds(PIECE, others);
    assert_eq!((aftermath.take(REST + 1), aftermath.take(REST)), (2, 0));
}

/// Ways in which a process ends, each with its end.
const WAYS: &[(&str, &str)] = &[
    ("return", "exit 0"),
    ("exit", "exit 4"),
    ("quick_exit", "exit 4"),
    ("exit_now", "exit 4"),
    ("thread", "exit 4"),
    ("handler", "exit 4"),
    ("main_thread", "exit 0"),
    ("abort", "signal 6"),
    ("trap", "signal 5"),
    ("term", "signal 15"),
    ("limit", "signal 24"),
    ("segment", "signal 11"),
    ("overflow", "signal 11"),
    ("bus", "signal 7"),
    ("exec", "exit 0"),
    ("spawn", "exit 0"),
    ("fork", "exit 0"),
    ("unload", "exit 0"),
];

#[test]
fn whatever_way_a_process_ends_it_leaves_nothing_and_ends_as_it_would() {
    let mut aftermath = Aftermath::new();
    for (way, end) in WAYS {
        let mut host = holder(&aftermath, way);
        keeps(&mut aftermath, 1);
        host.order("go");
        if *way == "return" {
            host.order("end");
        }
        let (status, said) = host.end();
        assert_eq!((ended(status).as_str(), said.as_str()), (*end, ""), "{way}");
        aftermath.settles();
    }
    println!("{} ways to end; a member waited {:?} at most", WAYS.len(), aftermath.end());
}

#[test]
fn a_process_whose_memory_is_dumped_keeps_its_place_meanwhile_and_leaves_nothing() {
    let mut aftermath = Aftermath::new();
    let mut host = holder(&aftermath, "core");
    keeps(&mut aftermath, 1);
    host.order("go");
    // The witness does not wait for the dump. It also does not get the memory before the device has it back: the peak shows that
    // at the end.
    let mut refused = 0;
    while aftermath.take(REST + 1) != 0 {
        refused += 1;
    }
    let status = host.wait_for_its_end();
    println!("refused {refused} times meanwhile");
    aftermath.settles();
    aftermath.end();
    if status.signal() == Some(libc::SIGABRT) && status.core_dumped() {
        return;
    }
    assert_eq!(ended(status), "signal 6");
    // The hard limit of `ulimit -c` is 0 for this user, or the kernel writes no core dumps.
    skip(
        "a process whose memory is dumped: its core was not written; elsewhere: where `ulimit -H -c` is not 0",
    );
}

#[test]
fn the_child_of_a_killed_process_keeps_nothing_of_its_parents() {
    let mut aftermath = Aftermath::new();
    let mut host = holder(&aftermath, "child");
    host.order("go");
    host.wait_for_its_end();
    aftermath.settles();
    drop(host);
    aftermath.end();
}

#[test]
fn a_daemon_without_descriptors_keeps_its_place_until_it_dies() {
    let mut aftermath = Aftermath::new();
    let launcher = aftermath.bench.host("deaths", &["daemon"]).loaded().start();
    let pid = launcher.hear().expect("the daemon tells its number").parse().expect("a number");
    assert_eq!(launcher.hear(), None, "the daemon has closed its output");
    assert_eq!(ended(launcher.end().0), "exit 0");
    keeps(&mut aftermath, 1);
    send(pid, libc::SIGKILL);
    aftermath.settles();
    aftermath.end();
}

#[test]
fn a_suspended_process_keeps_its_memory_and_delays_no_other() {
    let mut aftermath = Aftermath::new();
    let mut host = holder(&aftermath, "return");
    host.order("go");
    host.suspend();
    keeps(&mut aftermath, 1);
    host.signal(libc::SIGCONT);
    host.order("end");
    assert_eq!(ended(host.end().0), "exit 0");
    aftermath.settles();
    aftermath.end();
}

#[test]
fn a_process_that_is_killed_while_it_is_suspended_leaves_nothing() {
    let mut aftermath = Aftermath::new();
    for _ in 0..20 {
        let mut host = holder(&aftermath, "suspended");
        host.order("go");
        host.suspend();
        host.kill();
        aftermath.settles();
    }
    aftermath.end();
}

/// Makes the next process get the number `pid`, unless another program is faster. Returns false if that is not allowed.
fn next_is(pid: u32) -> bool {
    std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).is_ok()
}

#[test]
fn the_number_of_a_dead_process_may_be_used_again() {
    let mut aftermath = Aftermath::new();
    for _ in 0..100 {
        let mut first = holder(&aftermath, "return");
        keeps(&mut aftermath, 1);
        first.kill();
        if !next_is(first.pid()) {
            return skip_without_rights("a process with the number of a dead one");
        }
        let second = holder(&aftermath, "return");
        let same = first.pid() == second.pid();
        // The newcomer has joined, and the memory of the dead process is not charged to it.
        keeps(&mut aftermath, 1);
        drop(second);
        aftermath.settles();
        if same {
            aftermath.end();
            return;
        }
    }
    skip(
        "the number of a dead process: other programs took it a hundred times; elsewhere: on a quieter machine",
    );
}

/// Starts a host that is number 1 of a process-number namespace, and root of a user namespace if `of_users`. Returns `None` if
/// that is not allowed.
fn in_a_namespace(aftermath: &Aftermath, of_users: bool) -> Option<Living> {
    let program = compiler::plain("deaths").display().to_string();
    let users: &[&str] = if of_users { &["--user", "--map-root-user"] } else { &[] };
    let words = [users, &["--pid", "--fork", "--kill-child", &program, "return"]].concat();
    let host = aftermath.bench.program(Path::new("/usr/bin/unshare"), &words).loaded().start();
    let said = host.hear()?;
    assert_eq!(said, "holds");
    Some(host)
}

/// Runs two such hosts, which are two members, and kills one of them.
fn two_namespaces_with_one_region(of_users: bool) {
    let mut aftermath = Aftermath::new();
    let two = [in_a_namespace(&aftermath, of_users), in_a_namespace(&aftermath, of_users)];
    let [Some(mut first), Some(mut second)] = two else {
        return skip_without_rights("members of several process-number namespaces");
    };
    aftermath.holds(2 * PIECE, 2);
    first.kill();
    within(Duration::from_secs(1), Duration::ZERO, || {
        let until = Instant::now() + Duration::from_secs(60);
        while aftermath.take(REST) != 0 {
            assert!(Instant::now() < until, "the memory of the dead one is not free");
        }
    });
    keeps(&mut aftermath, 1);
    second.kill();
    aftermath.settles();
    aftermath.end();
}

#[test]
fn processes_of_several_namespaces_with_one_number_are_several_processes() {
    two_namespaces_with_one_region(false);
}

#[test]
fn processes_of_several_users_namespaces_with_one_number_are_several_processes() {
    two_namespaces_with_one_region(true);
}

/// Asserts that a host that starts now is refused and says so in one line with `words` in it.
#[track_caller]
fn refused(aftermath: &Aftermath, words: &str) {
    let outcome = aftermath.bench.host("refused", &[]).loaded().run();
    assert!(outcome.err.lines().count() == 1 && outcome.err.contains(words), "{words}: {outcome}");
    outcome.contains(&["init 800"]);
}

#[test]
fn a_full_table_refuses_the_next_program_until_a_place_is_free() {
    let mut aftermath = Aftermath::new();
    let join = || Member::join(&aftermath.bench.region(), Trust::AnyOwner, &[]).unwrap().0;
    let mut members: Vec<_> = (1..MAX_SLOTS).map(|_| join()).collect();
    refused(&aftermath, "1024");
    assert_eq!(aftermath.take(QUOTA - HELD), 0, "the living members go on");
    members.pop().unwrap().leave();
    let host = holder(&aftermath, "return");
    keeps(&mut aftermath, MAX_SLOTS - 1);
    drop(host);
    members.into_iter().for_each(Member::leave);
    aftermath.settles();
    aftermath.end();
}

/// Ways to unwind a stack: an exception or the end of a thread through a call of the library. Others are an exception or a jump
/// in a function that the driver calls, or out of it.
const UNWINDINGS: &[&str] = &[
    "through",
    "cancel",
    "cancel_inside",
    "leave",
    "caught",
    "callback",
    "jumped",
    "thrown",
    "thrown_callback",
];

/// Lets a host that holds its piece run to its end, and calls `then` once the host has done its part. Returns its lines, its end
/// and its standard error.
fn played(mut host: Living, then: impl FnOnce()) -> (Vec<String>, String, String) {
    host.order("go");
    let mut lines: Vec<_> = std::iter::from_fn(|| host.hear()).take_while(|line| line != "done").collect();
    if !lines.is_empty() {
        then();
        host.order("end");
        lines.extend(std::iter::from_fn(|| host.hear()));
    }
    let (status, said) = host.end();
    (lines, ended(status), said)
}

#[test]
fn an_unwound_stack_ends_as_without_the_library_and_leaves_nothing() {
    let host = compiler::linked("unwinds.cc", "unwinds", &["-std=gnu++17", "-lstdc++"]);
    let flags = ["-shared", "-fPIC", "-std=gnu++17", "-lstdc++"];
    let wrapper = compiler::compile("wrap_throw.cc", "wrap_throw.so", &flags);
    let (Some(host), Some(wrapper)) = (host, wrapper) else {
        return skip("C++ exceptions: there is no C++ compiler; to mend it: apt-get install g++");
    };
    let mut aftermath = Aftermath::new();
    for way in UNWINDINGS {
        let alone = Bench::simulated_without_contexts();
        let bare = alone.program(&host, &[way]).preload(&wrapper).start();
        assert_eq!(bare.hear().as_deref(), Some("holds"), "{way}");
        let loaded = aftermath.bench.program(&host, &[way]).loaded().preload(&wrapper).start();
        assert_eq!(loaded.hear().as_deref(), Some("holds"), "{way}");
        keeps(&mut aftermath, 1);
        let bare = played(bare, || ());
        assert!(!bare.0.is_empty() || bare.1 == "signal 6", "{way} does something: {bare:?}");
        // The library cannot know if the driver granted the memory of an abandoned call, so that memory stays charged.
        let is_covered = || {
            let (ledger, truth) = (aftermath.ledger(), aftermath.bench.truth(0).living());
            assert!(ledger >= truth, "{way}: {ledger} charged, {truth} taken");
        };
        assert_eq!(played(loaded, is_covered), bare, "{way}");
        aftermath.settles();
    }
    aftermath.end();
}

#[test]
fn a_time_of_day_that_is_set_all_the_time_changes_nothing() {
    let bench = Bench::simulated_without_contexts().with("GPU_MEM_LIMIT", &QUOTA.to_string());
    let clocks = bench.file("clocks", "");
    let clock = compiler::wrapper("wrap_clock");
    let member = || {
        let host = bench.host("witness", &[&HELD.to_string()]).loaded().preload(&clock);
        let host = host.set("CLOCKS", &clocks.display().to_string()).start();
        assert_eq!(host.hear().as_deref(), Some("ready"));
        host
    };
    let (mut one, mut other) = (member(), member());
    let rest = QUOTA - 2 * HELD;
    for (asked, status) in [(rest, 0), (rest + 1, 2)] {
        let answer = one.numbers(&format!("take {asked}"));
        assert!(answer[0] == status && answer[1] < 1_000_000, "{answer:?}");
    }
    assert_eq!(one.ask("left"), format!("0 {rest}"));
    other.kill();
    let answer = one.numbers(&format!("take {}", QUOTA - HELD));
    assert!(answer[0] == 0 && answer[1] < 1_000_000, "{answer:?}");
    assert!(one.end().0.success());
    // The clock was set forth and back, because the simulated driver reads it. The library never reads it.
    assert_eq!(std::fs::read_to_string(&clocks).unwrap(), "asked 0\n");
}
