//! The end of a command: its exit status.

/// The end of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Exits with this code.
    Code(u8),
    /// Ends by this signal. It ended the command's program, or reached the command itself, like the signal of Ctrl-C.
    Signal(i32),
}
