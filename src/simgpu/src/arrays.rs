//! What arrays are there, and how large are they?

use gpuslice_driver::types::{Status, status};

use crate::hardware::allocation_sizes;
use crate::local::Local;
use crate::objects::{Objects, Tag};
use crate::simulation::Simulation;
use crate::state::layout::Kind;
use crate::status::Outcome;

/// Flags of arrays.
pub(crate) mod flag {
    pub(crate) const LAYERED: u32 = 0x1;
    pub(crate) const CUBEMAP: u32 = 0x4;
    pub(crate) const SPARSE: u32 = 0x40;
    pub(crate) const DEFERRED_MAPPING: u32 = 0x80;
    pub(crate) const ALL: u32 = 0xff | 0x100;
}

/// `CUDA_ARRAY3D_DESCRIPTOR`, its format as a number.
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

/// What every array is rounded up to.
const GRANULE: u64 = 512;

/// How texels are stored: bytes of one texel, or of a block of four by four.
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
            // Formats that say themselves how many channels they have.
            0xc0 | 0xc6 => Some(Texels::Plain(1)),
            0xc1 | 0xc3 | 0xc7 | 0xc9 => Some(Texels::Plain(2)),
            0xc2 | 0xc4 | 0xc8 | 0xca | 0x50 => Some(Texels::Plain(4)),
            0xc5 | 0xcb => Some(Texels::Plain(8)),
            0x91 | 0x92 | 0x97 | 0x98 => Some(Texels::Blocks(8)),
            0x93..=0x96 | 0x99..=0x9e => Some(Texels::Blocks(16)),
            _ => None,
        }
    }

    /// Checks that this describes an array.
    pub(crate) fn check(&self) -> Outcome {
        let cube =
            self.flags & flag::CUBEMAP != 0 && (self.height != self.width || !self.depth.is_multiple_of(6));
        let gap = self.height == 0 && self.depth != 0 && self.flags & flag::LAYERED == 0;
        if self.width == 0 || self.texels().is_none() || self.flags & !flag::ALL != 0 || cube || gap {
            return Err(status::INVALID_VALUE);
        }
        Ok(())
    }

    /// Width, height and depth of a mip level, each at least 1. Layers do not shrink.
    fn extents(&self, level: u32) -> (u64, u64, u64) {
        let shrunk = |extent: usize| (extent as u64 >> level.min(63)).max(1);
        let layered = self.flags & (flag::LAYERED | flag::CUBEMAP) != 0;
        let depth = if layered { (self.depth as u64).max(1) } else { shrunk(self.depth) };
        (shrunk(self.width), shrunk(self.height), depth)
    }

    /// Bytes of a row, rows of a slice, slices.
    fn rows(&self, level: u32) -> Option<(u64, u64, u64)> {
        let (width, height, depth) = self.extents(level);
        Some(match self.texels()? {
            Texels::Plain(bytes) => (width.checked_mul(bytes)?, height, depth),
            Texels::Blocks(bytes) => (width.div_ceil(4).checked_mul(bytes)?, height.div_ceil(4), depth),
        })
    }

    /// Bytes of a mip level.
    fn level_size(&self, level: u32) -> Option<u64> {
        let (row, rows, slices) = self.rows(level)?;
        row.checked_mul(rows)?.checked_mul(slices)?.checked_next_multiple_of(GRANULE)
    }

    /// Bytes of that many levels.
    pub(crate) fn size(&self, levels: u32) -> Option<u64> {
        (0..levels).try_fold(0_u64, |sum, level| sum.checked_add(self.level_size(level)?))
    }

    /// How many levels there can be.
    pub(crate) fn most_levels(&self) -> u32 {
        let (width, height, _) = self.extents(0);
        let layered = self.flags & (flag::LAYERED | flag::CUBEMAP) != 0;
        let depth = if layered { 1 } else { self.depth as u64 };
        64 - width.max(height).max(depth).leading_zeros()
    }

    /// Whether it has memory of its own.
    pub(crate) fn is_backed(&self) -> bool {
        self.flags & (flag::SPARSE | flag::DEFERRED_MAPPING) == 0
    }
}

/// Where the bytes of an array are, and how they follow each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level {
    start: u64,
    row: u64,
    rows: u64,
    slices: u64,
}

impl Level {
    /// Where a part of a row is; none where it is not inside.
    pub(crate) fn place(&self, x: u64, y: u64, z: u64, width: u64) -> Option<u64> {
        // A one-dimensional copy may run over rows.
        let inside = z < self.slices && y < self.rows && x.checked_add(width)? <= self.row;
        let offset = z.checked_mul(self.rows)?.checked_add(y)?.checked_mul(self.row)?.checked_add(x)?;
        let fits = offset.checked_add(width)? <= self.row * self.rows * self.slices;
        (inside || (y == 0 && z == 0 && fits)).then(|| self.start + offset)
    }
}

/// An array, or a level of a mipmapped one.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) context: u64,
    pub(crate) device: usize,
    pub(crate) shape: Shape,
    level: Level,
    /// What it was charged; 0 for a level, whose mipmapped array was.
    charged: u64,
    /// Whose bytes it has.
    parent: Option<u64>,
    bytes: u64,
}

/// A mipmapped array.
#[derive(Debug)]
pub(crate) struct Mipmap {
    pub(crate) context: u64,
    pub(crate) device: usize,
    pub(crate) shape: Shape,
    pub(crate) levels: u32,
    start: u64,
    charged: u64,
    bytes: u64,
    /// Handles of levels that were asked for.
    handed: Vec<(u32, u64)>,
}

/// All arrays.
#[derive(Debug)]
pub(crate) struct Arrays {
    arrays: Objects<Array>,
    mipmaps: Objects<Mipmap>,
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

