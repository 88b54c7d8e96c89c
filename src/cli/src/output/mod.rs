//! Output of all commands: messages, progress, and how a command ends.

pub(crate) mod ending;
pub(crate) mod failure;
pub(crate) mod progress;
