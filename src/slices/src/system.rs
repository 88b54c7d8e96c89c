//! Asks the C library about users and clocks, for which the standard library has no functions.
#![allow(unsafe_code, reason = "calls the C library")]

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
    // SAFETY: `entry` and `found` have room for the answer, and `texts` has as many bytes as its length says.
    let code = unsafe { libc::getpwuid_r(user, entry.as_mut_ptr(), texts, room.len(), &raw mut found) };
    if code != 0 || found.is_null() {
        return None;
    }
    // SAFETY: `found` is not null, so it leads to `entry`, which the call has filled in.
    let name = unsafe { (*found).pw_name };
    // SAFETY: `pw_name` of a filled entry is a text that ends in zero; it lies in `room`, which lives on.
    Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

/// Returns the number of clock ticks of a second, by which `/proc` counts.
pub(crate) fn ticks_per_second() -> u64 {
    // SAFETY: `sysconf` takes a number, and only reads.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1)
}
