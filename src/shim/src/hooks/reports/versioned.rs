//! NVML's lists that begin with a version: reading them, and asking the driver for all entries.

use super::members::Members;
use crate::driver_calls::nvml::answers::{Blank, ask};
use core::ffi::c_uint;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::types::{
    Status, nvmlDevice_t, nvmlProcessDetail_v1_t, nvmlProcessDetailList_t, nvmlProcessUtilizationInfo_v1_t,
    nvmlProcessesUtilizationInfo_t, status,
};

/// The first version of a structure of 24 bytes: the only one there is of both lists.
const VERSION_1: c_uint = 0x0100_0018;

/// A list with its version, a number of entries, and where they are.
pub(crate) trait Versioned: Copy {
    /// An entry.
    type Entry: Copy + Blank;
    /// Where the caller has room for entries.
    fn room(&self) -> *mut Self::Entry;
    /// The same question with room elsewhere.
    fn with_room(self, count: c_uint, entries: *mut Self::Entry) -> Self;
    /// How many entries there are, or there is room for.
    fn count(&self) -> c_uint;
    /// Where the caller has that number.
    ///
    /// # Safety
    /// `list` is the caller's, with all of its fields.
    unsafe fn place_of_count(list: *mut Self) -> *mut c_uint;
}

macro_rules! versioned {
    ($($list:ident { $entry:ty, $count:ident, $entries:ident })*) => { $(
        impl Versioned for $list {
            type Entry = $entry;

            fn room(&self) -> *mut $entry {
                self.$entries
            }

            fn with_room(self, count: c_uint, entries: *mut $entry) -> Self {
                Self { $count: count, $entries: entries, ..self }
            }

            fn count(&self) -> c_uint {
                self.$count
            }

            unsafe fn place_of_count(list: *mut Self) -> *mut c_uint {
                // SAFETY: by the contract above.
                unsafe { &raw mut (*list).$count }
            }
        }
    )* };
}

versioned! {
    nvmlProcessDetailList_t { nvmlProcessDetail_v1_t, num_proc_array_entries, proc_array }
    nvmlProcessesUtilizationInfo_t {
        nvmlProcessUtilizationInfo_v1_t, process_samples_count, proc_util_array
    }
}

/// Who answers a question.
pub(crate) enum Opened<L> {
    /// The driver alone.
    Driver,
    /// We: with a status.
    Refused(Status),
    /// We: with what it says of members of the slice.
    Slice(Members, L),
}

/// Looks at a caller's list, of a slice if there is one.
///
/// # Safety
/// `list` is the caller's own argument: null, or a list of the version that it says.
pub(crate) unsafe fn open<L: Versioned>(members: Option<Members>, list: *mut L) -> Opened<L> {
    // SAFETY: by the contract above; every version begins with its number.
    let Some((members, version)) = members.zip(unsafe { read_in(list.cast::<c_uint>()) }) else {
        return Opened::Driver;
    };
    if version != VERSION_1 {
        return Opened::Refused(status::NVML_ARGUMENT_VERSION_MISMATCH);
    }
    // SAFETY: by the contract above, of the version that has these fields.
    let asked = unsafe { read_in(list) };
    asked.map_or(Opened::Driver, |asked| Opened::Slice(members, asked))
}

/// Asks the driver the caller's question with enough room. What it wrote, and how many entries that is; or its status.
pub(crate) fn ask_all<L: Versioned>(
    real: unsafe extern "C-unwind" fn(nvmlDevice_t, *mut L) -> Status,
    device: nvmlDevice_t,
    asked: L,
) -> Result<(Vec<L::Entry>, usize), Status> {
    ask(|count, entries| {
        // SAFETY: our own count.
        let mut ours = asked.with_room(unsafe { read_in(count) }.unwrap_or(0), entries);
        // SAFETY: a list of the version that it says, with room for as many entries as it says.
        let code = unsafe { real(device, &raw mut ours) };
        // SAFETY: our own count.
        unsafe { write_out(count, ours.count()) };
        code
    })
}
