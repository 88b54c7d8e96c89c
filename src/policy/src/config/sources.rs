//! The sources of a configuration: the environment and the operator's files.

/// The operator's file that is always read if it exists. It has the highest precedence.
pub const FIXED_FILE: &str = "/run/gpuslice/conf/config";

/// Largest operator's file, in bytes. A reader may stop after one byte more.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// Longest value, in bytes. A list of all MIG instances of sixteen devices fits.
pub const MAX_VALUE_BYTES: usize = 16 << 10;

/// The result of reading an operator's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileRead<'a> {
    /// The file does not exist.
    Absent,
    /// The file exists and cannot be read, for this reason.
    Unreadable(&'a str),
    /// The file's content.
    Contents(&'a [u8]),
}

/// The results of reading both operator's files.
#[derive(Debug, Clone, Copy)]
pub struct OperatorFiles<'a> {
    /// The file that [`operator_file`](super::operator_file) named. [`FileRead::Absent`] if it named none.
    pub named: FileRead<'a>,
    /// The file at [`FIXED_FILE`].
    pub fixed: FileRead<'a>,
}
