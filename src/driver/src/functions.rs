//! The type of each driver function: one alias for each row, with the function's name.
//!
//! The functions may unwind: a callback of the program may throw, and a thread may be cancelled within the driver.
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
