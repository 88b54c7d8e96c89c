//! Imports memory of other interfaces.
//!
//! The memory is a file, and its descriptor is imported. It is not CUDA's memory, so nothing is charged. A descriptor
//! of memory that CUDA exported can be imported, too. Then this process uses that memory until the object is
//! destroyed.

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::model::arrays::Shape;
use crate::model::external::External;
use crate::model::ipc_handles;
use crate::status::Outcome;

impl ProcessObjects {
    /// Imports the memory of a descriptor. The driver owns the descriptor from then on.
    pub(crate) fn import_external(
        &mut self,
        simulation: &Simulation,
        descriptor: i32,
        size: u64,
    ) -> Result<u64, Status> {
        let file = ipc_handles::duplicate(descriptor)?;
        let length = File::from(file.try_clone().map_err(|_| status::INVALID_VALUE)?).metadata();
        if size == 0 || length.map_err(|_| status::INVALID_VALUE)?.len() < size {
            return Err(status::INVALID_VALUE);
        }
        let number = ipc_handles::read_label(&file).map_or(0, |label| label.number);
        if number != 0 && !simulation.shared.lock().import(simulation.slot, number) {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: `from_raw_fd` needs a descriptor without another owner: the caller of this driver function gives it
        // away.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        Ok(self.externals.add(External { file, size, number }))
    }

    /// Maps a part of imported memory at an address. It is freed like ordinary memory.
    pub(crate) fn map_external(
        &mut self,
        simulation: &Simulation,
        handle: u64,
        offset: u64,
        size: u64,
    ) -> Result<u64, Status> {
        let external = self.externals.get(handle)?;
        if size == 0 || offset.checked_add(size).is_none_or(|end| end > external.size) {
            return Err(status::INVALID_VALUE);
        }
        let file = external.file.try_clone().map_err(|_| status::OUT_OF_MEMORY)?;
        self.open_external(simulation, &file, offset, size)
    }

    /// Maps a part of imported memory as a mipmapped array. It is destroyed like one. Bytes written through it stay
    /// in it.
    pub(crate) fn map_external_mipmap(
        &mut self,
        simulation: &Simulation,
        handle: u64,
        offset: u64,
        (shape, levels): (Shape, u32),
    ) -> Result<u64, Status> {
        let external = self.externals.get(handle)?;
        let end = shape.size(levels).and_then(|size| offset.checked_add(size));
        if end.is_none_or(|end| end > external.size) {
            return Err(status::INVALID_VALUE);
        }
        self.view_mipmap(simulation, shape, levels)
    }

    /// Ends an import.
    pub(crate) fn end_external(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let external = self.externals.remove(handle)?;
        self.leave_export(simulation, external.number);
        Ok(())
    }

    /// Returns true if an import of this process uses the export `number`.
    pub(crate) fn has_external(&self, number: u64) -> bool {
        self.externals.iter().any(|(_, external)| external.number == number)
    }
}
