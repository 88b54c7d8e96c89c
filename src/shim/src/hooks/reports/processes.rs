//! NVML's process lists: on a device with a quota, the processes of the slice and no others.
//!
//! The hook asks the driver with room of the library's own. It reduces the answer to the slice, and answers the program by NVML's
//! rules. For example, too little room is status 7 with the number that is needed. An entry is the slice's if its process number
//! is that of a member in this process-number namespace. Members that the driver cannot name here are listed with their bytes in
//! the region.

use super::entries::{self, Form, deliver};
use super::members::{Members, members};
use super::versioned::{OpenedList, Versioned, ask_all, open};
use crate::driver_calls::nvml::answers::{LONG_ENTRY, SHORT_ENTRY, USUAL_ENTRY, UnknownEntry, ask};
use crate::hooks::hooked_call::HookedCall;
use crate::os::reentrancy::enter_or;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    Status, c_uint, nvmlDevice_t, nvmlProcessDetail_v1_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t,
};

/// Modes of a list with details in which compute processes are listed.
const MODES_WITH_COMPUTE: [c_uint; 2] = [0, 3];
/// Type of a function that lists processes.
type List<T> = unsafe extern "C-unwind" fn(nvmlDevice_t, *mut c_uint, *mut T) -> Status;

/// Members that are listed although the driver does not name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unnamed {
    /// Members that hold memory.
    Shown,
    /// No member, because the list is of another kind of processes.
    Left,
}

/// `nvmlDeviceGetComputeRunningProcesses`.
pub(crate) fn compute_v1(call: &HookedCall<real::nvmlDeviceGetComputeRunningProcesses>) -> Status {
    known(call, Unnamed::Shown)
}

/// `nvmlDeviceGetComputeRunningProcesses_v2`.
pub(crate) fn compute_v2(call: &HookedCall<real::nvmlDeviceGetComputeRunningProcesses_v2>) -> Status {
    known(call, Unnamed::Shown)
}

/// `nvmlDeviceGetComputeRunningProcesses_v3`.
pub(crate) fn compute_v3(call: &HookedCall<real::nvmlDeviceGetComputeRunningProcesses_v3>) -> Status {
    untold(call, Unnamed::Shown)
}

/// `nvmlDeviceGetGraphicsRunningProcesses`, `nvmlDeviceGetMPSComputeRunningProcesses`.
pub(crate) fn others_v1(call: &HookedCall<real::nvmlDeviceGetGraphicsRunningProcesses>) -> Status {
    known(call, Unnamed::Left)
}

/// `nvmlDeviceGetGraphicsRunningProcesses_v2`, `nvmlDeviceGetMPSComputeRunningProcesses_v2`.
pub(crate) fn others_v2(call: &HookedCall<real::nvmlDeviceGetGraphicsRunningProcesses_v2>) -> Status {
    known(call, Unnamed::Left)
}

/// `nvmlDeviceGetGraphicsRunningProcesses_v3`, `nvmlDeviceGetMPSComputeRunningProcesses_v3`.
pub(crate) fn others_v3(call: &HookedCall<real::nvmlDeviceGetGraphicsRunningProcesses_v3>) -> Status {
    untold(call, Unnamed::Left)
}

/// `nvmlDeviceGetRunningProcessDetailList`.
pub(crate) fn details(call: &HookedCall<real::nvmlDeviceGetRunningProcessDetailList>) -> Status {
    let (device, list) = call.arguments();
    // SAFETY: `open` requires null or a list of the version that it says, and so does the driver.
    let (members, asked) = match unsafe { open(members(device), list) } {
        OpenedList::Slice(members, asked) => (members, asked),
        OpenedList::Refused(code) => return code,
        OpenedList::Driver => return call.forward(),
    };
    let unnamed = if MODES_WITH_COMPUTE.contains(&asked.mode) { Unnamed::Shown } else { Unnamed::Left };
    let (entries, count) = match ask_all(call.function(), device, asked) {
        Ok(answer) => answer,
        Err(code) => return code,
    };
    let shown = enter_or(|| show(&members, entries.into_iter().take(count), unnamed), Vec::new());
    // SAFETY: `place_of_count` requires a list with all of its fields. `open` has found the version that has them.
    let place = unsafe { Versioned::place_of_count(list) };
    // SAFETY: `deliver` requires room for as many entries as the list says, and so does the driver.
    unsafe { deliver(&shown, place, asked.room()) }
}

