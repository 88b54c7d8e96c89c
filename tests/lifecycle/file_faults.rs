//! Faults of a region's file: removed, replaced, shortened, overwritten, locked, or without room on its file system.

use crate::support::aftermath::{Aftermath, HELD, QUOTA};
use crate::support::bench::Bench;
use crate::support::living::Living;
use crate::support::other_user::is_root;
use crate::support::outcome::Outcome;
use crate::support::outcome::but_refusals;
use crate::support::timed::within;
use crate::support::{compiler, skip_without_rights};
use gpuslice_region::layout::JOIN_LOCK_OFFSET;
use gpuslice_region::{Monitor, Trust};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Asserts that the next program is refused and says so in one line with `words` in it.
#[track_caller]
fn is_refused(outcome: &Outcome, words: &str) {
    assert!(outcome.err.lines().count() == 1 && outcome.err.contains(words), "{words}: {outcome}");
    outcome.contains(&["init 800", "nvml 4"]);
    assert!(outcome.ended == "exit 0" && outcome.out.contains(", nothing"), "{outcome}");
}

/// Runs the next program of a slice that has its witness.
fn next(aftermath: &Aftermath) -> Outcome {
    aftermath.bench.host("refused", &[]).loaded().run()
}

/// Starts members with 0, 1 and 8 threads that allocate and free all the time.
fn survivors(aftermath: &Aftermath) -> Vec<Living> {
    let start = |threads: &u32| {
        let host = aftermath.bench.host("survivor", &[&threads.to_string()]).loaded().start();
        assert_eq!(host.hear().as_deref(), Some("ready"));
        host
    };
    [0, 1, 8].iter().map(start).collect()
}

/// Asserts that each member is refused, because the slice's limits cannot be kept any more. Within a second each member prints
/// one line with `words`, gets no more memory, and can free the memory that it has.
#[track_caller]
fn are_refused(aftermath: Aftermath, survivors: Vec<Living>, words: &str) {
    within(Duration::from_secs(1), Duration::ZERO, || {
        for host in survivors.iter().skip(1) {
            assert_eq!(host.hear().as_deref(), Some("refused"));
        }
    });
    for (number, mut host) in survivors.into_iter().enumerate() {
        let expected = if number == 0 {
            // The first allocation after the fault detects it.
            "threads 0, then 800 800, create 800, graph 800, init 800"
        } else {
            "threads 800, then 800 800, create 800, graph 800, init 800"
        };
        assert_eq!(host.ask("tell"), expected);
        assert_eq!(host.hear().as_deref(), Some("gives 0"));
        let (status, said) = host.end();
        let said = but_refusals(&said);
        assert!(status.success() && said.lines().count() == 1 && said.contains(words), "{status}: {said}");
    }
    aftermath.ends_without_its_region(words);
}

/// Bytes that a host takes beside the witness.
const PIECE: u64 = 8 << 20;

/// Makes the slice lose its file. Asserts that its members still share the quota, even the part of a dead member, and that each
/// prints once that the file is gone.
#[track_caller]
fn members_go_on(lose: impl FnOnce(&Aftermath)) -> Aftermath {
    const REST: u64 = QUOTA - HELD - PIECE;
    let mut aftermath = Aftermath::new();
    let mut host = aftermath.bench.host("deaths", &["return"]).loaded().start();
    assert_eq!(host.hear().as_deref(), Some("holds"));
    lose(&aftermath);
    assert_eq!((aftermath.take(REST + 1), aftermath.take(REST)), (2, 0));
    aftermath.holds(PIECE, 1);
    host.kill();
    aftermath.settles();
    aftermath
}

#[test]
fn members_of_a_removed_region_go_on_and_no_second_slice_is_made() {
    let mut aftermath = members_go_on(|aftermath| {
        std::fs::remove_file(aftermath.bench.region()).unwrap();
        is_refused(&next(aftermath), "BENCH/region: was removed while in use by processes");
        assert!(!aftermath.bench.region().exists());
    });
    is_refused(
        &next(&aftermath),
        &format!("was removed while in use by process {},", aftermath.witness.pid()),
    );
    assert_eq!(aftermath.take(QUOTA - HELD), 0);
    // `status` with the path of the region says so, too.
    let mut status = Command::new(env!("CARGO_BIN_EXE_gpuslice"));
    let status = status.arg("status").arg(aftermath.bench.region()).output().unwrap();
    let said = String::from_utf8_lossy(&status.stderr);
    assert!(
        status.status.code() == Some(1) && said.contains("was removed while in use by process"),
        "{said}"
    );
    let region = aftermath.bench.region();
    aftermath.ends_saying("was removed or replaced");
    assert!(!region.exists());
}

#[test]
fn members_of_a_replaced_region_go_on() {
    let aftermath = members_go_on(|aftermath| {
        std::fs::remove_file(aftermath.bench.region()).unwrap();
        aftermath.bench.file("region", "somebody's notes\n");
        is_refused(&next(aftermath), "BENCH/region");
    });
    assert_eq!(std::fs::read_to_string(aftermath.bench.region()).unwrap(), "somebody's notes\n");
    aftermath.ends_saying("was removed or replaced");
}

