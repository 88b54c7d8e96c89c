//! How does a row of the table become an exported function of NVML?

/// Exports every declared function of NVML that returns a status.
///
/// For a library that nothing links. It needs the table's types, `Symbol` and the traits of `nvml` in
/// scope.
#[macro_export]
macro_rules! export_nvml {
    ($( $family:ident: $reason:literal { $( $treatment:ident $name:ident
        ( $($arg:ident: $ty:ty),* ) $(-> ($ret:ty))? $(by $module:ident :: $hook:ident)?; )* } )*) => {
        $( $crate::export_nvml_rows! { $family $( $name ( $($arg: $ty),* ) )* } )*
    };
}

/// The functions of one family. What no header declares has no signature; what returns no status has no
/// method.
#[doc(hidden)]
#[macro_export]
macro_rules! export_nvml_rows {
    (undeclared $($rows:tt)*) => {};
    (error_text $($rows:tt)*) => {};
    ($family:ident $( $name:ident ( $($arg:ident: $ty:ty),* ) )*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> Status {
            // SAFETY: the caller's pointers are passed on with the caller's own promise about them.
            unsafe { enter(Symbol::$name, |nvml| nvml.$name($($arg),*)) }
        }
    )* };
}
