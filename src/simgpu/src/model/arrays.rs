//! Arrays: their descriptors, their sizes, and the table of all arrays.

use gpuslice_driver::types::{Status, status};

use super::objects::{Objects, Tag};
use crate::status::Outcome;

/// Flags of `CUDA_ARRAY3D_DESCRIPTOR`.
pub(crate) mod flag {
    pub(crate) const LAYERED: u32 = 0x1;
    pub(crate) const CUBEMAP: u32 = 0x4;
    pub(crate) const SPARSE: u32 = 0x40;
    pub(crate) const DEFERRED_MAPPING: u32 = 0x80;
    pub(crate) const ALL: u32 = 0xff | 0x100;
}

/// `CUDA_ARRAY3D_DESCRIPTOR`, with the format as a number.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// The bytes of every array are rounded up to a multiple of this number.
pub(crate) const ARRAY_GRANULE_BYTES: u64 = 512;

/// How texels (the elements of an array) are stored: the bytes of one texel, or of a block of four by four texels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Texels {
    Plain(u64),
    Blocks(u64),
}

impl Shape {
    fn texels(&self) -> Option<Texels> {
        let channels = u64::from(self.channels);
        let plain = |bytes: u64| matches!(channels, 1 | 2 | 4).then_some(Texels::Plain(bytes * channels));
        match self.format {
            0x01 | 0x08 => plain(1),
            0x02 | 0x09 | 0x10 => plain(2),
            0x03 | 0x0a | 0x20 => plain(4),
            // These formats imply their number of channels.
            0xc0 | 0xc6 => Some(Texels::Plain(1)),
            0xc1 | 0xc3 | 0xc7 | 0xc9 => Some(Texels::Plain(2)),
            0xc2 | 0xc4 | 0xc8 | 0xca | 0x50 => Some(Texels::Plain(4)),
            0xc5 | 0xcb => Some(Texels::Plain(8)),
            0x91 | 0x92 | 0x97 | 0x98 => Some(Texels::Blocks(8)),
            0x93..=0x96 | 0x99..=0x9e => Some(Texels::Blocks(16)),
            _ => None,
        }
    }

    /// Checks that this descriptor describes a valid array.
    pub(crate) fn check(&self) -> Outcome {
        let cube =
            self.flags & flag::CUBEMAP != 0 && (self.height != self.width || !self.depth.is_multiple_of(6));
        let gap = self.height == 0 && self.depth != 0 && self.flags & flag::LAYERED == 0;
        if self.width == 0 || self.texels().is_none() || self.flags & !flag::ALL != 0 || cube || gap {
            return Err(status::INVALID_VALUE);
        }
        Ok(())
    }

    /// Returns the width, height and depth of a mip level, each at least 1. Layers do not shrink.
    fn extents(&self, level: u32) -> (u64, u64, u64) {
        let shrunk = |extent: usize| (extent as u64 >> level.min(63)).max(1);
        let layered = self.flags & (flag::LAYERED | flag::CUBEMAP) != 0;
        let depth = if layered { (self.depth as u64).max(1) } else { shrunk(self.depth) };
        (shrunk(self.width), shrunk(self.height), depth)
    }

    /// Returns, for a mip level, the bytes of a row, the rows of a slice, and the number of slices.
    pub(crate) fn rows(&self, level: u32) -> Option<(u64, u64, u64)> {
        let (width, height, depth) = self.extents(level);
        Some(match self.texels()? {
            Texels::Plain(bytes) => (width.checked_mul(bytes)?, height, depth),
            Texels::Blocks(bytes) => (width.div_ceil(4).checked_mul(bytes)?, height.div_ceil(4), depth),
        })
    }

    /// Returns the bytes of a mip level.
    fn level_size(&self, level: u32) -> Option<u64> {
        let (row, rows, slices) = self.rows(level)?;
        row.checked_mul(rows)?.checked_mul(slices)?.checked_next_multiple_of(ARRAY_GRANULE_BYTES)
    }

    /// Returns the bytes of the first `levels` mip levels together.
    pub(crate) fn size(&self, levels: u32) -> Option<u64> {
        (0..levels).try_fold(0_u64, |sum, level| sum.checked_add(self.level_size(level)?))
    }

    /// Returns the largest number of mip levels that an array of this shape can have.
    pub(crate) fn most_levels(&self) -> u32 {
        let (width, height, _) = self.extents(0);
        let layered = self.flags & (flag::LAYERED | flag::CUBEMAP) != 0;
        let depth = if layered { 1 } else { self.depth as u64 };
        64 - width.max(height).max(depth).leading_zeros()
    }

    /// Returns true if an array with this descriptor has memory of its own.
    pub(crate) fn is_backed(&self) -> bool {
        self.flags & (flag::SPARSE | flag::DEFERRED_MAPPING) == 0
    }
}

/// Where the bytes of an array or mip level are, and how large each row and slice is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MipLevel {
    pub(crate) start: u64,
    pub(crate) row: u64,
    pub(crate) rows: u64,
    pub(crate) slices: u64,
}

