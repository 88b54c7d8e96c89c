//! Imports memory that another interface made.
//!
//! The memory is a file, and the program imports its descriptor. CUDA did not allocate this memory, so nobody is charged for
//! it. The descriptor may also be one that CUDA exported. Then this process counts as a user of that memory until the
//! program destroys the imported object.

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
    /// Imports the memory of a descriptor. From then on the driver owns the descriptor.
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
        // SAFETY: `from_raw_fd` needs a descriptor without another owner: the program gives it away with this call.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        Ok(self.externals.add(External { file, size, number }))
    }

    /// Maps a part of imported memory at a new address. The program frees that address like ordinary memory.
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

    /// Maps a part of imported memory as a mipmapped array. The program destroys it like any other. Bytes that the program writes
    /// through the array do not reach the imported memory.
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

    /// Ends an import. Memory that the program has mapped from it stays mapped.
    pub(crate) fn end_external(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let external = self.externals.remove(handle)?;
        self.leave_export(simulation, external.number);
        Ok(())
    }

    /// Returns true if an import of this process is of the export with this number.
    pub(crate) fn has_external(&self, number: u64) -> bool {
        self.externals.iter().any(|(_, external)| external.number == number)
    }
}
