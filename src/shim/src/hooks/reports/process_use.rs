//! NVML's utilization by process: on a device of which the slice has a part, only that of members.

use super::entries::{Listed, deliver};
use super::members::{Members, members, sharers};
use super::versioned::{Opened, Versioned, ask_all, open};
use crate::driver_calls::nvml::answers::ask;
use crate::os::reentrancy::quietly;
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
    // SAFETY: the caller's own arguments.
    let is_question = samples.is_null() || unsafe { read_in(count) }.unwrap_or(0) == 0;
    let Some(members) = sharers(device).filter(|_| !is_question) else {
        // SAFETY: the caller's own arguments. Room for the samples of all is room enough for the slice's.
        return unsafe { real(device, samples, count, last_seen) };
    };
    // SAFETY: room for as many entries as the count says.
    let answer = ask(|count, samples| unsafe { real(device, samples, count, last_seen) });
    // SAFETY: the caller's own arguments.
    unsafe { deliver_samples(&members, answer, count, samples) }
}

/// `nvmlDeviceGetProcessesUtilizationInfo`.
pub(crate) unsafe fn utilization_list(
    real: real::nvmlDeviceGetProcessesUtilizationInfo,
    device: nvmlDevice_t,
    list: *mut nvmlProcessesUtilizationInfo_t,
) -> Status {
    // SAFETY: the caller's own arguments.
    let (members, asked) = match unsafe { open(sharers(device), list) } {
        Opened::Slice(members, asked) if !asked.room().is_null() && asked.count() > 0 => (members, asked),
        Opened::Refused(code) => return code,
        // SAFETY: the caller's own arguments. Room for the samples of all is room enough for the slice's.
        Opened::Slice(..) | Opened::Driver => return unsafe { real(device, list) },
    };
    let answer = ask_all(real, device, asked);
    // SAFETY: the caller's list, of the version that has this field.
    let place = unsafe { Versioned::place_of_count(list) };
    // SAFETY: the caller's own arguments.
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
        // SAFETY: the caller's own arguments.
        return unsafe { real(device, count, pids) };
    };
    // SAFETY: room for as many entries as the count says.
    match ask(|count, pids| unsafe { real(device, count, pids) }) {
        Ok((found, length)) => {
            let shown = quietly(|| members.own(found.into_iter().take(length)), Vec::new());
            // SAFETY: the caller's own arguments.
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
    // SAFETY: the caller's own arguments.
    unsafe { real(device, pid, stats) }
}

/// `nvmlDeviceGetAccountingStats_v2`.
pub(crate) unsafe fn accounting_stats_v2(
    real: real::nvmlDeviceGetAccountingStats_v2,
    device: nvmlDevice_t,
    stats: *mut nvmlAccountingStats_v2_t,
) -> Status {
    // SAFETY: the caller's own argument, which begins with the process number.
    let pid = unsafe { read_in(stats.cast::<c_uint>()) };
    if members(device).zip(pid).is_some_and(|(members, pid)| !members.has(pid)) {
        return status::NVML_NOT_FOUND;
    }
    // SAFETY: the caller's own arguments.
    unsafe { real(device, stats) }
}

/// Gives the caller samples. Where there are none of the slice it is as if nothing had been sampled.
///
/// # Safety
/// As [`deliver`].
unsafe fn deliver_samples<T: Copy + Listed>(
    members: &Members,
    answer: Result<(Vec<T>, usize), Status>,
    count: *mut c_uint,
    to: *mut T,
) -> Status {
    let own = |(samples, length): (Vec<T>, usize)| members.own_uses(samples.into_iter().take(length));
    match answer.map(|answer| quietly(|| own(answer), Vec::new())) {
        Ok(shown) if !shown.is_empty() => {
            // SAFETY: by the contract above.
            unsafe { deliver(&shown, count, to) }
        }
        Ok(_) | Err(status::NVML_NOT_FOUND) => {
            // SAFETY: by the contract above.
            unsafe { write_out(count, 0) };
            status::NVML_NOT_FOUND
        }
        Err(code) => code,
    }
}