impl MipLevel {
    /// Returns the address of byte `x` of row `y` in slice `z`. Returns `None` if the `width` bytes from
    /// there are not inside the array.
    pub(crate) fn place(&self, x: u64, y: u64, z: u64, width: u64) -> Option<u64> {
        // A copy of one row may go on into the next rows.
        let inside = z < self.slices && y < self.rows && x.checked_add(width)? <= self.row;
        let offset = z.checked_mul(self.rows)?.checked_add(y)?.checked_mul(self.row)?.checked_add(x)?;
        let fits = offset.checked_add(width)? <= self.row * self.rows * self.slices;
        (inside || (y == 0 && z == 0 && fits)).then(|| self.start + offset)
    }
}

/// An array, or one mip level of a mipmapped array.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) context: u64,
    pub(crate) device: usize,
    pub(crate) shape: Shape,
    pub(crate) level: MipLevel,
    /// Bytes of device memory charged for the array. A mip level has 0, because the charge is that of its mipmapped array.
    pub(crate) charged: u64,
    /// The mipmapped array that this mip level belongs to. `None` for an array of its own.
    pub(crate) parent: Option<u64>,
    pub(crate) bytes: u64,
}

/// A mipmapped array.
#[derive(Debug)]
pub(crate) struct Mipmap {
    pub(crate) context: u64,
    pub(crate) device: usize,
    pub(crate) shape: Shape,
    pub(crate) levels: u32,
    pub(crate) start: u64,
    pub(crate) charged: u64,
    pub(crate) bytes: u64,
    /// Mip levels for which the program has asked for an array: the number of the level, and the handle of the array.
    pub(crate) handed: Vec<(u32, u64)>,
}

/// All arrays of this process.
#[derive(Debug)]
pub(crate) struct Arrays {
    pub(crate) arrays: Objects<Array>,
    pub(crate) mipmaps: Objects<Mipmap>,
}

impl Arrays {
    pub(crate) fn new() -> Self {
        Self { arrays: Objects::new(Tag::Array), mipmaps: Objects::new(Tag::Mipmap) }
    }

    pub(crate) fn get(&self, handle: u64) -> Result<&Array, Status> {
        self.arrays.get(handle)
    }

    pub(crate) fn mipmap(&self, handle: u64) -> Result<&Mipmap, Status> {
        self.mipmaps.get(handle)
    }

    pub(crate) fn level(&self, handle: u64) -> Result<MipLevel, Status> {
        self.arrays.get(handle).map(|array| array.level)
    }

    pub(crate) fn device_of(&self, handle: u64) -> Result<usize, Status> {
        self.arrays.get(handle).map(|array| array.device)
    }
}

impl Shape {
    /// Returns the shape of one level. An extent of zero stays zero.
    pub(crate) fn level(&self, level: u32) -> Self {
        let shrunk = |extent: usize| if extent == 0 { 0 } else { (extent >> level.min(63)).max(1) };
        let layered = self.flags & (flag::LAYERED | flag::CUBEMAP) != 0;
        let depth = if layered { self.depth } else { shrunk(self.depth) };
        Self { width: shrunk(self.width), height: shrunk(self.height), depth, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(width: usize, height: usize, depth: usize, channels: u32, flags: u32) -> Shape {
        Shape { width, height, depth, format: 0x20, channels, flags }
    }

    #[test]
    fn an_array_holds_bytes_not_bits_and_extents_of_zero_count_as_one() {
        assert_eq!(shape(1024, 0, 0, 1, 0).size(1), Some(4096));
        assert_eq!(shape(1024, 16, 0, 4, 0).size(1), Some(1024 * 16 * 16));
        assert_eq!(shape(64, 64, 64, 2, 0).size(1), Some(64 * 64 * 64 * 8));
        assert_eq!(Shape { format: 0x01, ..shape(100, 0, 0, 1, 0) }.size(1), Some(512));
    }

    #[test]
    fn layers_count_each_and_do_not_shrink_with_the_level() {
        assert_eq!(shape(256, 256, 10, 1, flag::LAYERED).size(1), Some(256 * 256 * 10 * 4));
        assert_eq!(shape(256, 256, 10, 1, flag::LAYERED).size(2), Some((256 * 256 + 128 * 128) * 10 * 4));
        assert_eq!(shape(256, 0, 8, 1, flag::LAYERED).size(1), Some(256 * 8 * 4));
    }

    #[test]
    fn a_mip_chain_counts_all_its_levels() {
        let shape = shape(1024, 1024, 0, 1, 0);
        assert_eq!(shape.most_levels(), 11);
        let levels = (0..11).map(|level| u64::max((1024 >> level) * (1024 >> level) * 4, 512)).sum();
        assert_eq!(shape.size(11), Some(levels));
    }

    #[test]
    fn block_compressed_texels_are_counted_in_blocks() {
        let bc1 = Shape { format: 0x91, ..shape(1024, 1024, 0, 4, 0) };
        assert_eq!(bc1.size(1), Some(1024 * 1024 / 2));
    }
}
