//! NVML's process lists: on a device with a quota, the processes of the slice and no others.
//!
//! The driver is asked into room of the library's own. Its answer is reduced to the slice, and the rest goes to the caller by
//! NVML's rules: too little room is status 7 with the number that is needed. An entry is the slice's if its process number is
//! that of a member in this process-number namespace. Members that the driver cannot name here are listed with their bytes in the
//! region.

use super::entries::{self, Form, deliver};
use super::members::{Members, members};
use super::versioned::{Opened, Versioned, ask_all, open};
use crate::driver_calls::nvml::answers::{LONG, SHORT, USUAL, Unknown, ask};
use crate::os::reentrancy::quietly;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    Status, c_uint, nvmlDevice_t, nvmlProcessDetail_v1_t, nvmlProcessDetailList_t, nvmlProcessInfo_t,
    nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t,
};

/// Modes of a list with details in which compute processes are listed.
const MODES_WITH_COMPUTE: [c_uint; 2] = [0, 3];
/// The functions that list processes.
type List<T> = unsafe extern "C-unwind" fn(nvmlDevice_t, *mut c_uint, *mut T) -> Status;

/// Which members are listed that the driver does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unnamed {
    /// Those who hold memory.
    Shown,
    /// None: the list is of another sort of processes.
    Left,
}

/// `nvmlDeviceGetComputeRunningProcesses`.
pub(crate) unsafe fn compute_v1(
    real: real::nvmlDeviceGetComputeRunningProcesses,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_v1_t,
) -> Status {
    // SAFETY: the caller's own arguments.
    unsafe { known(real, Unnamed::Shown, device, count, infos) }
}

/// `nvmlDeviceGetComputeRunningProcesses_v2`.
pub(crate) unsafe fn compute_v2(
    real: real::nvmlDeviceGetComputeRunningProcesses_v2,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_v2_t,
) -> Status {
    // SAFETY: the caller's own arguments.
    unsafe { known(real, Unnamed::Shown, device, count, infos) }
}