/// Takes the lock under which processes join, as another process. The lock is held as long as the file is open.
fn hold_the_join_lock(path: &Path) -> std::fs::File {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    // SAFETY: `flock` consists of integers, for which all zeros is a valid value.
    let mut byte: libc::flock = unsafe { std::mem::zeroed() };
    byte.l_type = libc::F_WRLCK.try_into().unwrap();
    byte.l_start = JOIN_LOCK_OFFSET.try_into().unwrap();
    byte.l_len = 1;
    let until = Instant::now() + Duration::from_secs(10);
    // SAFETY: `F_OFD_SETLK` needs an open descriptor and reads one `flock`; `file` is open, and `byte` is a `flock`.
    while unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const byte) } == -1 {
        assert!(Instant::now() < until, "the join lock is not to be had");
        std::thread::yield_now();
    }
    file
}

#[test]
fn a_join_lock_that_is_held_for_ever_refuses_newcomers_and_holds_up_no_member() {
    const REST: u64 = QUOTA - HELD - PIECE;
    let mut aftermath = Aftermath::new();
    let mut host = aftermath.bench.host("deaths", &["return"]).loaded().start();
    assert_eq!(host.hear().as_deref(), Some("holds"));
    let lock = hold_the_join_lock(&aftermath.bench.region());
    assert_eq!((aftermath.take(REST + 1), aftermath.take(REST)), (2, 0));
    is_refused(&next(&aftermath), "has been joining for more than 1000 ms and may be suspended");
    // No process can clear the charge of the dead member. The others still get a status, each within a second.
    host.kill();
    assert_eq!((aftermath.take(REST + 1), aftermath.take(REST)), (2, 0));
    drop(lock);
    aftermath.settles();
    let late = aftermath.bench.host("deaths", &["return"]).loaded().start();
    assert_eq!(late.hear().as_deref(), Some("holds"));
    drop(late);
    aftermath.settles();
    aftermath.end();
}

#[test]
fn a_shortened_region_refuses_all_and_ends_no_process() {
    for (size, words) in [(0, "begins with"), (4096, "size 4096"), (20_000, "size 20000")] {
        let aftermath = Aftermath::new();
        let survivors = survivors(&aftermath);
        let file = OpenOptions::new().write(true).open(aftermath.bench.region()).unwrap();
        file.set_len(size).unwrap();
        is_refused(&next(&aftermath), words);
        are_refused(aftermath, survivors, "was shortened or overwritten");
    }
}

#[test]
fn an_emptied_region_refuses_all_and_ends_no_process() {
    let aftermath = Aftermath::new();
    let survivors = survivors(&aftermath);
    let file = OpenOptions::new().write(true).open(aftermath.bench.region()).unwrap();
    let size = file.metadata().unwrap().len();
    file.set_len(0).unwrap();
    file.set_len(size).unwrap();
    is_refused(&next(&aftermath), "begins with");
    are_refused(aftermath, survivors, "was shortened or overwritten");
}

#[test]
fn a_region_that_is_scribbled_on_ends_no_process() {
    let mut chance: u64 = 1;
    let mut draw = |below: u64| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % below
    };
    let aftermath = Aftermath::new();
    let survivors = survivors(&aftermath);
    let file = OpenOptions::new().write(true).open(aftermath.bench.region()).unwrap();
    let size = file.metadata().unwrap().len();
    for round in 0..200_000_u64 {
        // Most writes hit parts that are in use: the header, the devices and the first processes.
        let at = [64, 4096 + 256, 12_288 + 1024, size][usize::try_from(round % 4).unwrap()];
        let word = [0, 1, u64::MAX, draw(1 << 31) << draw(33)][usize::try_from(draw(4)).unwrap()];
        file.write_all_at(&word.to_ne_bytes(), draw(at / 8 - 3) * 8 + 24).unwrap();
    }
    let newcomer = next(&aftermath);
    assert_eq!(newcomer.ended, "exit 0", "{newcomer}");
    file.set_len(0).unwrap();
    for (number, mut host) in survivors.into_iter().enumerate() {
        if number > 0 {
            assert_eq!(host.hear().as_deref(), Some("refused"));
        }
        let answer = host.ask("tell");
        assert!(answer.ends_with(" 800, create 800, graph 800, init 800"), "{answer}");
        assert_eq!(host.hear().as_deref(), Some("gives 0"));
        let (status, said) = host.end();
        let said = but_refusals(&said);
        assert!(status.success() && said.lines().count() == 1 && said.contains("while this slice"), "{said}");
    }
    aftermath.ends_without_its_region("while this slice");
}

