//! NVML's utilization by process: on a device of which the slice has a part, only that of members.

use super::entries::{Listed, deliver};
use super::members::{Members, members, sharers};
use super::versioned::{OpenedList, Versioned, ask_all, open};
use crate::driver_calls::nvml::answers::ask;
use crate::os::reentrancy::enter_or;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    Status, c_uint, c_ulonglong, nvmlAccountingStats_t, nvmlAccountingStats_v2_t, nvmlDevice_t,
    nvmlProcessUtilizationSample_t, nvmlProcessesUtilizationInfo_t, status,
};

/// `nvmlDeviceGetProcessUtilization`.
pub(crate) unsafe fn utilization(
    real: real::nvmlDeviceGetProcessUtilization,
    device: nvmlDevice_t,
    samples: *mut nvmlProcessUtilizationSample_t,
    count: *mut c_uint,
    last_seen: c_ulonglong,
) -> Status {
    // SAFETY: `read_in` requires that `count` is null or readable, and so does the driver.
    let is_question = samples.is_null() || unsafe { read_in(count) }.unwrap_or(0) == 0;
    let Some(members) = sharers(device).filter(|_| !is_question) else {
        // Room for the samples of all processes is enough for the slice's.
        // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
        return unsafe { real(device, samples, count, last_seen) };
    };
    // SAFETY: `real` requires room for as many entries as `count` says, and `ask` provides it.
    let answer = ask(|count, samples| unsafe { real(device, samples, count, last_seen) });
    // SAFETY: `deliver_samples` requires room for `count` entries at `samples`, and so does the driver.
    unsafe { deliver_samples(&members, answer, count, samples) }
}

/// `nvmlDeviceGetProcessesUtilizationInfo`.
pub(crate) unsafe fn utilization_list(
    real: real::nvmlDeviceGetProcessesUtilizationInfo,
    device: nvmlDevice_t,
    list: *mut nvmlProcessesUtilizationInfo_t,
) -> Status {
    // SAFETY: `open` requires null or a list of the version that it says, and so does the driver.
    let (members, asked) = match unsafe { open(sharers(device), list) } {
        OpenedList::Slice(members, asked) if !asked.room().is_null() && asked.count() > 0 => (members, asked),
        OpenedList::Refused(code) => return code,
        // Room for the samples of all processes is enough for the slice's.
        // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
        OpenedList::Slice(..) | OpenedList::Driver => return unsafe { real(device, list) },
    };
    let answer = ask_all(real, device, asked);
    // SAFETY: `place_of_count` requires a list with all of its fields. `open` has found the version that has them.
    let place = unsafe { Versioned::place_of_count(list) };
    // SAFETY: `deliver_samples` requires room for as many entries as the list says, and so does the driver.
    unsafe { deliver_samples(&members, answer, place, asked.room()) }
}

/// `nvmlDeviceGetAccountingPids`.
pub(crate) unsafe fn accounting(
    real: real::nvmlDeviceGetAccountingPids,
    device: nvmlDevice_t,
    count: *mut c_uint,
    pids: *mut c_uint,
) -> Status {
    let Some(members) = members(device).filter(|_| !count.is_null()) else {
        // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
        return unsafe { real(device, count, pids) };
    };
    // SAFETY: `real` requires room for as many entries as `count` says, and `ask` provides it.
    match ask(|count, pids| unsafe { real(device, count, pids) }) {
        Ok((found, length)) => {
            let shown = enter_or(|| members.own(found.into_iter().take(length)), Vec::new());
            // SAFETY: `deliver` requires room for `count` entries at `pids`, and so does the driver.
            unsafe { deliver(&shown, count, pids) }
        }
        Err(code) => code,
    }
}

/// `nvmlDeviceGetAccountingStats`.
pub(crate) unsafe fn accounting_stats(
    real: real::nvmlDeviceGetAccountingStats,
    device: nvmlDevice_t,
    pid: c_uint,
    stats: *mut nvmlAccountingStats_t,
) -> Status {
    if members(device).is_some_and(|members| !members.has(pid)) {
        return status::NVML_NOT_FOUND;
    }
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    unsafe { real(device, pid, stats) }
}

/// `nvmlDeviceGetAccountingStats_v2`.
pub(crate) unsafe fn accounting_stats_v2(
    real: real::nvmlDeviceGetAccountingStats_v2,
    device: nvmlDevice_t,
    stats: *mut nvmlAccountingStats_v2_t,
) -> Status {
    // SAFETY: `read_in` requires null or a readable number. The driver reads `stats`, which begins with the process number.
    let pid = unsafe { read_in(stats.cast::<c_uint>()) };
    if members(device).zip(pid).is_some_and(|(members, pid)| !members.has(pid)) {
        return status::NVML_NOT_FOUND;
    }
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    unsafe { real(device, stats) }
}

/// Gives the caller samples. If none is about the slice, the answer is that nothing was sampled.
///
/// # Safety
/// `count` is null or the caller's, and says how many entries there is room for at `to`, which may be null.
unsafe fn deliver_samples<T: Copy + Listed>(
    members: &Members,
    answer: Result<(Vec<T>, usize), Status>,
    count: *mut c_uint,
    to: *mut T,
) -> Status {
    let own = |(samples, length): (Vec<T>, usize)| members.own_uses(samples.into_iter().take(length));
    match answer.map(|answer| enter_or(|| own(answer), Vec::new())) {
        Ok(shown) if !shown.is_empty() => {
            // SAFETY: `deliver` requires the same of `count` and `to` as this function.
            unsafe { deliver(&shown, count, to) }
        }
        Ok(_) | Err(status::NVML_NOT_FOUND) => {
            // SAFETY: by this function's contract `count` is null or valid.
            unsafe { write_out(count, 0) };
            status::NVML_NOT_FOUND
        }
        Err(code) => code,
    }
}
