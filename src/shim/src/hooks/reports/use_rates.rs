//! Utilization of a device of which the slice has a part: that of the slice, where it is known.
//!
//! Otherwise NVML's own answer stands.

use super::own_use::{self, OwnUse, own_use};
use crate::hooks::hooked_call::HookedCall;
use core::ffi::{c_uint, c_ulonglong};
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{Status, nvmlDevice_t, nvmlUtilization_t, status};

/// `nvmlDeviceGetUtilizationRates`.
pub(crate) fn rates(call: &HookedCall<real::nvmlDeviceGetUtilizationRates>) -> Status {
    let (device, utilization) = call.arguments();
    let code = call.forward();
    // SAFETY: `read_in` requires that `utilization` is null or readable, and so does the driver.
    let whole = || unsafe { read_in(utilization) };
    if code == status::SUCCESS
        && let Some((own, whole)) = own_use::lately(device).zip(whole())
    {
        // SAFETY: `write_out` requires that `utilization` is null or writable, and so does the driver.
        unsafe { write_out(utilization, own.of(whole)) };
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
    fn with(self, percentage: c_uint) -> Self {
        Self { percentage, ..self }
    }
}

/// `nvmlDeviceGetDynamicPstatesInfo`.
pub(crate) fn domains(call: &HookedCall<real::nvmlDeviceGetDynamicPstatesInfo>) -> Status {
    let (device, info) = call.arguments();
    let code = call.forward();
    let domains: *mut Domains = info.cast();
    // SAFETY: `read_in` requires null or a readable place. The driver requires a whole structure, which begins with `Domains`.
    let whole = || unsafe { read_in(domains) };
    if code == status::SUCCESS
        && let Some((own, whole)) = own_use::lately(device).zip(whole())
    {
        let (gpu, memory) = (whole.gpu, whole.memory);
        let shown = own.of(nvmlUtilization_t { gpu: gpu.percentage, memory: memory.percentage });
        let (gpu, memory) = (gpu.with(shown.gpu), memory.with(shown.memory));
        // SAFETY: `write_out` requires null or a writable place. The driver requires a whole structure, which begins with
        // `Domains`.
        unsafe { write_out(domains, Domains { gpu, memory, ..whole }) };
    }
    code
}

/// Layout of `nvmlSample_t`, whose value is a union of eight bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct NvmlSample {
    timestamp: c_ulonglong,
    value: c_uint,
    rest: c_uint,
}

/// `NVML_GPU_UTILIZATION_SAMPLES` and `NVML_MEMORY_UTILIZATION_SAMPLES`.
const OF_GPU: c_uint = 1;
const OF_MEMORY: c_uint = 2;
/// `NVML_VALUE_TYPE_UNSIGNED_INT`: the first four bytes of the union.
const UNSIGNED: c_uint = 1;

/// `nvmlDeviceGetSamples`. NVML has no samples of processes, only their mean since an instant. So the hook reduces all of the
/// device's samples by the same factor, such that their mean is the slice's.
pub(crate) fn samples(call: &HookedCall<real::nvmlDeviceGetSamples>) -> Status {
    let (device, kind, last_seen, value_type, count, samples) = call.arguments();
    let code = call.forward();
    if code != status::SUCCESS || samples.is_null() || ![OF_GPU, OF_MEMORY].contains(&kind) {
        return code;
    }
    // SAFETY: `read_in` requires that `value_type` is null or readable, and so does the driver.
    if unsafe { read_in(value_type) } != Some(UNSIGNED) {
        return code;
    }
    // SAFETY: `read_in` requires that `count` is null or readable, and so does the driver.
    let count = unsafe { read_in(count) }.unwrap_or(0);
    let place = |at: c_uint| samples.cast::<NvmlSample>().wrapping_add(usize::try_from(at).unwrap_or(0));
    // SAFETY: `read_in` requires a readable entry. The driver said that it wrote `count` entries.
    let whole: Vec<NvmlSample> = (0..count).filter_map(|at| unsafe { read_in(place(at)) }).collect();
    let Some((part, of)) = part_of(device, kind, last_seen, &whole) else { return code };
    for (at, sample) in (0..count).zip(whole) {
        let value = u64::from(sample.value).saturating_mul(part).checked_div(of);
        let value = value.and_then(|value| c_uint::try_from(value).ok()).unwrap_or(0).min(sample.value);
        // SAFETY: `write_out` requires a writable entry. The program has room for the `count` entries that the driver wrote.
        unsafe { write_out(place(at), NvmlSample { value, ..sample }) };
    }
    code
}

/// Returns the slice's part of a device's samples, as a fraction; `None` if the samples stay as they are.
fn part_of(
    device: nvmlDevice_t,
    kind: c_uint,
    last_seen: c_ulonglong,
    whole: &[NvmlSample],
) -> Option<(u64, u64)> {
    let sum = whole.iter().fold(0_u64, |sum, sample| sum.saturating_add(sample.value.into()));
    let mean = |percent: c_uint| {
        let count = u64::try_from(whole.len()).unwrap_or(u64::MAX);
        (u64::from(percent).saturating_mul(count), sum)
    };
    // NVML keeps samples for some seconds only, even if the program asks for older ones.
    let began = whole.first().map_or(last_seen, |first| first.timestamp.max(last_seen));
    match own_use(device, last_seen, began)? {
        OwnUse::Told(own) => Some(mean(if kind == OF_GPU { own.gpu } else { own.memory })),
        OwnUse::Charged(percent) if kind == OF_GPU => Some(mean(percent)),
        OwnUse::Charged(_) => {
            let whole = own_use::whole(device)?;
            let shown = own_use::lately(device)?.of(whole);
            Some((shown.gpu.into(), whole.gpu.into()))
        }
    }
}
