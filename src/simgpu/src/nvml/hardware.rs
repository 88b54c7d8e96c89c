//! Functions that describe a device.

use gpuslice_driver::types::*;

use super::entry::{NvmlCall, Subject};
use super::identity::{driver_version, nvml_version};
use super::{Hardware, events};
use crate::config;
use crate::hardware::attributes;
use crate::hardware::texts;
use crate::status::Outcome;

/// Returns an attribute of a device. `number` is the number that the driver API gives to the attribute.
fn attribute(number: u32, device: usize) -> u32 {
    attributes::device(number, device).and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
}

/// Number of cores of one multiprocessor.
const CORES: u32 = 128;
/// `NVML_BRAND_NVIDIA`, `NVML_BUS_TYPE_PCIE`, and the architecture of compute capability 9.0.
const BRAND: u32 = 14;
const PCI_EXPRESS: u32 = 2;
const HOPPER: u32 = 9;

impl Hardware for NvmlCall {
    fn nvmlSystemGetDriverVersion(&self, version: *mut c_char, length: c_uint) -> Outcome {
        self.write_text(version, length, &driver_version(config::version()))
    }

    fn nvmlSystemGetNVMLVersion(&self, version: *mut c_char, length: c_uint) -> Outcome {
        self.write_text(version, length, &nvml_version(config::version()))
    }

    fn nvmlSystemGetCudaDriverVersion(&self, cuda_driver_version: *mut c_int) -> Outcome {
        self.write(cuda_driver_version, config::version())
    }

    fn nvmlSystemGetCudaDriverVersion_v2(&self, cuda_driver_version: *mut c_int) -> Outcome {
        self.write(cuda_driver_version, config::version())
    }

    fn nvmlSystemGetHicVersion(
        &self,
        hwbc_count: *mut c_uint,
        _hwbc_entries: *mut nvmlHwbcEntry_t,
    ) -> Outcome {
        self.write(hwbc_count, 0)
    }

    fn nvmlDeviceGetCount(&self, device_count: *mut c_uint) -> Outcome {
        self.nvmlDeviceGetCount_v2(device_count)
    }

    fn nvmlDeviceGetCount_v2(&self, device_count: *mut c_uint) -> Outcome {
        let count = self.truth()?.settings.gpus();
        self.write(device_count, c_uint::try_from(count).unwrap_or(0))
    }

    fn nvmlDeviceGetHandleByIndex(&self, index: c_uint, device: *mut nvmlDevice_t) -> Outcome {
        self.handle_by_index(index, device)
    }

    fn nvmlDeviceGetHandleByIndex_v2(&self, index: c_uint, device: *mut nvmlDevice_t) -> Outcome {
        self.handle_by_index(index, device)
    }