/// `nvmlDeviceGetComputeRunningProcesses_v3`.
pub(crate) unsafe fn compute_v3(
    real: real::nvmlDeviceGetComputeRunningProcesses_v3,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> Status {
    // SAFETY: the caller's own arguments.
    unsafe { untold(real, Unnamed::Shown, device, count, infos) }
}

/// `nvmlDeviceGetGraphicsRunningProcesses`, `nvmlDeviceGetMPSComputeRunningProcesses`.
pub(crate) unsafe fn others_v1(
    real: real::nvmlDeviceGetGraphicsRunningProcesses,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_v1_t,
) -> Status {
    // SAFETY: the caller's own arguments.
    unsafe { known(real, Unnamed::Left, device, count, infos) }
}

/// `nvmlDeviceGetGraphicsRunningProcesses_v2`, `nvmlDeviceGetMPSComputeRunningProcesses_v2`.
pub(crate) unsafe fn others_v2(
    real: real::nvmlDeviceGetGraphicsRunningProcesses_v2,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_v2_t,
) -> Status {
    // SAFETY: the caller's own arguments.
    unsafe { known(real, Unnamed::Left, device, count, infos) }
}

/// `nvmlDeviceGetGraphicsRunningProcesses_v3`, `nvmlDeviceGetMPSComputeRunningProcesses_v3`.
pub(crate) unsafe fn others_v3(
    real: real::nvmlDeviceGetGraphicsRunningProcesses_v3,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> Status {
    // SAFETY: the caller's own arguments.
    unsafe { untold(real, Unnamed::Left, device, count, infos) }
}

/// `nvmlDeviceGetRunningProcessDetailList`.
pub(crate) unsafe fn details(
    real: real::nvmlDeviceGetRunningProcessDetailList,
    device: nvmlDevice_t,
    list: *mut nvmlProcessDetailList_t,
) -> Status {
    // SAFETY: the caller's own arguments.
    let (members, asked) = match unsafe { open(members(device), list) } {
        Opened::Slice(members, asked) => (members, asked),
        Opened::Refused(code) => return code,
        // SAFETY: the caller's own arguments.
        Opened::Driver => return unsafe { real(device, list) },
    };
    let unnamed = if MODES_WITH_COMPUTE.contains(&asked.mode) { Unnamed::Shown } else { Unnamed::Left };
    let (entries, count) = match ask_all(real, device, asked) {
        Ok(answer) => answer,
        Err(code) => return code,
    };
    let shown = quietly(|| show(&members, entries.into_iter().take(count), unnamed), Vec::new());
    // SAFETY: the caller's list, of the version that has this field.
    let place = unsafe { Versioned::place_of_count(list) };
    // SAFETY: the caller's own arguments.
    unsafe { deliver(&shown, place, asked.room()) }
}

/// A list of a form that drivers agree on.
///
/// # Safety
/// The arguments after `unnamed` are the caller's own.
unsafe fn known<T: Form>(
    real: List<T>,
    unnamed: Unnamed,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut T,
) -> Status {
    let Some(members) = members(device).filter(|_| !count.is_null()) else {
        // SAFETY: by the contract above.
        return unsafe { real(device, count, infos) };
    };
    // SAFETY: room for as many entries as the count says.
    match ask(|count, entries| unsafe { real(device, count, entries) }) {
        Ok((entries, length)) => {
            let shown = quietly(|| show(&members, entries.into_iter().take(length), unnamed), Vec::new());
            // SAFETY: by the contract above.
            unsafe { deliver(&shown, count, infos) }
        }
        Err(code) => code,
    }
}

/// A list whose name does not tell how large its entries are: the caller has room for what this driver writes.
///
/// # Safety
/// As [`known`].
unsafe fn untold(
    real: List<nvmlProcessInfo_t>,
    unnamed: Unnamed,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> Status {
    let Some(members) = members(device).filter(|_| !count.is_null()) else {
        // SAFETY: by the contract above.
        return unsafe { real(device, count, infos) };
    };
    // SAFETY: room for as many entries as the count says, of the largest form.
    match ask(|count, entries: *mut Unknown| unsafe { real(device, count, entries.cast()) }) {
        Ok((answer, length)) => {
            let show = Untold { members: &members, answer: &answer, length, unnamed };
            match quietly(|| entries::words(&answer, length), USUAL) {
                // SAFETY: by the contract above; the caller has room for entries of this form.
                SHORT => unsafe { show.deliver::<nvmlProcessInfo_v1_t>(count, infos.cast()) },
                // SAFETY: as above.
                LONG => unsafe { show.deliver::<nvmlProcessDetail_v1_t>(count, infos.cast()) },
                // SAFETY: as above.
                _ => unsafe { show.deliver(count, infos) },
            }
        }
        Err(code) => code,
    }
}

/// An answer whose form is found out.
struct Untold<'a> {
    members: &'a Members,
    answer: &'a [Unknown],
    length: usize,
    unnamed: Unnamed,
}

impl Untold<'_> {
    /// # Safety
    /// As [`deliver`].
    unsafe fn deliver<T: Form>(self, count: *mut c_uint, to: *mut T) -> Status {
        let entries = || entries::entries::<T>(self.answer, self.length);
        let shown = quietly(|| show(self.members, entries(), self.unnamed), Vec::new());
        // SAFETY: by the contract above.
        unsafe { deliver(&shown, count, to) }
    }
}

/// What a list says of the slice: together no more than what NVML shows as used.
fn show<T: Form>(members: &Members, entries: impl Iterator<Item = T>, unnamed: Unnamed) -> Vec<T> {
    // No more than the ledger says: what the driver uses beyond that is not in the device's figures either.
    let own = entries.filter_map(|entry| Some(entry.at_most(members.held(entry.pid())?)));
    let mut shown: Vec<T> = own.collect();
    if unnamed == Unnamed::Shown {
        let rest = members.unnamed(shown.is_empty());
        shown.extend(rest.map(|(pid, held)| T::of_ledger(pid, held)));
    }
    shown
}
