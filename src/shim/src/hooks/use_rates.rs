//! How busy is a device of which a slice has a part? With the work of the slice, as far as NVML tells processes apart.
//!
//! Where it does not, its own answer stands.

use super::members::{Members, sharers};
use crate::guard::quietly;
use crate::used::{Form, Used, used};
use core::ffi::{c_uint, c_ulonglong};
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    Status, nvmlDevice_t, nvmlGpuDynamicPstatesInfo_t, nvmlSample_t, nvmlUtilization_t, status,
};

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
    // SAFETY: the caller's output, which the driver wrote if the call succeeded.
    let whole = || unsafe { read_in(utilization) };
    if code == status::SUCCESS
        && let Some((own, whole)) = lately(device).zip(whole())
    {
        let shown = nvmlUtilization_t { gpu: own.gpu.min(whole.gpu), memory: own.memory.min(whole.memory) };
        // SAFETY: as above.
        unsafe { write_out(utilization, shown) };
    }
    code
}

/// The beginning of `nvmlGpuDynamicPstatesInfo_t`: the domains of the GPU and of its memory.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Domains {
    flags: c_uint,
    gpu: Domain,
    memory: Domain,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Domain {
    is_present: c_uint,
    percentage: c_uint,
    thresholds: [c_uint; 2],
}

impl Domain {
    fn at_most(self, percentage: c_uint) -> Self {
        Self { percentage: self.percentage.min(percentage), ..self }
    }
}

/// `nvmlDeviceGetDynamicPstatesInfo`.
pub(crate) unsafe fn domains(
    real: real::nvmlDeviceGetDynamicPstatesInfo,
    device: nvmlDevice_t,
    info: *mut nvmlGpuDynamicPstatesInfo_t,
) -> Status {
    // SAFETY: the caller's own arguments.
    let code = unsafe { real(device, info) };
    let domains: *mut Domains = info.cast();
    // SAFETY: the caller's output, which begins so and which the driver wrote if the call succeeded.
    let whole = || unsafe { read_in(domains) };
    if code == status::SUCCESS
        && let Some((own, whole)) = lately(device).zip(whole())
    {
        let (gpu, memory) = (whole.gpu.at_most(own.gpu), whole.memory.at_most(own.memory));
        // SAFETY: as above.
        unsafe { write_out(domains, Domains { gpu, memory, ..whole }) };
    }
    code
}

/// What `nvmlSample_t` is: the value is a union of eight bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Sample {
    timestamp: c_ulonglong,
    value: c_uint,
    rest: c_uint,
}

/// `NVML_GPU_UTILIZATION_SAMPLES` and `NVML_MEMORY_UTILIZATION_SAMPLES`.
const OF_GPU: c_uint = 1;
const OF_MEMORY: c_uint = 2;
/// `NVML_VALUE_TYPE_UNSIGNED_INT`: the first four bytes of the union.
const UNSIGNED: c_uint = 1;

/// `nvmlDeviceGetSamples`. NVML has no samples of processes, only their mean since an instant. So the device's samples are
/// made smaller, all by the same part: their mean is the slice's.
pub(crate) unsafe fn samples(
    real: real::nvmlDeviceGetSamples,
    device: nvmlDevice_t,
    kind: c_uint,
    last_seen: c_ulonglong,
    value_type: *mut c_uint,
    count: *mut c_uint,
    samples: *mut nvmlSample_t,
) -> Status {
    // SAFETY: the caller's own arguments.
    let code = unsafe { real(device, kind, last_seen, value_type, count, samples) };
    if code != status::SUCCESS || samples.is_null() || ![OF_GPU, OF_MEMORY].contains(&kind) {
        return code;
    }
    // SAFETY: the caller's output, which the driver wrote.
    if unsafe { read_in(value_type) } != Some(UNSIGNED) {
        return code;
    }
    // SAFETY: as above.
    let count = unsafe { read_in(count) }.unwrap_or(0);
    let place = |at: c_uint| samples.cast::<Sample>().wrapping_add(usize::try_from(at).unwrap_or(0));
    // SAFETY: as many samples as the driver said that it wrote.
    let whole = (0..count).filter_map(|at| unsafe { read_in(place(at)) });
    let sum = whole.fold(0_u64, |sum, sample| sum.saturating_add(sample.value.into()));
    let Some(own) = of_slice(device, last_seen) else { return code };
    let own = u64::from(if kind == OF_GPU { own.gpu } else { own.memory });
    for at in 0..count {
        // SAFETY: as above.
        let Some(sample) = (unsafe { read_in(place(at)) }) else { continue };
        let part = u64::from(sample.value).saturating_mul(own).saturating_mul(count.into());
        let value = part.checked_div(sum).and_then(|value| c_uint::try_from(value).ok()).unwrap_or(0);
        // SAFETY: as above.
        unsafe { write_out(place(at), Sample { value: value.min(sample.value), ..sample }) };
    }
    code
}

/// The slice's use of a device in the last second.
fn lately(device: nvmlDevice_t) -> Option<nvmlUtilization_t> {
    of_slice(device, now_us().saturating_sub(PERIOD_US))
}

/// The slice's use of a device since an instant; none where the device is nobody's in part, or processes cannot be told
/// apart.
fn of_slice(device: nvmlDevice_t, since: c_ulonglong) -> Option<nvmlUtilization_t> {
    let members = sharers(device).filter(Members::all_near)?;
    quietly(|| sum_of(&members, device, since), None)
}

fn sum_of(members: &Members, device: nvmlDevice_t, since: c_ulonglong) -> Option<nvmlUtilization_t> {
    let answer = used(device, Form::Samples, since).or_else(|_not_so| used(device, Form::List, since));
    let own: Vec<Used> = answer.ok()?.into_iter().filter(|used| members.has(used.pid)).collect();
    let sum = |part: fn(&Used) -> u32| own.iter().fold(0_u32, |sum, used| sum.saturating_add(part(used)));
    Some(nvmlUtilization_t { gpu: sum(|used| used.sm), memory: sum(|used| used.memory) })
}

/// The clock by which NVML dates samples.
fn now_us() -> c_ulonglong {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to the structure given.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    let microseconds = i128::from(time.tv_sec) * 1_000_000 + i128::from(time.tv_nsec / 1000);
    c_ulonglong::try_from(microseconds).unwrap_or(0)
}
