//! Which functions does the driver export, and what is done with each? THE TABLE.
//!
//! A row is a treatment, a name, the first version at which `cuGetProcAddress` hands the symbol out (none: it
//! never does), its parameters, and the hook that acts on it (none: the call jumps on to the driver):
//!
//! ```text
//! charge cuMemAlloc_v2 @3020(dptr: *mut CUdeviceptr, bytesize: usize) by memory::alloc;
//! ```
//!
//! Every function returns a status by value unless `-> (type)` says otherwise. Rows stand in families, and a
//! family gives the reason for what is done. The order of rows is the order of the documentation.
//!
//! The rows reach whoever needs them through a macro: `for_each_symbol! { [path::to::a_macro] }` calls
//! `a_macro!` with all families; `for_each_cuda!` and `for_each_nvml!` with one API's. The pattern of a
//! family is in [`crate::table`], the first user.
//!
//! Names that are exported by drivers and deliberately absent here stand in [`NOT_EXPORTED`].

mod array;
mod context;
mod copy;
mod external;
mod graph;
mod init;
mod launch;
mod memory;
mod nvml_device;
mod nvml_slice;
mod nvml_tuning;
mod nvml_vgpu;
mod pool;
mod stream;
mod vmm;

/// Calls the macro at the given path with every family of the driver API.
#[macro_export]
macro_rules! for_each_cuda {
    ([$($then:tt)*]) => { $crate::rows_init! { {
        rows_context rows_memory rows_vmm rows_pool rows_array rows_copy rows_launch rows_graph rows_stream
        rows_external rows_end
    } [$($then)*] } };
}

/// Calls the macro at the given path with every family of NVML.
#[macro_export]
macro_rules! for_each_nvml {
    ([$($then:tt)*]) => { $crate::rows_nvml_slice! { {
        rows_nvml_device rows_nvml_tuning rows_nvml_vgpu rows_end
    } [$($then)*] } };
}

/// Calls the macro at the given path with every family of both APIs, the driver API's first.
#[macro_export]
macro_rules! for_each_symbol {
    ([$($then:tt)*]) => { $crate::rows_init! { {
        rows_context rows_memory rows_vmm rows_pool rows_array rows_copy rows_launch rows_graph rows_stream
        rows_external rows_nvml_slice rows_nvml_device rows_nvml_tuning rows_nvml_vgpu rows_end
    } [$($then)*] } };
}

#[doc(hidden)]
#[macro_export]
macro_rules! rows_end {
    ({} [$($then:tt)*] $($rows:tt)*) => { $($then)* ! { $($rows)* } };
}

/// Names that drivers export and we do not, by prefix, with the reason.
pub const NOT_EXPORTED: &[(&str, &str)] =
    &[("cudbg", "a debugger finds these in the real library; many are variables that it reads and writes")];
