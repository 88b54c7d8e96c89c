//! Exported entries, through which a program reaches the hooks.

pub(crate) mod dlopen;
pub(crate) mod dlsym;
pub(crate) mod exports;
pub(crate) mod lookup;
