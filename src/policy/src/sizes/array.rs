//! Upper bound of the memory of an array, for drivers that do not report it.
//!
//! The bound is at least the driver's size, as far as the layout is known. A driver stores arrays in tiles: 64 bytes by 8
//! rows are a block of 512 bytes. It stacks blocks up to 32 high and, with depth, up to 32 deep. A stack is the smallest
//! power of two that covers the image. So a small image costs a stack of its own size. A large image costs the rest of its
//! last stack beside its own size.
//!
//! Rows are rounded up to 512 bytes, and arrays to 64 KiB. These are the coarsest units of any driver.

/// Unit of an array, in bytes.
const ARRAY_GRANULE: u64 = 64 << 10;
/// Unit of a row, in bytes.
const ROW: u64 = 512;
/// Rows of a block.
const BLOCK_ROWS: u64 = 8;
/// Largest number of blocks in a stack, in either direction.
const STACK_BLOCKS: u64 = 32;
/// Edge of a block of compressed texels.
const COMPRESSED_EDGE: u64 = 4;
/// Bytes of the largest texel of any format: four channels of 32 bits.
const LARGEST_TEXEL: u64 = 16;

/// `CUDA_ARRAY3D_LAYERED`: the depth counts layers.
const LAYERED_FLAG: u32 = 0x1;
/// `CUDA_ARRAY3D_CUBEMAP`: the depth counts faces.
const CUBEMAP_FLAG: u32 = 0x4;
/// `CUDA_ARRAY3D_SPARSE`: memory is mapped later, in parts.
const SPARSE_FLAG: u32 = 0x40;
/// `CUDA_ARRAY3D_DEFERRED_MAPPING`: memory is mapped later, as a whole.
const DEFERRED_FLAG: u32 = 0x80;

/// Description of an array: a driver's descriptor in any of its forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArrayShape {
    /// Texels of a row.
    pub width: u64,
    /// Rows; 0 for one dimension.
    pub height: u64,
    /// Slices, layers or faces; 0 for an array without them.
    pub depth: u64,
    /// `CUarray_format`.
    pub format: u32,
    /// Values of a texel.
    pub channels: u32,
    /// `CUDA_ARRAY3D_…`.
    pub flags: u32,
}

impl ArrayShape {
    /// Returns true if the creation of the array takes memory. Other arrays get memory from `cuMemCreate`.
    #[must_use]
    pub const fn takes_memory(&self) -> bool {
        self.flags & (SPARSE_FLAG | DEFERRED_FLAG) == 0
    }

    /// Returns the array with deferred mapping. A driver reports the size of such an array.
    #[must_use]
    pub const fn deferred(self) -> Self {
        Self { flags: self.flags | DEFERRED_FLAG, ..self }
    }

    /// Returns the upper bound of an array with `levels` mip levels, in bytes. If `levels` is more than possible, all
    /// levels count. The result saturates.
    #[must_use]
    pub fn at_most(&self, levels: u32) -> u64 {
        let levels = levels.clamp(1, self.most_levels());
        let sum = (0..levels).map(|level| self.level(level)).fold(0, u64::saturating_add);
        round_up(sum, ARRAY_GRANULE)
    }

    fn is_layered(&self) -> bool {
        self.flags & (LAYERED_FLAG | CUBEMAP_FLAG) != 0
    }

    /// Returns the largest number of levels, down to a single texel. Layers are not halved.
    fn most_levels(&self) -> u32 {
        let depth = if self.is_layered() { 1 } else { self.depth };
        self.width.max(self.height).max(depth).max(1).ilog2().saturating_add(1)
    }

    fn level(&self, level: u32) -> u64 {
        let halved = |extent: u64| (extent >> level.min(63)).max(1);
        let (bytes, edge) = self.texels();
        let row = round_up(halved(self.width).div_ceil(edge).saturating_mul(bytes), ROW);
        let blocks = halved(self.height).div_ceil(edge).div_ceil(BLOCK_ROWS);
        let rows = stacked(blocks).saturating_mul(BLOCK_ROWS);
        let slices = if self.is_layered() { self.depth.max(1) } else { stacked(halved(self.depth)) };
        row.saturating_mul(rows).saturating_mul(slices)
    }

    /// Returns the bytes of a texel or of a block of texels, and the edge of that block. The planes of a video image count
    /// as one image that is at least as large as their sum. An unknown format counts as the largest format.
    fn texels(&self) -> (u64, u64) {
        let channels = u64::from(self.channels.max(1));
        match self.format {
            0x01 | 0x08 => (channels, 1),
            0x02 | 0x09 | 0x10 => (channels.saturating_mul(2), 1),
            0x03 | 0x0a | 0x20 => (channels.saturating_mul(4), 1),
            // UNORM and SNORM, with one, two or four values of 8 or 16 bits.
            0xc0 | 0xc6 => (1, 1),
            0xc1 | 0xc3 | 0xc7 | 0xc9 => (2, 1),
            0xc2 | 0xc4 | 0xc8 | 0xca => (4, 1),
            0xc5 | 0xcb => (8, 1),
            // Three values of 10 bits and one of 2.
            0x50 => (4, 1),
            // BC1 and BC4, then the other compressed formats.
            0x91 | 0x92 | 0x97 | 0x98 => (8, COMPRESSED_EDGE),
            0x93..=0x96 | 0x99..=0x9e => (16, COMPRESSED_EDGE),
            // Video of 8 bits, 4:2:0 and 4:2:2: no texel has more than two values on average.
            0x51 | 0x53 | 0x55 | 0x59 | 0x5b | 0xa2 | 0xa5 | 0xb0 => (2, 1),
            // Video of up to 16 bits, and 4:4:4 of 8 bits: four bytes.
            0x52
            | 0x54
            | 0x56
            | 0x57
            | 0x5a
            | 0x5c
            | 0x5d
            | 0x9f
            | 0xa1
            | 0xa3
            | 0xa4
            | 0xa6..=0xa9
            | 0xb2 => (4, 1),
            // 4:4:4 of up to 16 bits.
            0x58 | 0x5e | 0xb1 | 0xb3 => (8, 1),
            _ => (LARGEST_TEXEL.max(channels.saturating_mul(4)), 1),
        }
    }
}

