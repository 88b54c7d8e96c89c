//! Asks the C library about users, clocks and limits. The standard library has no functions for these.
#![allow(unsafe_code, reason = "calls the C library")]

use rustix::process::{Resource, Rlimit};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;

/// Returns the name of a user, or `None` if the machine knows none.
#[must_use]
pub fn user_name(user: u32) -> Option<String> {
    let mut room = vec![0_u8; 16 << 10];
    let mut entry = MaybeUninit::<libc::passwd>::zeroed();
    let mut found: *mut libc::passwd = ptr::null_mut();
    let texts = room.as_mut_ptr().cast::<libc::c_char>();
    // SAFETY: `entry` and `found` can hold the answer, and `texts` points to the `room.len()` bytes of `room`.
    let code = unsafe { libc::getpwuid_r(user, entry.as_mut_ptr(), texts, room.len(), &raw mut found) };
    if code != 0 || found.is_null() {
        return None;
    }
    // SAFETY: `found` is not null, so it points to `entry`, which `getpwuid_r` has filled in.
    let name = unsafe { (*found).pw_name };
    // SAFETY: `pw_name` of a filled entry points to a text that ends in zero. The text lies in `room`, which is still alive.
    Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

/// Lets this process have as many open files as it may. The usual soft limit is 1024, and each slice that a program reads takes
/// up to three.
///
/// A child inherits the limit. Programs that use `select` misbehave with larger descriptors, so a process that starts programs
/// of users does not call this function.
pub fn allow_more_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _keeps_its_limit =
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Returns the number of clock ticks in a second. `/proc` counts time in these ticks.
pub(crate) fn ticks_per_second() -> u64 {
    // SAFETY: `sysconf` accepts any number, and gets no pointer.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1)
}