#[test]
fn a_command_that_looks_at_a_shortened_region_reports_it_and_is_not_ended() {
    let aftermath = Aftermath::new();
    let file = OpenOptions::new().write(true).open(aftermath.bench.region()).unwrap();
    let monitor = Monitor::open(&aftermath.bench.region(), Trust::AnyOwner).unwrap().unwrap();
    file.set_len(4096).unwrap();
    for words in [["status", "REGION"].as_slice(), &["set", "REGION", "--mem", "1GiB"]] {
        let region = aftermath.bench.region().display().to_string();
        let words: Vec<_> = words.iter().map(|word| word.replace("REGION", &region)).collect();
        let output = Command::new(env!("CARGO_BIN_EXE_gpuslice")).args(&words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("size 4096"), "{output:?}");
    }
    // A process that had the region open reads zeroes.
    assert_eq!((monitor.processes().len(), monitor.devices().len(), monitor.is_ready()), (0, 0, false));
}

/// Ways in which the program handles SIGBUS, each with sources of the signal.
const BUSES: &[(&str, &[&str])] = &[
    ("default", &["fault", "kill", "raise", "queue", "thread", "blocked"]),
    ("ignore", &["fault", "kill", "queue", "blocked"]),
    ("plain", &["fault", "kill", "thread"]),
    ("detailed", &["fault", "kill", "raise", "queue", "thread", "blocked"]),
    ("mask", &["fault", "queue"]),
    ("nodefer", &["fault", "queue"]),
    ("once", &["fault", "queue"]),
    ("stack", &["fault", "queue", "thread"]),
    ("returning", &["fault", "queue"]),
    ("late_detailed", &["fault", "queue", "thread"]),
];

#[test]
fn a_bus_error_of_the_programs_own_reaches_it_as_without_the_library() {
    let bench = Bench::simulated_without_contexts();
    for (handler, sources) in BUSES {
        for source in *sources {
            let bare = bench.host("buses", &[handler, source]).run();
            bench.host("buses", &[handler, source]).limited("64MiB").run().same_as(&bare);
        }
    }
}

#[test]
fn members_go_on_when_their_region_says_that_it_is_newer_older_or_no_region() {
    const VERSION_OFFSET: u64 = 8;
    let cases: [(&[u8], u64, &str); 3] = [
        (&999_u32.to_ne_bytes(), VERSION_OFFSET, "version 999"),
        (&0_u32.to_ne_bytes(), VERSION_OFFSET, "version 0"),
        (b"somebody", 0, "begins with \"somebody\""),
    ];
    for (bytes, offset, words) in cases {
        let mut aftermath = Aftermath::new();
        let file = OpenOptions::new().write(true).open(aftermath.bench.region()).unwrap();
        file.write_all_at(bytes, offset).unwrap();
        is_refused(&next(&aftermath), words);
        assert_eq!((aftermath.take(QUOTA - HELD), aftermath.take(QUOTA - HELD + 1)), (0, 2));
        aftermath.end();
    }
}

/// Runs a program whose region would lie on a file system that is mounted with `options`.
fn on_a_file_system(options: &str) -> Option<Outcome> {
    if !is_root() {
        skip_without_rights("a region on a full or read-only file system");
        return None;
    }
    let bench = Bench::simulated_without_contexts();
    let place = bench.file("place", "");
    std::fs::remove_file(&place).unwrap();
    std::fs::create_dir(&place).unwrap();
    let program = compiler::plain("refused").display().to_string();
    let line = "mount -t tmpfs -o \"$0\" none place && exec \"$1\"";
    let words = ["--mount", "/bin/sh", "-c", line, options, &program];
    let host = bench.program(Path::new("/usr/bin/unshare"), &words).limited("64MiB");
    let outcome = host.set("GPUSLICE_REGION", &place.join("region").display().to_string()).run();
    if outcome.err.contains("unshare") || outcome.err.contains("mount") {
        skip_without_rights("a region on a full or read-only file system");
        return None;
    }
    Some(outcome)
}

#[test]
fn a_full_disk_refuses() {
    let Some(outcome) = on_a_file_system("size=64k") else { return };
    is_refused(&outcome, "No space left on device");
}

#[test]
fn a_read_only_disk_refuses() {
    let Some(outcome) = on_a_file_system("ro") else { return };
    is_refused(&outcome, "Read-only file system");
}

#[test]
fn signals_while_a_region_gets_its_space_refuse_nothing() {
    let bench = Bench::simulated_without_contexts();
    let wrapper = compiler::wrapper("wrap_fallocate");
    let outcome = bench.host("refused", &[]).limited("64MiB").preload(&wrapper).run().quiet();
    outcome.contains(&["init 0", "interrupted, and tried again"]);
}

#[test]
fn a_kernel_that_empties_no_page_at_a_fork_refuses_from_the_first_call_on() {
    let bench = Bench::simulated_without_contexts();
    let outcome = bench.host("refused", &[]).limited("64MiB").preload(&compiler::wrapper("wrap_wipe")).run();
    outcome.contains(&["init 800", "init again 800"]);
    assert!(outcome.ended == "exit 0" && outcome.err.contains("GPU work is refused"), "{outcome}");
}
