//! Makes and ends arrays.

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::hardware::allocation_sizes;
use crate::model::arrays::{ARRAY_GRANULE_BYTES, Array, MipLevel, Mipmap, Shape};
use crate::state::layout::MemoryKind;
use crate::status::Outcome;

impl ProcessObjects {
    /// Takes device memory and bytes of the arena for `levels` mip levels of a shape. Returns the start, the bytes, and the
    /// charge. `is_own` is true if the array has memory of its own; otherwise it is charged nothing.
    fn back(
        &self,
        simulation: &Simulation,
        shape: &Shape,
        levels: u32,
        is_own: bool,
    ) -> Result<(u64, u64, u64), Status> {
        let device = self.current()?.1.device;
        let bytes = shape.size(levels).ok_or(status::OUT_OF_MEMORY)?;
        // A program cannot learn the address of an array, so whether arrays share blocks is unknown. Here even a small
        // array takes whole pages of its own.
        let taken =
            || if simulation.settings.has_blocks() { allocation_sizes::whole(bytes) } else { Some(bytes) };
        let charged = if is_own && shape.is_backed() { taken().ok_or(status::OUT_OF_MEMORY)? } else { 0 };
        simulation.allocate(device, MemoryKind::Array, charged)?;
        match simulation.arena.take(bytes, ARRAY_GRANULE_BYTES) {
            Some(start) => Ok((start, bytes, charged)),
            None => {
                simulation.release(device, MemoryKind::Array, charged);
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
        let level = MipLevel { start, row, rows, slices };
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

    /// Makes a mipmapped array whose memory belongs to something else.
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

    /// Returns the array that is one level of a mipmapped array. Makes it when the program first asks for it.
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
        let level_of = MipLevel { start, row, rows, slices };
        let (context, device) = (mipmap.context, mipmap.device);
        let array =
            Array { context, device, shape, level: level_of, charged: 0, parent: Some(handle), bytes: 0 };
        let array = self.arrays.arrays.add(array);
        self.arrays.mipmaps.get_mut(handle)?.handed.push((level, array));
        Ok(array)
    }

    /// Ends an array. The array of a mip level ends only with its mipmapped array, so the call fails for such an array.
    pub(crate) fn end_array(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        if self.arrays.arrays.get(handle)?.parent.is_some() {
            return Err(crate::status::statuses::INVALID_HANDLE);
        }
        let array = self.arrays.arrays.remove(handle)?;
        self.unmap_array(simulation, handle);
        simulation.arena.give(array.level.start, array.bytes);
        simulation.release(array.device, MemoryKind::Array, array.charged);
        Ok(())
    }

    /// Ends a mipmapped array and the arrays of its levels.
    pub(crate) fn end_mipmap(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let mipmap = self.arrays.mipmaps.remove(handle)?;
        for (_, array) in mipmap.handed {
            let _ = self.arrays.arrays.remove(array);
        }
        self.unmap_array(simulation, handle);
        simulation.arena.give(mipmap.start, mipmap.bytes);
        simulation.release(mipmap.device, MemoryKind::Array, mipmap.charged);
        Ok(())
    }

    /// Ends all arrays of a context.
    pub(crate) fn end_arrays_of(&mut self, simulation: &Simulation, context: u64) {
        for mipmap in self.arrays.mipmaps.matching(|mipmap| mipmap.context == context) {
            let _ = self.end_mipmap(simulation, mipmap);
        }
        for array in self.arrays.arrays.matching(|array| array.context == context) {
            let _ = self.end_array(simulation, array);
        }
    }
}
