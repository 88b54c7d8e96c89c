//! The commands.

pub(crate) mod cdi;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod list;
pub(crate) mod manual;
pub(crate) mod remove;
pub(crate) mod run;
pub(crate) mod set;
pub(crate) mod status;
pub(crate) mod top;
