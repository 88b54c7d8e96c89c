//! Converts the different descriptions of a copy into one form.

use gpuslice_driver::types::*;

use super::submit::{StreamArgument, Wait};
use crate::call::DriverCall;
use crate::model::graphs::Op;
use crate::model::movement::{End, Movement, Side};
use crate::model::objects::handle;
use crate::status::Outcome;

/// Returns a side of a copy in device memory.
pub(super) fn device(address: u64) -> End {
    End::flat(Side::Device(address))
}

/// Returns a side of a copy in host memory.
pub(super) fn host<T>(address: *const T) -> End {
    End::flat(Side::Host(address.expose_provenance() as u64))
}

/// Returns a side of a copy in an array.
pub(super) fn array(of: CUarray, offset: u64) -> End {
    End::at(Side::Array(handle(of)), offset)
}

impl DriverCall {
    fn side(&self, kind: u32, host: *mut c_void, device: u64, array: CUarray) -> Result<Side, Status> {
        match kind {
            memory_type::HOST => Ok(Side::Host(host.expose_provenance() as u64)),
            memory_type::DEVICE => Ok(Side::Device(device)),
            memory_type::UNIFIED => Ok(self.simulation()?.objects().either(device)),
            memory_type::ARRAY => {
                self.simulation()?.objects().check_array(handle(array))?;
                Ok(Side::Array(handle(array)))
            }
            _ => Err(status::INVALID_VALUE),
        }
    }

    fn end_2d(&self, side: &PlaneEnd) -> Result<End, Status> {
        let found = self.side(side.kind, side.host, side.device, side.array)?;
        let (x, y) = (side.x as u64, side.y as u64);
        Ok(End { side: found, x, y, z: 0, pitch: side.pitch as u64, height: 0 })
    }

    fn end_3d(&self, side: &VolumeEnd) -> Result<End, Status> {
        let found = self.side(side.kind, side.host, side.device, side.array)?;
        let (x, y, z) = (side.x as u64, side.y as u64, side.z as u64);
        Ok(End { side: found, x, y, z, pitch: side.pitch as u64, height: side.height as u64 })
    }

    /// Returns the description of a two-dimensional copy.
    pub(super) fn movement_2d(&self, copy: *const CUDA_MEMCPY2D) -> Result<Movement, Status> {
        let copy: PlaneCopy = self.read(copy.cast())?;
        let (mut from, mut to) = (self.end_2d(&copy.from)?, self.end_2d(&copy.to)?);
        let width = copy.width as u64;
        for end in [&mut from, &mut to] {
            // A pitch of 0 stands for rows without gaps.
            end.pitch = if end.pitch == 0 { width } else { end.pitch };
        }
        Ok(Movement::Copy { to, from, width, height: copy.height as u64, depth: 1 })
    }

    /// Returns the description of a three-dimensional copy.
    pub(super) fn movement_3d(&self, copy: *const CUDA_MEMCPY3D) -> Result<Movement, Status> {
        let copy: VolumeCopy = self.read(copy.cast())?;
        let (mut from, mut to) = (self.end_3d(&copy.from)?, self.end_3d(&copy.to)?);
        let (width, height) = (copy.width as u64, copy.height as u64);
        for end in [&mut from, &mut to] {
            end.pitch = if end.pitch == 0 { width } else { end.pitch };
            end.height = if end.height == 0 { height } else { end.height };
        }
        Ok(Movement::Copy { to, from, width, height, depth: copy.depth as u64 })
    }

    fn move_bytes(&self, on: StreamArgument, movement: Movement, wait: Wait) -> Outcome {
        let context = self.simulation()?.objects().current().map(|_| ());
        // Every other stream has a context. Only the default streams need a current context.
        if on.0 < 3 {
            context?;
        }
        if let Movement::Copy { width, height, depth, .. } = movement
            && width.saturating_mul(height).saturating_mul(depth) == 0
        {
            return Ok(());
        }
        self.submit(on, &Op::Move(movement), wait)
    }

    /// Copies consecutive bytes.
    pub(super) fn copy(&self, on: StreamArgument, to: End, from: End, width: u64, wait: Wait) -> Outcome {
        self.move_bytes(on, Movement::Copy { to, from, width, height: 1, depth: 1 }, wait)
    }

    /// Copies bytes between pointers to host or device memory.
    pub(super) fn copy_any(&self, on: StreamArgument, to: u64, from: u64, width: u64, wait: Wait) -> Outcome {
        let (to, from) = {
            let objects = self.simulation()?.objects();
            (objects.either(to), objects.either(from))
        };
        self.move_bytes(on, Movement::run(to, from, width), wait)
    }

    pub(super) fn copy_batch(
        &self,
        on: StreamArgument,
        to: *mut CUdeviceptr,
        from: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
    ) -> Outcome {
        for index in 0..count {
            let (to, from) = (self.read_at(to, index)?, self.read_at(from, index)?);
            self.copy_any(on, to, from, self.read_at(sizes, index)? as u64, Wait::No)?;
        }
        Ok(())
    }

    /// Copies boxes of bytes between addresses. Arrays are not supported, because their lengths are in elements.
    pub(super) fn copy_boxes(
        &self,
        on: StreamArgument,
        list: *mut CUDA_MEMCPY3D_BATCH_OP,
        count: usize,
    ) -> Outcome {
        for index in 0..count {
            let copy: BoxCopy = self.read_at(list.cast_const().cast(), index)?;
            let (width, height, depth) = (copy.width as u64, copy.height as u64, copy.depth as u64);
            let end = |end: &BoxEnd| {
                if end.kind != BoxEnd::POINTER {
                    return Err(status::NOT_SUPPORTED);
                }
                let [row, rows, _] = end.rest;
                let or = |given: u64, own: u64| if given == 0 { own } else { given };
                let side = self.simulation()?.objects().either(end.place);
                Ok(End { pitch: or(row, width), height: or(rows, height), ..End::flat(side) })
            };
            let (to, from) = (end(&copy.to)?, end(&copy.from)?);
            self.move_bytes(on, Movement::Copy { to, from, width, height, depth }, Wait::No)?;
        }
        Ok(())
    }

    pub(super) fn copy_2d(&self, on: StreamArgument, copy: *const CUDA_MEMCPY2D, wait: Wait) -> Outcome {
        self.move_bytes(on, self.movement_2d(copy)?, wait)
    }

    pub(super) fn copy_3d(&self, on: StreamArgument, copy: *const CUDA_MEMCPY3D, wait: Wait) -> Outcome {
        self.move_bytes(on, self.movement_3d(copy)?, wait)
    }

    pub(super) fn copy_3d_peer(
        &self,
        on: StreamArgument,
        copy: *const CUDA_MEMCPY3D_PEER,
        wait: Wait,
    ) -> Outcome {
        self.move_bytes(on, self.movement_3d(copy.cast())?, wait)
    }

    /// Fills `extent` elements with a value.
    pub(super) fn fill(
        &self,
        on: StreamArgument,
        to: u64,
        pitch: u64,
        (value, element): (u32, u64),
        (width, height): (u64, u64),
    ) -> Outcome {
        if !to.is_multiple_of(element) {
            return Err(status::INVALID_VALUE);
        }
        if width == 0 || height == 0 {
            return Ok(());
        }
        self.move_bytes(on, Movement::Fill { to, pitch, value, element, width, height }, Wait::No)
    }
}
