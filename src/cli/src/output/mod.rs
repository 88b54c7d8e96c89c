//! Output of all commands: messages, progress, and the exit status.

pub(crate) mod ending;
pub(crate) mod failure;
pub(crate) mod progress;
