//! Copies and fills: their two sides and their extents.

/// Where one side of a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// An address of the device, or one that the device can use too.
    Device(u64),
    /// An address of the host.
    Host(u64),
    /// An array.
    Array(u64),
}

/// One side of a copy: where it is, where in it the copy begins, and how rows follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) side: Side,
    /// Offset in bytes within a row.
    pub(crate) x: u64,
    /// First row.
    pub(crate) y: u64,
    /// First slice.
    pub(crate) z: u64,
    /// Distance of rows in bytes; 0 where there is one row.
    pub(crate) pitch: u64,
    /// Rows of a slice; 0 where there is one slice.
    pub(crate) height: u64,
}

impl End {
    /// The beginning of something without rows.
    pub(crate) const fn flat(side: Side) -> Self {
        Self { side, x: 0, y: 0, z: 0, pitch: 0, height: 0 }
    }

    /// The same, some bytes on.
    pub(crate) const fn at(side: Side, x: u64) -> Self {
        Self { x, ..Self::flat(side) }
    }
}

/// Something that moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Movement {
    /// A box of bytes from one place to another.
    Copy { to: End, from: End, width: u64, height: u64, depth: u64 },
    /// Rows of an element of `element` bytes, `width` of them each.
    Fill { to: u64, pitch: u64, value: u32, element: u64, width: u64, height: u64 },
}

impl Movement {
    /// A copy of a run of bytes.
    pub(crate) const fn run(to: Side, from: Side, width: u64) -> Self {
        Self::Copy { to: End::flat(to), from: End::flat(from), width, height: 1, depth: 1 }
    }
}
