//! Functions that start the driver, look up functions, and describe devices.

use core::sync::atomic::{AtomicBool, Ordering};

use gpuslice_driver::types::*;

use super::Init;
use super::symbol_lookup::{self, LookupResult};
use crate::call::DriverCall;
use crate::config;
use crate::hardware::attributes;
use crate::hardware::texts;
use crate::os::messages;
use crate::process::simulation;
use crate::status::{Outcome, statuses};
use crate::undocumented;

/// Results of `cuGetProcAddress_v2`, in addition to its status.
mod found {
    pub(super) const YES: u32 = 0;
    pub(super) const UNKNOWN: u32 = 1;
    pub(super) const TOO_OLD: u32 = 2;
}

/// The identifier of the table without which the CUDA runtime does not start.
const RUNTIME_TABLE: [u8; 16] = 0x6bd5_fb6c_5bf4_e74a_8987_d939_12fd_9df9_u128.to_be_bytes();
/// Set once the process has printed why the CUDA runtime stops. The runtime asks for the table again at each call.
static RUNTIME_IS_TOLD: AtomicBool = AtomicBool::new(false);

impl DriverCall {
    fn find(&self, symbol: *const c_char, version: c_int, flags: u64) -> Result<LookupResult, Status> {
        let own = u32::try_from(config::version()).unwrap_or(0);
        match symbol_lookup::find(self.text(symbol)?.to_bytes(), version, flags, own) {
            LookupResult::BadFlags => Err(status::INVALID_VALUE),
            found => Ok(found),
        }
    }

    fn bus_text(&self, gpu: usize) -> String {
        format!("0000:{:02x}:00.0", texts::bus(gpu))
    }
}

impl Init for DriverCall {
    fn cuInit(&self, flags: c_uint) -> Outcome {
        if flags != 0 {
            return Err(status::INVALID_VALUE);
        }
        simulation::join()
    }

    fn cuDriverGetVersion(&self, driver_version: *mut c_int) -> Outcome {
        self.write(driver_version, config::version())
    }

    fn cuGetExportTable(
        &self,
        pp_export_table: *mut *const c_void,
        p_export_table_id: *const CUuuid,
    ) -> Outcome {
        let wanted = self.read(p_export_table_id.cast::<[u8; 16]>())?;
        if wanted == RUNTIME_TABLE
            && let Some(table) = undocumented::private_table()
        {
            return self.write(pp_export_table, table);
        }
        self.write(pp_export_table, core::ptr::null())?;
        if wanted == RUNTIME_TABLE && !RUNTIME_IS_TOLD.swap(true, Ordering::Relaxed) {
            messages::say(
                "NVIDIA's CUDA runtime asks for a private table, which only NVIDIA's driver has: it stops here. \
                 docs/internals/simgpu.md says which programs run.",
            );
        }
        Err(status::INVALID_VALUE)
    }

    fn cuGetProcAddress(
        &self,
        symbol: *const c_char,
        pfn: *mut *mut c_void,
        cuda_version: c_int,
        flags: u64,
    ) -> Outcome {
        let found = self.find(symbol, cuda_version, flags)?;
        if let Some(address) = undocumented::address(self.text(symbol)?.to_bytes(), flags) {
            return self.write(pfn, address);
        }
        match found {
            LookupResult::Symbol(symbol) => self.write(pfn, self.address_of(symbol)),
            _ => Err(statuses::NOT_FOUND),
        }
    }

    fn cuGetProcAddress_v2(
        &self,
        symbol: *const c_char,
        pfn: *mut *mut c_void,
        cuda_version: c_int,
        flags: u64,
        symbol_status: *mut CUdriverProcAddressQueryResult,
    ) -> Outcome {
        let wanted = self.find(symbol, cuda_version, flags)?;
        let (address, found) = match (undocumented::address(self.text(symbol)?.to_bytes(), flags), wanted) {
            (Some(address), _) => (address, found::YES),
            (None, LookupResult::Symbol(symbol)) => (self.address_of(symbol), found::YES),
            (None, LookupResult::TooOld) => (core::ptr::null_mut(), found::TOO_OLD),
            (None, _) => (core::ptr::null_mut(), found::UNKNOWN),
        };
        self.write(pfn, address)?;
        self.offer(symbol_status.cast::<u32>(), found);
        Ok(())
    }

    fn cuGetErrorName(&self, error: c_uint, p_str: *mut *const c_char) -> Outcome {
        let found = texts::status(error);
        self.write(p_str, found.map_or(core::ptr::null(), |(name, _)| name.as_ptr()))?;
        found.map(|_| ()).ok_or(status::INVALID_VALUE)
    }

    fn cuGetErrorString(&self, error: c_uint, p_str: *mut *const c_char) -> Outcome {
        let found = texts::status(error);
        self.write(p_str, found.map_or(core::ptr::null(), |(_, text)| text.as_ptr()))?;
        found.map(|_| ()).ok_or(status::INVALID_VALUE)
    }

    fn cuDeviceGetCount(&self, count: *mut c_int) -> Outcome {
        self.write(count, self.simulation()?.visible.len() as c_int)
    }

    fn cuDeviceGet(&self, device: *mut CUdevice, ordinal: c_int) -> Outcome {
        self.simulation()?.device(ordinal)?;
        self.write(device, ordinal)
    }

