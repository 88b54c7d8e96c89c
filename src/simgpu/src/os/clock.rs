//! The monotonic clock.

/// Nanoseconds in a millisecond.
pub(crate) const MS: u64 = 1_000_000;

/// Returns the time of the monotonic clock in nanoseconds. All processes of the machine share this clock.
#[must_use]
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` needs room for a `timespec`: `time` is one.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Sleeps until [`now`] returns `instant`.
pub(crate) fn sleep_until(instant: u64) {
    let seconds = libc::time_t::try_from(instant / 1_000_000_000).unwrap_or(libc::time_t::MAX);
    let nanos = libc::c_long::try_from(instant % 1_000_000_000).unwrap_or(0);
    let time = libc::timespec { tv_sec: seconds, tv_nsec: nanos };
    loop {
        // SAFETY: `clock_nanosleep` needs a `timespec` to read: `time` is one. The remainder may be null,
        // because the instant is absolute.
        let result = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &raw const time,
                core::ptr::null_mut(),
            )
        };
        if result != libc::EINTR {
            return;
        }
    }
}
