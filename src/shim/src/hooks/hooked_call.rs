//! The call of a program that a hook handles: the driver's function with the program's arguments.

use gpuslice_driver::types::Status;

/// Call of a driver function that has a hook. Its arguments meet the driver's contract for that function, so a hook can forward
/// it safely. A hook borrows the call and cannot copy it. So it cannot make the call after the program's own has returned.
pub(crate) struct HookedCall<F: DriverFunction> {
    function: F,
    arguments: F::Arguments,
}

impl<F: DriverFunction> HookedCall<F> {
    /// # Safety
    /// The arguments meet the driver's contract for `function`, as long as the value lives.
    #[inline(always)]
    pub(crate) const unsafe fn new(function: F, arguments: F::Arguments) -> Self {
        Self { function, arguments }
    }

    /// Calls the driver with the program's own arguments, and returns the driver's status. A hook may do that again if the driver
    /// refused the call, or if the hook has undone it.
    #[inline(always)]
    pub(crate) fn forward(&self) -> Status {
        // SAFETY: `call` requires arguments that meet the driver's contract. By the contract of `HookedCall::new` these do.
        unsafe { self.function.call(self.arguments) }
    }

    /// Returns the program's arguments, in the order of the row.
    #[inline(always)]
    pub(crate) const fn arguments(&self) -> F::Arguments {
        self.arguments
    }

    /// Returns the driver's function, for a call with other arguments than the program's.
    #[inline(always)]
    pub(crate) const fn function(&self) -> F {
        self.function
    }
}

/// Type of a driver function that returns a status: `gpuslice_driver::functions` has one for each row.
pub(crate) trait DriverFunction: Copy {
    /// Tuple of the function's arguments.
    type Arguments: Copy;

    /// Calls the function.
    ///
    /// # Safety
    /// The arguments meet the driver's contract for the function.
    unsafe fn call(self, arguments: Self::Arguments) -> Status;
}

/// Implements the trait for functions with as many arguments as there are names, or fewer.
macro_rules! driver_functions {
    ($($first:ident $($rest:ident)*)?) => {
        impl<$($first: Copy, $($rest: Copy),*)?> DriverFunction
            for unsafe extern "C-unwind" fn($($first, $($rest),*)?) -> Status
        {
            type Arguments = ($($first, $($rest,)*)?);

            #[inline(always)]
            unsafe fn call(self, arguments: Self::Arguments) -> Status {
                #[allow(non_snake_case, reason = "an argument has the name of its type")]
                let ($($first, $($rest,)*)?) = arguments;
                // SAFETY: the function requires arguments that meet its contract. By this method's contract these do.
                unsafe { self($($first, $($rest),*)?) }
            }
        }
        $( driver_functions! { $($rest)* } )?
    };
}

driver_functions! { A B C D E F G H I J K }