/// Answers a question for a list whose form all drivers agree on.
fn known<T: Form>(call: &HookedCall<List<T>>, unnamed: Unnamed) -> Status {
    let (device, count, infos) = call.arguments();
    let Some(members) = members(device).filter(|_| !count.is_null()) else { return call.forward() };
    // SAFETY: the function requires room for as many entries as `count` says, and `ask` provides it.
    match ask(|count, entries| unsafe { call.function()(device, count, entries) }) {
        Ok((entries, length)) => {
            let shown = enter_or(|| show(&members, entries.into_iter().take(length), unnamed), Vec::new());
            // SAFETY: `deliver` requires room for `count` entries at `infos`, and so does the driver.
            unsafe { deliver(&shown, count, infos) }
        }
        Err(code) => code,
    }
}

/// Answers a question for a list whose name does not tell how large its entries are. The program has room for the entries that
/// this driver writes.
fn untold(call: &HookedCall<List<nvmlProcessInfo_t>>, unnamed: Unnamed) -> Status {
    let (device, count, infos) = call.arguments();
    let Some(members) = members(device).filter(|_| !count.is_null()) else { return call.forward() };
    // SAFETY: the function requires room for as many entries as `count` says. `ask` provides it, for the largest form of entries.
    match ask(|count, entries: *mut UnknownEntry| unsafe { call.function()(device, count, entries.cast()) }) {
        Ok((answer, length)) => {
            let show = UnknownForm { members: &members, answer: &answer, length, unnamed };
            match enter_or(|| entries::words(&answer, length), USUAL_ENTRY) {
                // SAFETY: `deliver` requires room for `count` entries. The program has it for the form that this driver writes:
                // the short one.
                SHORT_ENTRY => unsafe { show.deliver::<nvmlProcessInfo_v1_t>(count, infos.cast()) },
                // SAFETY: `deliver` requires room for `count` entries. The program has it for the form that this driver writes:
                // the long one.
                LONG_ENTRY => unsafe { show.deliver::<nvmlProcessDetail_v1_t>(count, infos.cast()) },
                // SAFETY: `deliver` requires room for `count` entries. The program has it for the form that this driver writes:
                // the usual one.
                _ => unsafe { show.deliver(count, infos) },
            }
        }
        Err(code) => code,
    }
}

/// Answer of the driver. The form of its entries has to be found out.
struct UnknownForm<'a> {
    members: &'a Members,
    answer: &'a [UnknownEntry],
    length: usize,
    unnamed: Unnamed,
}

impl UnknownForm<'_> {
    /// # Safety
    /// `count` is null or valid, and says how many entries there is room for at `to`, which may be null.
    unsafe fn deliver<T: Form>(self, count: *mut c_uint, to: *mut T) -> Status {
        let entries = || entries::entries::<T>(self.answer, self.length);
        let shown = enter_or(|| show(self.members, entries(), self.unnamed), Vec::new());
        // SAFETY: `deliver` requires the same of `count` and `to` as this method.
        unsafe { deliver(&shown, count, to) }
    }
}

/// Returns the slice's entries of a list. Together they show no more memory than NVML shows as used.
fn show<T: Form>(members: &Members, entries: impl Iterator<Item = T>, unnamed: Unnamed) -> Vec<T> {
    // An entry shows no more than the ledger: memory that the driver uses beyond that is not in the device's figures either.
    let own = entries.filter_map(|entry| Some(entry.at_most(members.held(entry.pid())?)));
    let mut shown: Vec<T> = own.collect();
    if unnamed == Unnamed::Shown {
        let rest = members.unnamed(shown.is_empty());
        shown.extend(rest.map(|(pid, held)| T::of_ledger(pid, held)));
    }
    shown
}
