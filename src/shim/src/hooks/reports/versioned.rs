//! NVML's lists that begin with a version: reading them, and asking the driver for all entries.

use super::members::Members;
use crate::driver_calls::nvml::answers::{Blank, ask};
use crate::driver_calls::nvml::utilization::VERSION_1;
use core::ffi::c_uint;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::types::{
    Status, nvmlDevice_t, nvmlProcessDetail_v1_t, nvmlProcessDetailList_t, nvmlProcessUtilizationInfo_v1_t,
    nvmlProcessesUtilizationInfo_t, status,
};

/// List with its version, a number of entries, and their place.
pub(crate) trait Versioned: Copy {
    /// Entry of the list.
    type Entry: Copy + Blank;
    /// Returns where the program has room for entries.
    fn room(&self) -> *mut Self::Entry;
    /// Returns the list with room for `count` entries at `entries` instead.
    fn with_room(self, count: c_uint, entries: *mut Self::Entry) -> Self;
    /// Returns how many entries there are, or there is room for.
    fn count(&self) -> c_uint;
    /// Returns where the list has its number of entries.
    ///
    /// # Safety
    /// `list` is the program's, with all of its fields.
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
                // SAFETY: the place must lie within the list. By this method's contract the list has all of its fields.
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

/// Answer to a question with a list.
pub(crate) enum OpenedList<L> {
    /// The driver answers alone.
    Driver,
    /// The library answers with a status.
    Refused(Status),
    /// The library answers with the entries about members of the slice.
    Slice(Members, L),
}

/// Reads the program's list, if there is a slice.
///
/// # Safety
/// `list` is the program's own argument: null, or a list of the version that it says.
pub(crate) unsafe fn open<L: Versioned>(members: Option<Members>, list: *mut L) -> OpenedList<L> {
    // SAFETY: by this function's contract `list` is null or a list, and every version begins with its number.
    let Some((members, version)) = members.zip(unsafe { read_in(list.cast::<c_uint>()) }) else {
        return OpenedList::Driver;
    };
    if version != VERSION_1 {
        return OpenedList::Refused(status::NVML_ARGUMENT_VERSION_MISMATCH);
    }
    // SAFETY: by this function's contract `list` is null or a list of the version that it says, which has these fields.
    let asked = unsafe { read_in(list) };
    asked.map_or(OpenedList::Driver, |asked| OpenedList::Slice(members, asked))
}

/// Asks the driver the program's question with enough room. Returns the entries that the driver wrote and their number, or the
/// driver's status.
pub(crate) fn ask_all<L: Versioned>(
    function: unsafe extern "C-unwind" fn(nvmlDevice_t, *mut L) -> Status,
    device: nvmlDevice_t,
    asked: L,
) -> Result<(Vec<L::Entry>, usize), Status> {
    ask(|count, entries| {
        // SAFETY: `read_in` requires a readable number: `ask` passes its own.
        let mut ours = asked.with_room(unsafe { read_in(count) }.unwrap_or(0), entries);
        // SAFETY: `function` requires a list of the version that it says, with room for as many entries as it says: `ours`.
        let code = unsafe { function(device, &raw mut ours) };
        // SAFETY: `write_out` requires a writable number: `ask` passes its own.
        unsafe { write_out(count, ours.count()) };
        code
    })
}
