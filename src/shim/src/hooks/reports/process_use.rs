//! NVML's utilization by process: on a device of which the slice has a part, only that of members.

use super::entries::{Listed, deliver};
use super::members::{Members, members, sharers};
use super::versioned::{OpenedList, Versioned, ask_all, open};
use crate::driver_calls::nvml::answers::ask;
use crate::hooks::hooked_call::HookedCall;
use crate::os::reentrancy::enter_or;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{Status, c_uint, status};

/// `nvmlDeviceGetProcessUtilization`.
pub(crate) fn utilization(call: &HookedCall<real::nvmlDeviceGetProcessUtilization>) -> Status {
    let (device, samples, count, last_seen) = call.arguments();
    // SAFETY: `read_in` requires that `count` is null or readable, and so does the driver.
    let is_question = samples.is_null() || unsafe { read_in(count) }.unwrap_or(0) == 0;
    let Some(members) = sharers(device).filter(|_| !is_question) else {
        // Room for the samples of all processes is enough for the slice's.
        return call.forward();
    };
    // SAFETY: the function requires room for as many entries as `count` says, and `ask` provides it.
    let answer = ask(|count, samples| unsafe { call.function()(device, samples, count, last_seen) });
    // SAFETY: `deliver_samples` requires room for `count` entries at `samples`, and so does the driver.
    unsafe { deliver_samples(&members, answer, count, samples) }
}

/// `nvmlDeviceGetProcessesUtilizationInfo`.
pub(crate) fn utilization_list(call: &HookedCall<real::nvmlDeviceGetProcessesUtilizationInfo>) -> Status {
    let (device, list) = call.arguments();
    // SAFETY: `open` requires null or a list of the version that it says, and so does the driver.
    let (members, asked) = match unsafe { open(sharers(device), list) } {
        OpenedList::Slice(members, asked) if !asked.room().is_null() && asked.count() > 0 => (members, asked),
        OpenedList::Refused(code) => return code,
        // Room for the samples of all processes is enough for the slice's.
        OpenedList::Slice(..) | OpenedList::Driver => return call.forward(),
    };
    let answer = ask_all(call.function(), device, asked);
    // SAFETY: `place_of_count` requires a list with all of its fields. `open` has found the version that has them.
    let place = unsafe { Versioned::place_of_count(list) };
    // SAFETY: `deliver_samples` requires room for as many entries as the list says, and so does the driver.
    unsafe { deliver_samples(&members, answer, place, asked.room()) }
}

/// `nvmlDeviceGetAccountingPids`.
pub(crate) fn accounting(call: &HookedCall<real::nvmlDeviceGetAccountingPids>) -> Status {
    let (device, count, pids) = call.arguments();
    let Some(members) = members(device).filter(|_| !count.is_null()) else {
        return call.forward();
    };
    // SAFETY: the function requires room for as many entries as `count` says, and `ask` provides it.
    match ask(|count, pids| unsafe { call.function()(device, count, pids) }) {
        Ok((found, length)) => {
            let shown = enter_or(|| members.own(found.into_iter().take(length)), Vec::new());
            // SAFETY: `deliver` requires room for `count` entries at `pids`, and so does the driver.
            unsafe { deliver(&shown, count, pids) }
        }
        Err(code) => code,
    }
}

/// `nvmlDeviceGetAccountingStats`.
pub(crate) fn accounting_stats(call: &HookedCall<real::nvmlDeviceGetAccountingStats>) -> Status {
    let (device, pid, _) = call.arguments();
    if members(device).is_some_and(|members| !members.has(pid)) {
        return status::NVML_NOT_FOUND;
    }
    call.forward()
}

/// `nvmlDeviceGetAccountingStats_v2`.
pub(crate) fn accounting_stats_v2(call: &HookedCall<real::nvmlDeviceGetAccountingStats_v2>) -> Status {
    let (device, stats) = call.arguments();
    // SAFETY: `read_in` requires null or a readable number. The driver reads `stats`, which begins with the process number.
    let pid = unsafe { read_in(stats.cast::<c_uint>()) };
    if members(device).zip(pid).is_some_and(|(members, pid)| !members.has(pid)) {
        return status::NVML_NOT_FOUND;
    }
    call.forward()
}

/// Gives the program samples. If none is about the slice, the answer is that nothing was sampled.
///
/// # Safety
/// `count` is null or valid, and says how many entries there is room for at `to`, which may be null.
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
