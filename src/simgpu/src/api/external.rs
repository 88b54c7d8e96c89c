//! What do the functions do that share ordinary memory with other processes?

use gpuslice_driver::types::*;

use super::External;
use super::methods::methods;
use crate::driver::{Driver, Outcome};

const _: () = assert!(size_of::<CUipcMemHandle>() == 64);

impl Driver {
    fn open_memory(&self, to: *mut CUdeviceptr, handle: &CUipcMemHandle) -> Outcome {
        let simulation = self.simulation()?;
        let bytes: [u8; 64] = self.read((&raw const *handle).cast())?;
        let address = simulation.local().open_ipc(simulation, &bytes)?;
        self.write(to, address)
    }
}

impl External for Driver {
    methods! { self;
        cuIpcGetMemHandle(p_handle: *mut CUipcMemHandle, dptr: CUdeviceptr) => {
            let simulation = self.simulation()?;
            let handle = simulation.local().ipc_handle(simulation, dptr)?;
            self.write(p_handle.cast::<[u8; 64]>(), handle)
        };
        cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, _flags: c_uint) =>
            self.open_memory(pdptr, &handle);
        cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, _flags: c_uint) =>
            self.open_memory(pdptr, &handle);
        cuIpcCloseMemHandle(dptr: CUdeviceptr) => {
            let simulation = self.simulation()?;
            simulation.local().close_ipc(simulation, dptr)
        };
    }
}