/// Returns the number of blocks in a stack that covers `blocks` blocks, or in all stacks together.
fn stacked(blocks: u64) -> u64 {
    round_up(
        blocks,
        blocks.max(1).checked_next_power_of_two().map_or(STACK_BLOCKS, |stack| stack.min(STACK_BLOCKS)),
    )
}

fn round_up(value: u64, multiple: u64) -> u64 {
    value.checked_next_multiple_of(multiple).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOAT: ArrayShape =
        ArrayShape { width: 1, height: 0, depth: 0, format: 0x20, channels: 1, flags: 0 };

    fn image(width: u64, height: u64) -> ArrayShape {
        ArrayShape { width, height, ..FLOAT }
    }

    #[test]
    fn whole_tiles_cost_the_bytes_of_their_texels() {
        assert_eq!(image(1024, 1024).at_most(1), 4 << 20);
        assert_eq!(ArrayShape { channels: 4, ..image(1024, 1024) }.at_most(1), 16 << 20);
        assert_eq!(ArrayShape { depth: 64, ..image(128, 256) }.at_most(1), 8 << 20);
        assert_eq!(ArrayShape { format: 0x91, channels: 4, ..image(4096, 1024) }.at_most(1), 2 << 20);
    }

    #[test]
    fn an_extent_of_zero_counts_as_one() {
        assert_eq!(FLOAT.at_most(1), ARRAY_GRANULE);
        assert_eq!(image(1 << 20, 0).at_most(1), image(1 << 20, 1).at_most(1));
        assert_eq!(image(512, 512).at_most(1), ArrayShape { depth: 1, ..image(512, 512) }.at_most(1));
    }

    #[test]
    fn the_rest_of_the_last_stack_counts() {
        assert_eq!(image(128, 8).at_most(1), ARRAY_GRANULE);
        assert_eq!(image(1024, 17).at_most(1), 4096 * 32, "three blocks stand in a stack of four");
        assert_eq!(image(1024, 520).at_most(1), 4096 * 768, "65 blocks stand in three stacks of 32");
        assert_eq!(ArrayShape { depth: 65, ..image(1024, 256) }.at_most(1), 96 << 20, "three stacks deep");
    }

    #[test]
    fn layers_and_faces_count_each_and_no_more() {
        for flags in [LAYERED_FLAG, CUBEMAP_FLAG, LAYERED_FLAG | CUBEMAP_FLAG] {
            assert_eq!(ArrayShape { depth: 6, flags, ..image(256, 256) }.at_most(1), 6 << 18);
            assert_eq!(
                ArrayShape { depth: 6, flags, ..image(256, 256) }.at_most(2),
                (6 << 18) + 6 * 512 * 128
            );
        }
    }

    #[test]
    fn a_mip_chain_counts_all_its_levels_and_no_more_than_there_can_be() {
        assert_eq!(image(1024, 1024).at_most(2), (4 << 20) + (1 << 20));
        assert_eq!(image(1024, 1024).at_most(11), image(1024, 1024).at_most(u32::MAX));
        assert!(image(1024, 1024).at_most(11) > image(1024, 1024).at_most(10) - ARRAY_GRANULE);
        assert_eq!(image(1024, 1024).at_most(0), image(1024, 1024).at_most(1));
        let deep = ArrayShape { depth: 1 << 10, flags: LAYERED_FLAG, ..image(2, 2) };
        assert_eq!(deep.at_most(2), deep.at_most(3));
    }

    #[test]
    fn planes_of_video_take_no_more_than_their_image() {
        for (format, bytes) in [(0xb0, 2), (0x53, 2), (0x9f, 4), (0x52, 4), (0xb1, 8), (0x5e, 8)] {
            assert_eq!(ArrayShape { format, channels: 3, ..image(1024, 1024) }.at_most(1), bytes << 20);
        }
    }

    #[test]
    fn an_unknown_format_is_taken_for_the_largest() {
        let unknown = ArrayShape { format: 0x7777, ..image(1024, 1024) };
        assert_eq!(unknown.at_most(1), 16 << 20);
    }

    #[test]
    fn sparse_and_deferred_arrays_take_nothing_when_they_are_made() {
        assert!(FLOAT.takes_memory());
        assert!(!FLOAT.deferred().takes_memory());
        assert!(!ArrayShape { flags: SPARSE_FLAG | LAYERED_FLAG, ..FLOAT }.takes_memory());
    }
}
