//! Statuses of the functions for C.

use core::ffi::{CStr, c_int};
use gpuslice_region::RegionError;
use std::io;

macro_rules! statuses {
    ($($(#[$meaning:meta])* $name:ident = $number:literal, $spelled:literal, $text:literal;)*) => {
        /// Reason for which a function failed. The numbers never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub(crate) enum Status {
            $($(#[$meaning])* $name = $number,)*
        }

        /// Names and numbers, as the header has them.
        #[cfg(test)]
        pub(crate) const NAMES: &[(&str, c_int)] = &[("GPUSLICE_OK", Status::OK), $(($spelled, $number),)*];

        impl Status {
            /// Returns the sentence for a number.
            pub(crate) fn text(number: c_int) -> &'static CStr {
                match number {
                    Self::OK => c"success",
                    $($number => $text,)*
                    _ => c"no status of this version of the library",
                }
            }
        }
    };
}

statuses! {
    /// A pointer is null, or a size too small.
    Argument = 1, "GPUSLICE_ERROR_ARGUMENT", c"a null pointer, an empty name, or a structure that is too small";
    /// There is no such region, or no process has finished initialising it.
    NoSlice = 2, "GPUSLICE_ERROR_NO_SLICE", c"there is no such slice; it may not have begun";
    /// Several slices have the name.
    Ambiguous = 3, "GPUSLICE_ERROR_AMBIGUOUS", c"several slices have this name; give the path of one";
    /// The user has no right to the file.
    Permission = 4, "GPUSLICE_ERROR_PERMISSION", c"this user may not read the region (or, to reap, write it)";
    /// The file is no region.
    NotARegion = 5, "GPUSLICE_ERROR_NOT_A_REGION", c"the file is not a region";
    /// Another version of gpuslice made the region.
    Version = 6, "GPUSLICE_ERROR_VERSION", c"the region has another version than this library reads";
    /// The file was truncated or overwritten.
    Damaged = 7, "GPUSLICE_ERROR_DAMAGED", c"the region was truncated or overwritten; its slice is lost";
    /// The file was removed or replaced.
    Replaced = 8, "GPUSLICE_ERROR_REPLACED", c"the region was removed or replaced; close it, and open what is there now";
    /// Another slice has the region.
    Renewed = 9, "GPUSLICE_ERROR_RENEWED", c"another slice has the region now; close it and open it again";
    /// The slice has no device with this number.
    NoDevice = 10, "GPUSLICE_ERROR_NO_DEVICE", c"the slice has no device of this number";
    /// The answer is larger than the caller's room.
    Room = 11, "GPUSLICE_ERROR_ROOM", c"the answer is larger than the room; the count says how large it is";
    /// The process has opened more regions than it can protect from truncation.
    TooManyOpen = 12, "GPUSLICE_ERROR_TOO_MANY_OPEN", c"too many slices are open in this process; close some";
    /// A system call failed.
    System = 13, "GPUSLICE_ERROR_SYSTEM", c"a system call failed; errno says why";
    /// Another process has the join lock.
    Busy = 14, "GPUSLICE_ERROR_BUSY", c"another process is joining or reaping; try again";
    /// A defect of the library.
    Internal = 15, "GPUSLICE_ERROR_INTERNAL", c"a defect of the library; please report it";
}

impl Status {
    /// Success.
    pub(crate) const OK: c_int = 0;

    /// Returns the number that the caller gets.
    pub(crate) fn number(self) -> c_int {
        self as c_int
    }
}

impl From<io::Error> for Status {
    /// Writes the error number of the system into `errno`.
    fn from(error: io::Error) -> Self {
        // SAFETY: `__errno_location` has no requirement; it returns this thread's own variable.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: `errno` points to this thread's own variable, which lives as long as the thread.
        unsafe { *errno = error.raw_os_error().unwrap_or(libc::EIO) };
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission,
            _ => Self::System,
        }
    }
}

impl From<RegionError> for Status {
    fn from(error: RegionError) -> Self {
        match error {
            RegionError::System { source, .. } => source.into(),
            RegionError::NotAFile { .. } | RegionError::Magic { .. } => Self::NotARegion,
            RegionError::Owner { .. } => Self::Permission,
            RegionError::Version { .. } => Self::Version,
            RegionError::Size { .. } | RegionError::Damaged { .. } => Self::Damaged,
            RegionError::Replaced { .. } => Self::Replaced,
            RegionError::Reinitialised { .. } => Self::Renewed,
            RegionError::TooManyOpen { .. } => Self::TooManyOpen,
            RegionError::Busy { .. } => Self::Busy,
            // Only processes that join get the other errors.
            _ => Self::Internal,
        }
    }
}