    fn nvmlDeviceGetHandleByPciBusId(&self, pci_bus_id: *const c_char, device: *mut nvmlDevice_t) -> Outcome {
        self.handle_by_place(pci_bus_id, device)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(
        &self,
        pci_bus_id: *const c_char,
        device: *mut nvmlDevice_t,
    ) -> Outcome {
        self.handle_by_place(pci_bus_id, device)
    }

    fn nvmlDeviceGetHandleByUUID(&self, uuid: *const c_char, device: *mut nvmlDevice_t) -> Outcome {
        self.handle_by_uuid(uuid, device)
    }

    fn nvmlDeviceGetHandleByUUIDV(&self, uuid: *const nvmlUUID_t, device: *mut nvmlDevice_t) -> Outcome {
        self.handle_by_uuid_v1(uuid.cast(), device)
    }

    fn nvmlDeviceGetName(&self, device: nvmlDevice_t, name: *mut c_char, length: c_uint) -> Outcome {
        let gpu = self.gpu(device)?;
        let text = self.truth()?.settings.name(gpu);
        self.write_text(name, length, text)
    }

    fn nvmlDeviceGetUUID(&self, device: nvmlDevice_t, uuid: *mut c_char, length: c_uint) -> Outcome {
        let (state, subject) = self.on(device)?;
        let text = subject.uuid_text(&state.settings);
        drop(state);
        self.write_text(uuid, length, &text)
    }

    fn nvmlDeviceGetIndex(&self, device: nvmlDevice_t, index: *mut c_uint) -> Outcome {
        let (state, subject) = self.on(device)?;
        let number = match subject {
            Subject::Gpu(gpu) => gpu,
            Subject::Instance(device) => state.settings.instance(device).unwrap_or(0),
        };
        drop(state);
        self.write(index, c_uint::try_from(number).unwrap_or(0))
    }

    fn nvmlDeviceGetMinorNumber(&self, device: nvmlDevice_t, minor_number: *mut c_uint) -> Outcome {
        let gpu = self.gpu(device)?;
        self.write(minor_number, c_uint::try_from(gpu).unwrap_or(0))
    }

    fn nvmlDeviceGetBoardId(&self, device: nvmlDevice_t, board_id: *mut c_uint) -> Outcome {
        let device = self.gpu(device)?;
        self.write(board_id, texts::bus(device) << 8)
    }

    fn nvmlDeviceGetMultiGpuBoard(&self, device: nvmlDevice_t, multi_gpu_bool: *mut c_uint) -> Outcome {
        self.tell(device, multi_gpu_bool, 0)
    }

    fn nvmlDeviceOnSameBoard(
        &self,
        device1: nvmlDevice_t,
        device2: nvmlDevice_t,
        on_same_board: *mut c_int,
    ) -> Outcome {
        self.on(device1)?;
        self.tell(device2, on_same_board, c_int::from(device1 == device2))
    }

    fn nvmlDeviceGetPciInfo(&self, device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) -> Outcome {
        self.write_pci_v1(device, pci.cast())
    }

    fn nvmlDeviceGetPciInfo_v2(&self, device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) -> Outcome {
        self.write_pci_v2(device, pci.cast())
    }

    fn nvmlDeviceGetPciInfo_v3(&self, device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) -> Outcome {
        self.write_pci_v3(device, pci)
    }

    fn nvmlDeviceGetPciInfoExt(&self, device: nvmlDevice_t, pci: *mut nvmlPciInfoExt_t) -> Outcome {
        self.write_pci_ext(device, pci.cast())
    }

    fn nvmlDeviceGetBusType(&self, device: nvmlDevice_t, kind: *mut nvmlBusType_t) -> Outcome {
        self.tell(device, kind, PCI_EXPRESS)
    }

    fn nvmlDeviceGetBrand(&self, device: nvmlDevice_t, kind: *mut c_uint) -> Outcome {
        self.tell(device, kind, BRAND)
    }

    fn nvmlDeviceGetArchitecture(
        &self,
        device: nvmlDevice_t,
        arch: *mut nvmlDeviceArchitecture_t,
    ) -> Outcome {
        self.tell(device, arch, HOPPER)
    }

    fn nvmlDeviceGetCudaComputeCapability(
        &self,
        device: nvmlDevice_t,
        major: *mut c_int,
        minor: *mut c_int,
    ) -> Outcome {
        let device = self.gpu(device)?;
        self.write(major, attributes::device(75, device).unwrap_or(0))?;
        self.write(minor, attributes::device(76, device).unwrap_or(0))
    }

    fn nvmlDeviceGetNumGpuCores(&self, device: nvmlDevice_t, num_cores: *mut c_uint) -> Outcome {
        self.tell(device, num_cores, attributes::PROCESSORS * CORES)
    }

    fn nvmlDeviceGetMemoryBusWidth(&self, device: nvmlDevice_t, bus_width: *mut c_uint) -> Outcome {
        let device = self.gpu(device)?;
        self.write(bus_width, attribute(37, device))
    }

    fn nvmlDeviceGetComputeMode(&self, device: nvmlDevice_t, mode: *mut c_uint) -> Outcome {
        let device = self.gpu(device)?;
        let of_view = self.library()?.view.compute_mode;
        self.write(mode, of_view.unwrap_or_else(|| attribute(20, device)))
    }

    fn nvmlDeviceGetPersistenceMode(&self, device: nvmlDevice_t, mode: *mut c_uint) -> Outcome {
        self.tell(device, mode, 1)
    }

    fn nvmlDeviceGetDisplayActive(&self, device: nvmlDevice_t, is_active: *mut c_uint) -> Outcome {
        self.tell(device, is_active, 0)
    }

    fn nvmlDeviceGetDisplayMode(&self, device: nvmlDevice_t, display: *mut c_uint) -> Outcome {
        self.tell(device, display, 0)
    }

    fn nvmlDeviceGetCurrPcieLinkGeneration(
        &self,
        device: nvmlDevice_t,
        curr_link_gen: *mut c_uint,
    ) -> Outcome {
        self.tell(device, curr_link_gen, 5)
    }

    fn nvmlDeviceGetMaxPcieLinkGeneration(&self, device: nvmlDevice_t, max_link_gen: *mut c_uint) -> Outcome {
        self.tell(device, max_link_gen, 5)
    }

    fn nvmlDeviceGetCurrPcieLinkWidth(&self, device: nvmlDevice_t, curr_link_width: *mut c_uint) -> Outcome {
        self.tell(device, curr_link_width, 16)
    }

    fn nvmlDeviceGetMaxPcieLinkWidth(&self, device: nvmlDevice_t, max_link_width: *mut c_uint) -> Outcome {
        self.tell(device, max_link_width, 16)
    }

    fn nvmlDeviceGetSupportedEventTypes(
        &self,
        device: nvmlDevice_t,
        event_types: *mut c_ulonglong,
    ) -> Outcome {
        self.tell(device, event_types, events::TYPES)
    }

    fn nvmlDeviceRegisterEvents(
        &self,
        device: nvmlDevice_t,
        event_types: c_ulonglong,
        set: nvmlEventSet_t,
    ) -> Outcome {
        self.register(device, event_types, set)
    }

    fn nvmlEventSetCreate(&self, set: *mut nvmlEventSet_t) -> Outcome {
        self.new_event_set(set)
    }

    fn nvmlEventSetFree(&self, set: nvmlEventSet_t) -> Outcome {
        self.free_event_set(set)
    }

    fn nvmlEventSetWait(
        &self,
        set: nvmlEventSet_t,
        data: *mut nvmlEventData_t,
        timeoutms: c_uint,
    ) -> Outcome {
        self.wait(set, data, timeoutms)
    }

    fn nvmlEventSetWait_v2(
        &self,
        set: nvmlEventSet_t,
        data: *mut nvmlEventData_t,
        timeoutms: c_uint,
    ) -> Outcome {
        self.wait(set, data, timeoutms)
    }

    fn nvmlGetExcludedDeviceCount(&self, device_count: *mut c_uint) -> Outcome {
        self.write(device_count, 0)
    }

    fn nvmlUnitGetCount(&self, unit_count: *mut c_uint) -> Outcome {
        self.write(unit_count, 0)
    }
}
