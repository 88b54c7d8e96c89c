//! The parts of the operating system that simgpu uses: the clock, threads, messages, process numbers, and a lock between processes.

pub(crate) mod clock;
pub(crate) mod messages;
pub(crate) mod pid_namespace;
pub(crate) mod robust_mutex;
pub(crate) mod threads;
