//! Copies and fills: their two sides and their extents.

/// Location of one side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// An address that the device can use. It may be host memory.
    Device(u64),
    /// An address of the host.
    Host(u64),
    /// An array.
    Array(u64),
}

/// One side of a copy: its location, its start in it, and its row and slice sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) side: Side,
    /// Offset in bytes within a row.
    pub(crate) x: u64,
    /// First row.
    pub(crate) y: u64,
    /// First slice.
    pub(crate) z: u64,
    /// Bytes from one row to the next; 0 for a single row.
    pub(crate) pitch: u64,
    /// Rows of a slice; 0 for a single slice.
    pub(crate) height: u64,
}

impl End {
    /// Returns the start of memory without rows.
    pub(crate) const fn flat(side: Side) -> Self {
        Self { side, x: 0, y: 0, z: 0, pitch: 0, height: 0 }
    }

    /// Returns the byte at offset `x` of memory without rows.
    pub(crate) const fn at(side: Side, x: u64) -> Self {
        Self { x, ..Self::flat(side) }
    }
}

/// A copy or a fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Movement {
    /// A box of bytes from one location to another.
    Copy { to: End, from: End, width: u64, height: u64, depth: u64 },
    /// `height` rows of `width` elements of `element` bytes.
    Fill { to: u64, pitch: u64, value: u32, element: u64, width: u64, height: u64 },
}

impl Movement {
    /// Returns a copy of a run of bytes.
    pub(crate) const fn run(to: Side, from: Side, width: u64) -> Self {
        Self::Copy { to: End::flat(to), from: End::flat(from), width, height: 1, depth: 1 }
    }
}
