//! Copies and fills: the two sides of each, and how much moves.

/// The memory on one side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// An address that the device can use. The memory may be host memory.
    Device(u64),
    /// An address of host memory.
    Host(u64),
    /// An array.
    Array(u64),
}

/// One side of a copy: where it is, where in it the copy begins, and how large its rows and slices are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) side: Side,
    /// Offset of the start within a row, in bytes.
    pub(crate) x: u64,
    /// The first row.
    pub(crate) y: u64,
    /// The first slice.
    pub(crate) z: u64,
    /// Bytes from the start of one row to the start of the next; 0 for a single row.
    pub(crate) pitch: u64,
    /// Number of rows of a slice; 0 for a single slice.
    pub(crate) height: u64,
}

impl End {
    /// Returns the side that begins at the first byte of memory without rows.
    pub(crate) const fn flat(side: Side) -> Self {
        Self { side, x: 0, y: 0, z: 0, pitch: 0, height: 0 }
    }

    /// Returns the side that begins at offset `x` of memory without rows.
    pub(crate) const fn at(side: Side, x: u64) -> Self {
        Self { x, ..Self::flat(side) }
    }
}

/// A copy or a fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Movement {
    /// A box of bytes is copied from one location to another.
    Copy { to: End, from: End, width: u64, height: u64, depth: u64 },
    /// `height` rows of `width` elements are filled. An element has `element` bytes.
    Fill { to: u64, pitch: u64, value: u32, element: u64, width: u64, height: u64 },
}

impl Movement {
    /// Returns the copy of `width` bytes that follow each other.
    pub(crate) const fn run(to: Side, from: Side, width: u64) -> Self {
        Self::Copy { to: End::flat(to), from: End::flat(from), width, height: 1, depth: 1 }
    }
}
