//! Builds and runs hosts for the tests of the whole product.
//!
//! A host is a small C program of `tests/programs`. It runs on a [`bench`]: a driver, and a folder with a state and a region of
//! its own. An [`outcome`] holds its output and its end.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod aftermath;
pub(crate) mod artefacts;
pub(crate) mod bench;
pub(crate) mod cdi;
pub(crate) mod chance;
pub(crate) mod command;
pub(crate) mod compiler;
pub(crate) mod container;
pub(crate) mod executable;
pub(crate) mod families;
pub(crate) mod freshness;
pub(crate) mod host;
pub(crate) mod living;
pub(crate) mod neighbours;
pub(crate) mod other_user;
pub(crate) mod others;
pub(crate) mod outcome;
pub(crate) mod quotas;
pub(crate) mod release;
pub(crate) mod repository;
pub(crate) mod sharers;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod timed;

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;
use std::sync::{Mutex, MutexGuard};

/// Waits until no other test of this program holds the machine, and keeps the machine until the guard ends.
///
/// Tests with shares of time in the default folder need it. The GPUs of two simulated machines have the same UUIDs, so slices of
/// both would count as neighbours on one GPU.
pub(crate) fn machine() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Returns the monotonic clock in nanoseconds. Regions and the simulated GPU use this clock.
pub(crate) fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec`, and `time` is one.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Reports a check that cannot run on this machine, and counts it.
///
/// `reason` is `WHAT: WHY; to mend it: COMMAND` if the command mends it on this machine, and `WHAT: WHY; elsewhere: WHERE`
/// if nothing does. `ci/parts.sh` makes one list for each of the two forms.
pub(crate) fn skip(reason: &str) {
    println!("SKIP {reason}");
    let Ok(path) = std::env::var("SKIP_COUNT_FILE") else { return };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    file.and_then(|mut file| writeln!(file, "{reason}")).expect("SKIP_COUNT_FILE can be written");
}

/// Skips a check in which one thread waits until another one is in a slow call.
pub(crate) fn skip_untold(what: &str) {
    skip(&format!("{what}: /proc tells no system calls; elsewhere: where /proc/PID/syscall can be read"));
}

/// Skips as [`skip`] does, if the right to make namespaces or mounts is missing. The reason for root is the error of `unshare`;
/// for other users the reason is that they are not root.
pub(crate) fn skip_without_rights(what: &str) {
    if !other_user::is_root() {
        return skip(&format!("{what}: needs root; to mend it: run the tests as root"));
    }
    let tried = Command::new("unshare").args(["--mount", "--pid", "--fork", "--mount-proc", "true"]).output();
    let Ok(tried) = tried else {
        return skip(&format!("{what}: there is no unshare; to mend it: apt-get install util-linux"));
    };
    let said = String::from_utf8_lossy(&tried.stderr);
    let why = said.lines().next().unwrap_or("root of this container may not");
    skip(&format!(
        "{what}: {why}; elsewhere: where root may make namespaces and mounts (Docker: --cap-add SYS_ADMIN)"
    ));
}
