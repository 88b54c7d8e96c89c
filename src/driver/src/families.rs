//! Families of driver functions that take memory or submit work, by name, including functions that the table does not
//! have.

use crate::table::Symbol;
use core::ffi::CStr;

/// One name for each kind of call that takes memory or submits work, with the forms between which the driver may
/// choose.
pub const TRIED: [(&CStr, &[Symbol]); 5] = [
    (c"cuMemAlloc", &[Symbol::cuMemAlloc_v2]),
    (c"cuMemAllocAsync", &[Symbol::cuMemAllocAsync, Symbol::cuMemAllocAsync_ptsz]),
    (c"cuMemCreate", &[Symbol::cuMemCreate]),
    (c"cuLaunchKernel", &[Symbol::cuLaunchKernel, Symbol::cuLaunchKernel_ptsz]),
    (c"cuGraphLaunch", &[Symbol::cuGraphLaunch, Symbol::cuGraphLaunch_ptsz]),
];
/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM` and `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
pub const STREAMS: [(u64, &str); 2] = [(1, "legacy"), (2, "per-thread")];

/// Prefixes of the names of functions that submit work or take device memory.
const FAMILIES: [&str; 14] = [
    "cuLaunch",
    "cuGraphLaunch",
    "cuGraphInstantiate",
    "cuGraphExecUpdate",
    "cuMemAlloc",
    "cuMemCreate",
    "cuArrayCreate",
    "cuArray3DCreate",
    "cuMipmappedArrayCreate",
    "cuModuleLoad",
    "cuLibraryLoad",
    "cuCtxCreate",
    "cuDevicePrimaryCtxRetain",
    "cuGreenCtxCreate",
];

/// Returns true if a function with this name probably takes memory or submits work.
#[must_use]
pub fn is_of_family(name: &[u8]) -> bool {
    FAMILIES.iter().any(|family| name.starts_with(family.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{ALL, Treatment};

    /// Prefixes of functions that write to memory, change a setting, or belong to graphics.
    const OTHERS: [&str; 5] = ["cuMemcpy", "cuMemset", "cuCtxSetLimit", "cuGLCtxCreate", "cuVDPAUCtxCreate"];

    #[test]
    fn families_are_those_of_the_rows_that_charge_or_gate() {
        for symbol in
            ALL.iter().filter(|symbol| matches!(symbol.treatment(), Treatment::Charge | Treatment::Gate))
        {
            let name = symbol.name();
            let is_other = OTHERS.iter().any(|other| name.starts_with(other));
            assert_ne!(is_of_family(name.as_bytes()), is_other, "{name}");
        }
        for family in FAMILIES {
            assert!(
                ALL.iter().any(|symbol| symbol.is_hooked() && symbol.name().starts_with(family)),
                "{family}"
            );
        }
    }

    #[test]
    fn names_that_are_tried_are_rows_that_charge_or_gate() {
        for (name, forms) in TRIED {
            let name = name.to_str().unwrap_or_default();
            for form in forms {
                assert!(form.name().starts_with(name) && form.is_hooked(), "{name} {}", form.name());
            }
        }
    }
}
