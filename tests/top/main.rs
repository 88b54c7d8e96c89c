//! `gpuslice top`: shows the figures of regions, changes limits, and leaves every terminal as it was.
//!
//! The program runs in a pseudo-terminal. A terminal emulator reads the screen that its user sees.
//!
//! It is a binary of its own. Some tests suspend the program, perhaps while it holds the lock of another test's region.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(clippy::indexing_slicing, reason = "a test")]

mod changes;
mod endings;
mod figures;
mod hosts;
#[path = "../support/mod.rs"]
mod support;

use gpuslice_policy::config::{CorePolicy, Priority};
use gpuslice_policy::time::{GpuTime, WallTime};
use gpuslice_region::{Limits, Sharing};
use std::process::Command;
use support::command::{GIB, OwnSlice, PROGRAM};
use support::terminal::Terminal;

const USUAL: (u16, u16) = (80, 24);

/// Starts a program with a terminal, and with an environment of `PATH`, `TERM`, `LANG` and `variables`.
fn sit(program: &str, arguments: &[&str], size: (u16, u16), variables: &[(&str, &str)]) -> Terminal {
    let usual = [("PATH", "/usr/bin:/bin"), ("TERM", "xterm-256color"), ("LANG", "C.UTF-8")];
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(usual).envs(variables.iter().copied());
    Terminal::sized(&mut command, size)
}

fn top(arguments: &[&str], size: (u16, u16)) -> Terminal {
    sit(PROGRAM, &[&["top"], arguments].concat(), size, &[])
}

/// Starts `top` on one slice, with ten looks a second.
fn watch(slice: &OwnSlice, size: (u16, u16)) -> Terminal {
    top(&[&slice.name, "--interval", "0.1"], size)
}

/// Makes a folder of the test's own. The region of a slice that ends lies in one, because commands of other tests remove unused
/// regions from the usual folder.
fn own_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a folder can be made")
}

/// Makes a slice in which most figures have a value.
fn telling(of: &str) -> OwnSlice {
    let slice = OwnSlice::join(of);
    let (device, member) = (slice.device(0x11), &slice.member);
    let sharing = Sharing { policy: CorePolicy::BestEffort, priority: Priority::High, weight: 250 };
    let limits = member.limits(device);
    member.set_limits(device, Limits { cores_permille: 300, sharing, ..limits });
    member.reserve(device, 6 * GIB).expect("it fits");
    assert_eq!(member.refund(device, 3 * GIB), 0);
    member.count_throttled(device, WallTime::from_millis(3_100));
    member.set_queued(device, GpuTime::from_millis(12));
    member.count_quota_denial(device);
    member.count_device_denial(device);
    member.count_device_denial(device);
    member.spill(device, GIB / 2);
    member.begin_context(device, GIB / 4);
    slice
}

/// Starts `top` on one region, with ten looks a second.
fn watch_path(path: &std::path::Path) -> Terminal {
    top(&[&path.display().to_string(), "--interval", "0.1"], USUAL)
}
