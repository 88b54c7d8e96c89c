//! The end of a command: its exit status.

/// End of a command that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Exits with this code.
    Code(u8),
    /// Ends by this signal, which ended its program or reached the command itself, like that of Ctrl-C.
    Signal(i32),
}
