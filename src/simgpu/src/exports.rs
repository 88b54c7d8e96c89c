//! Macros that export a function for each row of the table.

/// Exports every declared function of the driver API. Defines `address`, which returns the address of each.
///
/// It is for a library that no program links. It needs the table's types, `Symbol` and the traits of `rows` in scope.
#[macro_export]
macro_rules! export_cuda {
    ($( $family:ident: $reason:literal { $( $treatment:ident $name:ident $(@ $since:literal)?
        ( $($arg:ident: $ty:ty),* ) $(-> ($ret:ty))? $(by $module:ident :: $hook:ident)?; )* } )*) => {
        $( $crate::export_rows! { $family $( $name ( $($arg: $ty),* ) )* } )*

        /// Returns the address of the exported function of a symbol; null if it is not exported.
        fn address(symbol: Symbol) -> *mut c_void {
            $( $crate::find_row! { $family symbol $( $name )* } )*
            core::ptr::null_mut()
        }
    };
}

/// Exports the functions of one family. A function that no header declares has no signature, so the macro does not export it.
#[doc(hidden)]
#[macro_export]
macro_rules! export_rows {
    (undeclared $($rows:tt)*) => {};
    ($family:ident $( $name:ident ( $($arg:ident: $ty:ty),* ) )*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> Status {
            // SAFETY: `enter` needs valid pointers: the caller promises them by this function's contract.
            unsafe { $crate::call::enter(Symbol::$name, address, |driver| driver.$name($($arg),*)) }
        }
    )* };
}

#[doc(hidden)]
#[macro_export]
macro_rules! find_row {
    (undeclared $symbol:ident $($name:ident)*) => {};
    ($family:ident $symbol:ident $($name:ident)*) => {
        match $symbol {
            $( Symbol::$name => return $name as *mut c_void, )*
            _ => {}
        }
    };
}
