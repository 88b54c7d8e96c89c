//! Macros that make one exported function from each row of NVML's table.

/// Exports every function of NVML that the headers declare and that returns a status.
///
/// It is for a library that nothing links with. The types of the table, `Symbol`, and the traits of `nvml` must be in scope.
#[macro_export]
macro_rules! export_nvml {
    ($( $family:ident: $reason:literal { $( $treatment:ident $name:ident
        ( $($arg:ident: $ty:ty),* ) $(-> ($ret:ty))? $(by $module:ident :: $hook:ident)?; )* } )*) => {
        $( $crate::export_nvml_rows! { $family $( $name ( $($arg: $ty),* ) )* } )*
    };
}

/// Exports the functions of one family. It leaves out a function that no header declares, because that has no signature, and a
/// function that returns no status, because that has no method.
#[doc(hidden)]
#[macro_export]
macro_rules! export_nvml_rows {
    (undeclared $($rows:tt)*) => {};
    (error_text $($rows:tt)*) => {};
    ($family:ident $( $name:ident ( $($arg:ident: $ty:ty),* ) )*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> Status {
            // SAFETY: the callee needs valid pointers: by this function's contract the caller promises them.
            unsafe { enter(Symbol::$name, |nvml| nvml.$name($($arg),*)) }
        }
    )* };
}
