//! What happens to a slice when something happens to its file, or when there is no room for one?
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod support;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use support::aftermath::{Aftermath, HELD, QUOTA};
use support::bench::Bench;
use support::outcome::Outcome;
use support::{compiler, skip};

/// The next program is refused, and says so in one line with these words.
#[track_caller]
fn is_refused(outcome: &Outcome, words: &str) {
    assert!(outcome.err.lines().count() == 1 && outcome.err.contains(words), "{words}: {outcome}");
    outcome.contains(&["init 800", "nvml 4"]);
    assert!(outcome.ended == "exit 0" && outcome.out.contains(", nothing"), "{outcome}");
}

/// The next program in a slice that has its witness.
fn next(aftermath: &Aftermath) -> Outcome {
    aftermath.bench.host("refused", &[]).loaded().run()
}

#[test]
fn members_go_on_when_their_region_is_removed() {
    let mut aftermath = Aftermath::new();
    std::fs::remove_file(aftermath.bench.region()).unwrap();
    assert_eq!((aftermath.take(QUOTA - HELD), aftermath.take(QUOTA - HELD + 1)), (0, 2));
    // A newcomer finds no region and begins another slice: whoever may remove the file may do that.
    next(&aftermath).quiet().contains(&["init 0"]);
    assert!(aftermath.bench.region().exists());
    assert_eq!((aftermath.take(QUOTA - HELD), aftermath.take(QUOTA - HELD + 1)), (0, 2));
    aftermath.end();
}

#[test]
fn members_go_on_when_something_else_stands_in_the_place_of_their_region() {
    let mut aftermath = Aftermath::new();
    std::fs::remove_file(aftermath.bench.region()).unwrap();
    aftermath.bench.file("region", "somebody's notes\n");
    is_refused(&next(&aftermath), "BENCH/region");
    assert_eq!((aftermath.take(QUOTA - HELD), aftermath.take(QUOTA - HELD + 1)), (0, 2));
    assert_eq!(std::fs::read_to_string(aftermath.bench.region()).unwrap(), "somebody's notes\n");
    aftermath.end();
}

#[test]
fn members_go_on_when_their_region_says_that_it_is_newer() {
    const VERSION_OFFSET: u64 = 8;
    let mut aftermath = Aftermath::new();
    let file = OpenOptions::new().write(true).open(aftermath.bench.region()).unwrap();
    file.write_all_at(&999_u32.to_ne_bytes(), VERSION_OFFSET).unwrap();
    is_refused(&next(&aftermath), "999");
    assert_eq!((aftermath.take(QUOTA - HELD), aftermath.take(QUOTA - HELD + 1)), (0, 2));
    aftermath.end();
}

/// Runs a program whose region would lie on a file system of its own, mounted with these options.
fn on_a_file_system(options: &str) -> Option<Outcome> {
    // SAFETY: the call has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        skip("file systems to mount: only root can; run the tests as root, in a container for example");
        return None;
    }
    let bench = Bench::simulated();
    let place = bench.file("place", "");
    std::fs::remove_file(&place).unwrap();
    std::fs::create_dir(&place).unwrap();
    let program = compiler::plain("refused").display().to_string();
    let line = "mount -t tmpfs -o \"$0\" none place && exec \"$1\"";
    let words = ["--mount", "/bin/sh", "-c", line, options, &program];
    let host = bench.program(Path::new("/usr/bin/unshare"), &words).limited("64MiB");
    let outcome = host.set("GPUSLICE_REGION", &place.join("region").display().to_string()).run();
    if outcome.err.contains("unshare") || outcome.err.contains("mount") {
        skip("file systems to mount: not allowed here; give the container CAP_SYS_ADMIN");
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
