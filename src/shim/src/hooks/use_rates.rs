//! How busy is a device that has a quota? With the work of the slice, as far as NVML tells processes apart.

use super::entries::ask;
use super::members::{Members, members};
use crate::guard::quietly;
use core::ffi::c_ulonglong;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    Status, nvmlDevice_t, nvmlProcessUtilizationSample_t, nvmlUtilization_t, status,
};
use gpuslice_driver::{Symbol, slot};

/// Of so many microseconds the mean is shown: the longest period over which NVML takes a device's own figure.
const PERIOD_US: c_ulonglong = 1_000_000;

/// `nvmlDeviceGetUtilizationRates`.
pub(crate) unsafe fn rates(
    real: real::nvmlDeviceGetUtilizationRates,
    device: nvmlDevice_t,
    utilization: *mut nvmlUtilization_t,
) -> Status {
    // SAFETY: the caller's own arguments.
    let code = unsafe { real(device, utilization) };
    if code != status::SUCCESS {
        return code;
    }
    // SAFETY: the caller's output, which the driver wrote.
    let Some((members, whole)) = members(device).zip(unsafe { read_in(utilization) }) else { return code };
    if let Some(shown) = quietly(|| of_slice(device, &members, whole), None) {
        // SAFETY: as above.
        unsafe { write_out(utilization, shown) };
    }
    code
}

/// The slice's part of a device's figure; none where processes cannot be told apart.
fn of_slice(device: nvmlDevice_t, members: &Members, whole: nvmlUtilization_t) -> Option<nvmlUtilization_t> {
    if !members.all_near() {
        return None;
    }
    let real = slot::real::<real::nvmlDeviceGetProcessUtilization>(Symbol::nvmlDeviceGetProcessUtilization)?;
    let since = now_us().saturating_sub(PERIOD_US);
    // SAFETY: room for as many entries as the count says.
    let answer = ask(|count, samples| unsafe { real(device, samples, count, since) });
    let own = match answer {
        Ok((samples, count)) => members.own(samples.into_iter().take(count)),
        // Nobody did anything.
        Err(status::NVML_NOT_FOUND) => Vec::new(),
        Err(_) => return None,
    };
    let sum = |part: fn(&nvmlProcessUtilizationSample_t) -> u32| {
        own.iter().fold(0_u32, |sum, sample| sum.saturating_add(part(sample)))
    };
    Some(nvmlUtilization_t {
        gpu: sum(|sample| sample.sm).min(whole.gpu),
        memory: sum(|sample| sample.memory).min(whole.memory),
    })
}

/// The clock by which NVML dates samples.
fn now_us() -> c_ulonglong {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to the structure given.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    let microseconds = i128::from(time.tv_sec) * 1_000_000 + i128::from(time.tv_nsec / 1000);
    c_ulonglong::try_from(microseconds).unwrap_or(0)
}