    fn cuDeviceGetAttribute(&self, pi: *mut c_int, attrib: c_uint, dev: CUdevice) -> Outcome {
        let simulation = self.simulation()?;
        let gpu = simulation.gpu(dev)?;
        let own = simulation.config.managing.attribute(attrib);
        let own = own.or_else(|| simulation.settings.attribute(attrib));
        self.write(pi, own.or_else(|| attributes::device(attrib, gpu)).ok_or(status::INVALID_VALUE)?)
    }

    fn cuDeviceGetName(&self, name: *mut c_char, len: c_int, dev: CUdevice) -> Outcome {
        let simulation = self.simulation()?;
        let text = simulation.settings.name(simulation.gpu(dev)?);
        self.write_text(name, usize::try_from(len).unwrap_or(0), text)
    }

    fn cuDeviceGetUuid(&self, uuid: *mut CUuuid, dev: CUdevice) -> Outcome {
        let gpu = self.simulation()?.gpu(dev)?;
        self.write(uuid.cast::<[u8; 16]>(), texts::uuid(gpu))
    }

    fn cuDeviceGetUuid_v2(&self, uuid: *mut CUuuid, dev: CUdevice) -> Outcome {
        let simulation = self.simulation()?;
        let device = simulation.device(dev)?;
        self.write(uuid.cast::<[u8; 16]>(), simulation.settings.uuid(device))
    }

    fn cuDeviceGetLuid(&self, _luid: *mut c_char, _mask: *mut c_uint, dev: CUdevice) -> Outcome {
        self.simulation()?.device(dev)?;
        Err(status::NOT_SUPPORTED)
    }

    fn cuDeviceGetPCIBusId(&self, pci_bus_id: *mut c_char, len: c_int, dev: CUdevice) -> Outcome {
        let gpu = self.simulation()?.gpu(dev)?;
        self.write_text(pci_bus_id, usize::try_from(len).unwrap_or(0), &self.bus_text(gpu))
    }

    fn cuDeviceGetByPCIBusId(&self, dev: *mut CUdevice, pci_bus_id: *const c_char) -> Outcome {
        let simulation = self.simulation()?;
        let wanted = self.text(pci_bus_id)?.to_string_lossy().to_ascii_lowercase();
        let wanted = wanted.trim_start_matches("0000:").trim_end_matches(".0").to_owned();
        let bus = |device: usize| texts::bus(simulation.settings.gpu_of(device));
        let named = |device: &usize| format!("{:02x}:00", bus(*device)) == wanted;
        let device = simulation.visible.iter().copied().find(named).ok_or(statuses::INVALID_DEVICE)?;
        self.write(dev, simulation.ordinal(device))
    }

    fn cuDeviceComputeCapability(&self, major: *mut c_int, minor: *mut c_int, dev: CUdevice) -> Outcome {
        self.cuDeviceGetAttribute(major, 75, dev)?;
        self.cuDeviceGetAttribute(minor, 76, dev)
    }

    fn cuDeviceCanAccessPeer(
        &self,
        can_access_peer: *mut c_int,
        dev: CUdevice,
        peer_dev: CUdevice,
    ) -> Outcome {
        let simulation = self.simulation()?;
        let (one, other) = (simulation.device(dev)?, simulation.device(peer_dev)?);
        self.write(can_access_peer, c_int::from(one != other))
    }

    fn cuDeviceGetP2PAttribute(
        &self,
        value: *mut c_int,
        attrib: c_uint,
        src_device: CUdevice,
        dst_device: CUdevice,
    ) -> Outcome {
        let simulation = self.simulation()?;
        if simulation.device(src_device)? == simulation.device(dst_device)? {
            return Err(statuses::INVALID_DEVICE);
        }
        // Attribute 1 is the performance rank, which is 0. Access, native atomics, and access to arrays are possible.
        let answer = match attrib {
            1 => 0,
            2..=5 => 1,
            _ => return Err(status::INVALID_VALUE),
        };
        self.write(value, answer)
    }

    fn cuDeviceGetProperties(&self, prop: *mut CUdevprop, dev: CUdevice) -> Outcome {
        let device = self.simulation()?.device(dev)?;
        let of = |attribute| attributes::device(attribute, device).unwrap_or(0);
        let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14].map(of);
        const _: () = assert!(size_of::<CUdevprop>() == size_of::<[c_int; 14]>());
        self.write(prop.cast::<[c_int; 14]>(), numbers)
    }

    fn cuDeviceGetTexture1DLinearMaxWidth(
        &self,
        max_width_in_elements: *mut usize,
        _format: c_uint,
        _num_channels: c_uint,
        dev: CUdevice,
    ) -> Outcome {
        self.simulation()?.device(dev)?;
        self.write(max_width_in_elements, 1 << 28)
    }

    fn cuDeviceGetExecAffinitySupport(&self, pi: *mut c_int, _kind: c_uint, dev: CUdevice) -> Outcome {
        self.simulation()?.device(dev)?;
        self.write(pi, 0)
    }

    fn cuProfilerStart(&self) -> Outcome {
        self.simulation()?.objects().current().map(|_| ())
    }

    fn cuProfilerStop(&self) -> Outcome {
        self.simulation()?.objects().current().map(|_| ())
    }
}
