//! Utilization of a device by the slice, and its source.
//!
//! Where the slice's time is paced, the ledger tells it: the GPU time that the slice was charged. The ledger is in the region, so
//! a process that only watches can read it too. Otherwise NVML tells the utilization of the slice's processes, if it names them
//! by numbers that can be matched. NVML comes second because each of its samples names one process and tells how busy the whole
//! GPU was. On the simulated GPU a slice that was charged for 29 % beside a busy neighbour read 22 % by such samples.

use super::members::{Members, in_region, sharers};
use crate::driver_calls::nvml::devices;
use crate::driver_calls::nvml::utilization::{Question, Used, used};
use crate::os::clock::now;
use crate::os::reentrancy::enter_or;
use core::ffi::{c_uint, c_ulonglong};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{nvmlDevice_t, nvmlUtilization_t, status};
use gpuslice_driver::{Symbol, slot};
use gpuslice_policy::time::GpuTime;
use gpuslice_region::{Region, Uuid};

/// Microseconds of a second. The shown use is the mean over the last second: the longest period over which NVML takes a device's
/// own figure.
const SECOND_US: c_ulonglong = 1_000_000;

/// Use of a device by the slice, in percents of the time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OwnUse {
    /// Use that NVML tells of the slice's processes.
    Told(nvmlUtilization_t),
    /// GPU time that the slice was charged for. It does not tell in how much of that time memory was read or written.
    Charged(c_uint),
}

impl OwnUse {
    /// Returns the use that is shown of a device whose use is `whole`: no more than that. Where the memory's use is not told
    /// apart, it is taken to be the same for all work.
    pub(crate) fn of(self, whole: nvmlUtilization_t) -> nvmlUtilization_t {
        match self {
            Self::Told(own) => {
                nvmlUtilization_t { gpu: own.gpu.min(whole.gpu), memory: own.memory.min(whole.memory) }
            }
            Self::Charged(percent) => {
                let gpu = percent.min(whole.gpu);
                let memory = whole.memory.saturating_mul(gpu).checked_div(whole.gpu).unwrap_or(0);
                nvmlUtilization_t { gpu, memory }
            }
        }
    }
}

/// Returns the slice's use in the last second.
pub(crate) fn lately(device: nvmlDevice_t) -> Option<OwnUse> {
    let since = now_us().saturating_sub(SECOND_US);
    own_use(device, since, since)
}

/// Returns the slice's use: by NVML's samples after `since`, or by the charges after `began`, a second to a minute ago. Returns
/// `None` if the slice has no part of the device, or if its use cannot be known.
pub(crate) fn own_use(device: nvmlDevice_t, since: c_ulonglong, began: c_ulonglong) -> Option<OwnUse> {
    let members = sharers(device)?;
    enter_or(|| known(&members, device, (since, began)), None)
}

/// Returns how busy the whole device is now.
pub(crate) fn whole(device: nvmlDevice_t) -> Option<nvmlUtilization_t> {
    let function = slot::real::<real::nvmlDeviceGetUtilizationRates>(Symbol::nvmlDeviceGetUtilizationRates)?;
    let mut whole = nvmlUtilization_t { gpu: 0, memory: 0 };
    // SAFETY: `function` requires an output that is valid for writes: the local `whole`. NVML checks the handle.
    let code = unsafe { function(device, &raw mut whole) };
    (code == status::SUCCESS).then_some(whole)
}

fn known(
    members: &Members,
    device: nvmlDevice_t,
    (since, began): (c_ulonglong, c_ulonglong),
) -> Option<OwnUse> {
    let by_ledger = charged(device, now_us().saturating_sub(began));
    if by_ledger.is_some() {
        return by_ledger;
    }
    let told = members.are_told_apart().then(|| told(members, device, since)).flatten();
    if let Some(own) = told.as_ref().filter(|own| !own.is_empty()) {
        let sum = |part: fn(&Used) -> u32| own.iter().fold(0_u32, |sum, used| sum.saturating_add(part(used)));
        return Some(OwnUse::Told(nvmlUtilization_t {
            gpu: sum(|used| used.sm),
            memory: sum(|used| used.memory),
        }));
    }
    // NVML lists neither idle processes nor processes that it names by another numbering.
    let is_idle = told.is_some() || members.hold_nothing();
    is_idle.then_some(OwnUse::Charged(0))
}

/// Returns NVML's samples of members; `None` if NVML tells nothing of processes.
fn told(members: &Members, device: nvmlDevice_t, since: c_ulonglong) -> Option<Vec<Used>> {
    let answer =
        used(device, Question::Samples, since).or_else(|_not_so| used(device, Question::List, since));
    Some(answer.ok()?.into_iter().filter(|used| members.has(used.pid)).collect())
}

/// Returns the use by the slice's ledger over `microseconds`; `None` if no ledger counts the device's time.
fn charged(device: nvmlDevice_t, microseconds: c_ulonglong) -> Option<OwnUse> {
    let parts = devices::parts(device);
    let [part] = parts.as_slice() else { return None };
    let seconds = microseconds.checked_div(SECOND_US).unwrap_or(0);
    in_region(|region| percent_of(region, &part.uuid, seconds)).flatten().map(OwnUse::Charged)
}

fn percent_of(region: &Region, uuid: &[u8; 16], seconds: u64) -> Option<c_uint> {
    let device = region.device(&Uuid(*uuid)).filter(|device| region.is_paced(*device))?;
    let lately = region.used_over(device, seconds, now());
    let permille = lately.used.scaled(1000, lately.span.nanos()).map_or(0, GpuTime::nanos);
    // The result is to the nearest percent, and a slice that has used anything is not shown as idle.
    let percent = permille.saturating_add(5) / 10;
    c_uint::try_from(percent.max(u64::from(!lately.used.is_zero())).min(100)).ok()
}

/// Returns the time in microseconds by the clock with which NVML dates samples.
fn now_us() -> c_ulonglong {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` requires a structure that is valid for writes: the local `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    let microseconds = i128::from(time.tv_sec) * 1_000_000 + i128::from(time.tv_nsec / 1000);
    c_ulonglong::try_from(microseconds).unwrap_or(0)
}