    pub(crate) fn level(&self, handle: u64) -> Result<Level, Status> {
        self.arrays.get(handle).map(|array| array.level)
    }

    pub(crate) fn device_of(&self, handle: u64) -> Result<usize, Status> {
        self.arrays.get(handle).map(|array| array.device)
    }
}

impl Local {
    /// Takes memory and bytes for something of a shape.
    fn back(
        &self,
        simulation: &Simulation,
        shape: &Shape,
        levels: u32,
        is_own: bool,
    ) -> Result<(u64, u64, u64), Status> {
        let device = self.current()?.1.device;
        let bytes = shape.size(levels).ok_or(status::OUT_OF_MEMORY)?;
        // A driver tells no addresses of arrays: small ones take their slot here, and not a part of a block.
        let taken =
            || if simulation.settings.has_blocks() { allocation_sizes::whole(bytes) } else { Some(bytes) };
        let charged = if is_own && shape.is_backed() { taken().ok_or(status::OUT_OF_MEMORY)? } else { 0 };
        simulation.allocate(device, Kind::Array, charged)?;
        match simulation.arena.take(bytes, GRANULE) {
            Some(start) => Ok((start, bytes, charged)),
            None => {
                simulation.release(device, Kind::Array, charged);
                Err(status::OUT_OF_MEMORY)
            }
        }
    }

    /// Makes an array in the current context.
    pub(crate) fn make_array(&mut self, simulation: &Simulation, shape: Shape) -> Result<u64, Status> {
        shape.check()?;
        let (context, device) = self.current().map(|(handle, context)| (handle, context.device))?;
        let (row, rows, slices) = shape.rows(0).ok_or(status::INVALID_VALUE)?;
        let (start, bytes, charged) = self.back(simulation, &shape, 1, true)?;
        let level = Level { start, row, rows, slices };
        Ok(self.arrays.arrays.add(Array { context, device, shape, level, charged, parent: None, bytes }))
    }

    /// Makes a mipmapped array in the current context.
    pub(crate) fn make_mipmap(
        &mut self,
        simulation: &Simulation,
        shape: Shape,
        levels: u32,
    ) -> Result<u64, Status> {
        self.add_mipmap(simulation, shape, levels, true)
    }

    /// The same over memory that is not this array's.
    pub(crate) fn view_mipmap(
        &mut self,
        simulation: &Simulation,
        shape: Shape,
        levels: u32,
    ) -> Result<u64, Status> {
        self.add_mipmap(simulation, shape, levels, false)
    }

    fn add_mipmap(
        &mut self,
        simulation: &Simulation,
        shape: Shape,
        levels: u32,
        is_own: bool,
    ) -> Result<u64, Status> {
        shape.check()?;
        let (context, device) = self.current().map(|(handle, context)| (handle, context.device))?;
        let levels = levels.clamp(1, shape.most_levels());
        let (start, bytes, charged) = self.back(simulation, &shape, levels, is_own)?;
        let mipmap = Mipmap { context, device, shape, levels, start, charged, bytes, handed: Vec::new() };
        Ok(self.arrays.mipmaps.add(mipmap))
    }

    /// The array that is a level of a mipmapped one.
    pub(crate) fn mip_level(&mut self, handle: u64, level: u32) -> Result<u64, Status> {
        let mipmap = self.arrays.mipmaps.get(handle)?;
        if level >= mipmap.levels {
            return Err(status::INVALID_VALUE);
        }
        if let Some((_, array)) = mipmap.handed.iter().find(|(number, _)| *number == level) {
            return Ok(*array);
        }
        let (row, rows, slices) = mipmap.shape.rows(level).ok_or(status::INVALID_VALUE)?;
        let start = mipmap.start + mipmap.shape.size(level).unwrap_or(0);
        let shape = mipmap.shape.level(level);
        let level_of = Level { start, row, rows, slices };
        let (context, device) = (mipmap.context, mipmap.device);
        let array =
            Array { context, device, shape, level: level_of, charged: 0, parent: Some(handle), bytes: 0 };
        let array = self.arrays.arrays.add(array);
        self.arrays.mipmaps.get_mut(handle)?.handed.push((level, array));
        Ok(array)
    }

    /// Ends an array. A level of a mipmapped array ends with that.
    pub(crate) fn end_array(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        if self.arrays.arrays.get(handle)?.parent.is_some() {
            return Err(crate::status::statuses::INVALID_HANDLE);
        }
        let array = self.arrays.arrays.remove(handle)?;
        self.unmap_array(simulation, handle);
        simulation.arena.give(array.level.start, array.bytes);
        simulation.release(array.device, Kind::Array, array.charged);
        Ok(())
    }

    /// Ends a mipmapped array.
    pub(crate) fn end_mipmap(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let mipmap = self.arrays.mipmaps.remove(handle)?;
        for (_, array) in mipmap.handed {
            let _ = self.arrays.arrays.remove(array);
        }
        self.unmap_array(simulation, handle);
        simulation.arena.give(mipmap.start, mipmap.bytes);
        simulation.release(mipmap.device, Kind::Array, mipmap.charged);
        Ok(())
    }

    /// Ends the arrays of a context.
    pub(crate) fn end_arrays_of(&mut self, simulation: &Simulation, context: u64) {
        for mipmap in self.arrays.mipmaps.matching(|mipmap| mipmap.context == context) {
            let _ = self.end_mipmap(simulation, mipmap);
        }
        for array in self.arrays.arrays.matching(|array| array.context == context) {
            let _ = self.end_array(simulation, array);
        }
    }
}

impl Shape {
    /// The shape of one level. An extent of zero stays zero.
    fn level(&self, level: u32) -> Self {
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
