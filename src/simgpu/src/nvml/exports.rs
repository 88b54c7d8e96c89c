//! Macros that make an exported function of each row of NVML's table.

/// Exports every declared function of NVML that returns a status.
///
/// It is for a library that nothing links. It needs the table's types, `Symbol` and the traits of `nvml` in scope.
#[macro_export]
macro_rules! export_nvml {
    ($( $family:ident: $reason:literal { $( $treatment:ident $name:ident
        ( $($arg:ident: $ty:ty),* ) $(-> ($ret:ty))? $(by $module:ident :: $hook:ident)?; )* } )*) => {
        $( $crate::export_nvml_rows! { $family $( $name ( $($arg: $ty),* ) )* } )*
    };
}

/// Exports the functions of one family. A function that no header declares has no signature. A function that returns
/// no status has no method.
#[doc(hidden)]
#[macro_export]
macro_rules! export_nvml_rows {
    (undeclared $($rows:tt)*) => {};
    (error_text $($rows:tt)*) => {};
    ($family:ident $( $name:ident ( $($arg:ident: $ty:ty),* ) )*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> Status {
            // SAFETY: the callee needs valid pointers: the caller promises them by this function's contract.
            unsafe { enter(Symbol::$name, |nvml| nvml.$name($($arg),*)) }
        }
    )* };
}
