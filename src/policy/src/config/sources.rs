//! The sources of a configuration: the environment and the operator's files.

/// The operator's file that is always read where it exists, and always wins.
pub const FIXED_FILE: &str = "/run/gpuslice/conf/config";

/// The largest operator's file; a reader need not read on behind one byte more.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// The longest value: a list of every instance of sixteen devices fits.
pub const MAX_VALUE_BYTES: usize = 16 << 10;

/// What came of reading an operator's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileRead<'a> {
    /// There is none.
    Absent,
    /// There is one and it could not be read, for this reason.
    Unreadable(&'a str),
    /// There is one, and this is in it.
    Contents(&'a [u8]),
}

/// What came of reading the operator's files.
#[derive(Debug, Clone, Copy)]
pub struct OperatorFiles<'a> {
    /// The file that [`operator_file`](super::operator_file) named; [`FileRead::Absent`] where it named none.
    pub named: FileRead<'a>,
    /// The file at [`FIXED_FILE`].
    pub fixed: FileRead<'a>,
}
