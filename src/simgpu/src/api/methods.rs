//! A macro for functions that differ only in their names and arguments.

/// Defines methods of one line each: `name(argument: type) => expression;`.
macro_rules! methods {
    ($this:ident; $( $name:ident ( $($arg:ident: $ty:ty),* $(,)? ) => $body:expr; )*) => { $(
        fn $name(&$this, $($arg: $ty),*) -> crate::status::Outcome {
            $body
        }
    )* };
}
pub(super) use methods;
