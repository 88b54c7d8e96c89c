//! What is the type of each driver function? One alias per row, named as the function.
//!
//! What a driver calls back may throw, and a thread may be cancelled in a driver: both unwind through the caller.
#![allow(
    non_camel_case_types,
    missing_docs,
    clippy::wildcard_imports,
    reason = "the names are the driver's, the row is the documentation, and the rows use nearly every type"
)]

use crate::types::*;

macro_rules! types {
    ($( $family:ident: $reason:literal { $(
        $treatment:ident $name:ident $(@ $since:literal)? ( $($arg:ident: $ty:ty),* )
            $(-> ($ret:ty))? $(by $module:ident :: $hook:ident)?;
    )* } )*) => { $( $(
        pub type $name = unsafe extern "C-unwind" fn($($ty),*) -> result!($($ret)?);
    )* )* };
}

macro_rules! result {
    () => {
        Status
    };
    ($ret:ty) => {
        $ret
    };
}

crate::for_each_symbol! { [types] }
