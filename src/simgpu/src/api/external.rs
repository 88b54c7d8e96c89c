//! Functions that share memory with other processes and interfaces, and that checkpoint processes.

use gpuslice_driver::types::*;

use super::External;
use super::methods::methods;
use crate::call::DriverCall;
use crate::model::arrays::Shape;
use crate::model::external::DESCRIPTOR;
use crate::model::ipc_handles::Purpose;
use crate::model::objects::{handle, pointer};
use crate::process::checkpoint::{evict, phase, restore};
use crate::status::Outcome;

const _: () = assert!(size_of::<CUipcMemHandle>() == 64);
const _: () = assert!(size_of::<CUipcEventHandle>() == 64);

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`. Only file descriptors are supported.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handle {
    kind: u32,
    descriptor: i64,
    rest_of_handle: u64,
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

const _: () = assert!(size_of::<Handle>() == size_of::<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>());

/// `CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC`, with its format as a number.
#[repr(C)]
#[derive(Clone, Copy)]
struct MipmapDescriptor {
    offset: u64,
    shape: Shape,
    levels: u32,
    reserved: [u32; 16],
}

const _: () =
    assert!(size_of::<MipmapDescriptor>() == size_of::<CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC>());

impl DriverCall {
    fn open_memory(&self, to: *mut CUdeviceptr, handle: &CUipcMemHandle) -> Outcome {
        let simulation = self.simulation()?;
        let bytes: [u8; 64] = self.read((&raw const *handle).cast())?;
        let address = simulation.objects().open_ticket(simulation, &bytes, Purpose::Ipc)?;
        self.write(to, address)
    }

    fn import_external(
        &self,
        to: *mut CUexternalMemory,
        wanted: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    ) -> Outcome {
        let wanted: Handle = self.read(wanted.cast())?;
        if to.is_null() || wanted.kind != DESCRIPTOR {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        // The program wrote only the lower half, because other members of the union are wider.
        let imported =
            simulation.objects().import_external(simulation, wanted.descriptor as i32, wanted.size)?;
        self.write(to, pointer(imported))
    }

    fn map_external(
        &self,
        to: *mut CUdeviceptr,
        memory: CUexternalMemory,
        wanted: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
    ) -> Outcome {
        let wanted = self.read(wanted)?;
        if to.is_null() || wanted.flags != 0 {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let address = objects.map_external(simulation, handle(memory), wanted.offset, wanted.size)?;
        self.write(to, address)
    }

    fn map_external_mipmap(
        &self,
        to: *mut CUmipmappedArray,
        memory: CUexternalMemory,
        wanted: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
    ) -> Outcome {
        let wanted: MipmapDescriptor = self.read(wanted.cast())?;
        if to.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        let what = (wanted.shape, wanted.levels);
        let mipmap =
            simulation.objects().map_external_mipmap(simulation, handle(memory), wanted.offset, what)?;
        self.write(to, pointer(mipmap))
    }
}

impl External for DriverCall {
    methods! { self;
        cuIpcGetMemHandle(p_handle: *mut CUipcMemHandle, dptr: CUdeviceptr) => {
            let simulation = self.simulation()?;
            if p_handle.is_null() {
                return Err(status::INVALID_VALUE);
            }
            let ticket = simulation.objects().ticket(simulation, dptr, Purpose::Ipc)?;
            self.write(p_handle.cast::<[u8; 64]>(), ticket)
        };
        cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, _flags: c_uint) =>
            self.open_memory(pdptr, &handle);
        cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, _flags: c_uint) =>
            self.open_memory(pdptr, &handle);
        cuIpcCloseMemHandle(dptr: CUdeviceptr) => {
            let simulation = self.simulation()?;
            simulation.objects().close_ipc(simulation, dptr)
        };

        cuIpcGetEventHandle(p_handle: *mut CUipcEventHandle, event: CUevent) => {
            if p_handle.is_null() {
                return Err(status::INVALID_VALUE);
            }
            let simulation = self.simulation()?;
            let ticket = simulation.objects().event_ticket(simulation, handle(event))?;
            self.write(p_handle.cast::<[u8; 64]>(), ticket)
        };
        cuIpcOpenEventHandle(ph_event: *mut CUevent, handle: CUipcEventHandle) => {
            if ph_event.is_null() {
                return Err(status::INVALID_VALUE);
            }
            let simulation = self.simulation()?;
            let ticket: [u8; 64] = self.read((&raw const handle).cast())?;
            let event = simulation.objects().open_event(simulation, &ticket)?;
            self.write(ph_event, pointer(event))
        };

        cuImportExternalMemory(ext_mem_out: *mut CUexternalMemory,
            mem_handle_desc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC) =>
            self.import_external(ext_mem_out, mem_handle_desc);
        cuExternalMemoryGetMappedBuffer(dev_ptr: *mut CUdeviceptr, ext_mem: CUexternalMemory,
            buffer_desc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC) =>
            self.map_external(dev_ptr, ext_mem, buffer_desc);
        cuExternalMemoryGetMappedMipmappedArray(mipmap: *mut CUmipmappedArray, ext_mem: CUexternalMemory,
            mipmap_desc: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC) =>
            self.map_external_mipmap(mipmap, ext_mem, mipmap_desc);
        cuDestroyExternalMemory(ext_mem: CUexternalMemory) => {
            let simulation = self.simulation()?;
            simulation.objects().end_external(simulation, handle(ext_mem))
        };

        cuCheckpointProcessLock(pid: c_int, _args: *mut CUcheckpointLockArgs) =>
            self.simulation()?.turn_phase(pid, (phase::RUNNING, phase::LOCKED), |_, _| Ok(()));
        cuCheckpointProcessCheckpoint(pid: c_int, _args: *mut CUcheckpointCheckpointArgs) =>
            self.simulation()?.turn_phase(pid, (phase::LOCKED, phase::CHECKPOINTED), evict);
        cuCheckpointProcessRestore(pid: c_int, _args: *mut CUcheckpointRestoreArgs) =>
            self.simulation()?.turn_phase(pid, (phase::CHECKPOINTED, phase::LOCKED), restore);
        cuCheckpointProcessUnlock(pid: c_int, _args: *mut CUcheckpointUnlockArgs) =>
            self.simulation()?.turn_phase(pid, (phase::LOCKED, phase::RUNNING), |_, _| Ok(()));
        cuCheckpointProcessGetState(pid: c_int, state: *mut CUprocessState) => {
            let phase = self.simulation()?.phase_of(pid)?;
            self.write(state.cast::<u32>(), phase)
        };
        cuCheckpointProcessGetRestoreThreadId(pid: c_int, tid: *mut c_int) => {
            self.simulation()?.phase_of(pid)?;
            self.write(tid, pid)
        };
    }
}
