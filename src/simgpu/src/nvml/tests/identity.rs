//! Tests of identities, and of calls with wrong arguments.

use super::*;
use crate::nvml::identity;

fn name(call: impl FnOnce(*mut c_char, u32) -> Result<(), Status>, room: u32) -> Result<String, Status> {
    let mut text = [0x7f_u8; 96];
    call(text.as_mut_ptr().cast(), room)?;
    Ok(CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned())
}

#[test]
fn a_device_is_found_by_number_uuid_and_place() {
    let machine = machine(&[("SIMGPU_DEVICES", "3")]);
    let (nvml, second) = (&machine.nvml, machine.device(1));
    let mut found = core::ptr::null_mut();
    assert_eq!(nvml.nvmlDeviceGetHandleByIndex(3, &raw mut found), Err(statuses::INVALID_ARGUMENT));
    let uuid = name(|to, room| nvml.nvmlDeviceGetUUID(second, to, room), 96).unwrap();
    let text = std::ffi::CString::new(uuid.clone()).unwrap();
    assert_eq!(nvml.nvmlDeviceGetHandleByUUID(text.as_ptr(), &raw mut found), Ok(()));
    assert_eq!(found, second);
    let missing = c"GPU-00000000-0000-0000-0000-000000000000";
    assert_eq!(nvml.nvmlDeviceGetHandleByUUID(missing.as_ptr(), &raw mut found), Err(statuses::NOT_FOUND));
    let mut value = [0; 41];
    value[..16].copy_from_slice(&texts::uuid(2));
    let asked = Uuid { version: layouts::version::<Uuid>(1), kind: 2, value };
    assert_eq!(nvml.nvmlDeviceGetHandleByUUIDV((&raw const asked).cast(), &raw mut found), Ok(()));
    assert_eq!(found, machine.device(2));
    for place in [c"00000000:18:00.0", c"0000:18:00", c"18:00.0"] {
        found = core::ptr::null_mut();
        assert_eq!(
            nvml.nvmlDeviceGetHandleByPciBusId_v2(place.as_ptr(), &raw mut found),
            Ok(()),
            "{place:?}"
        );
        assert_eq!(found, second, "{place:?}");
    }
    assert_eq!(nvml.nvmlDeviceGetHandleByPciBusId_v2(c"99:00.0".as_ptr(), &raw mut found), Err(6));
    assert_eq!(nvml.nvmlDeviceGetHandleByPciBusId_v2(c"here".as_ptr(), &raw mut found), Err(2));
    assert_eq!(nvml.nvmlDeviceGetCount(core::ptr::null_mut()), Err(2));
}

#[test]
fn places_on_the_bus_are_read_in_all_their_forms() {
    assert_eq!(identity::place("00000001:1A:02.0"), Some((1, 0x1a, 2)));
    assert_eq!(identity::place("1a:2.0"), Some((0, 0x1a, 2)));
    for wrong in ["", ":", "1a", "1a:2.1", "x:1a:2.0", "0:0:1a:2.0"] {
        assert_eq!(identity::place(wrong), None, "{wrong}");
    }
}

#[test]
fn older_forms_of_the_place_write_no_further_than_they_reach() {
    let machine = machine(&[]);
    let device = machine.device(0);
    let written = |call: &dyn Fn(*mut nvmlPciInfo_t)| {
        let mut bytes = [0xaa_u8; 68];
        call(bytes.as_mut_ptr().cast());
        bytes.iter().rposition(|byte| *byte != 0xaa).unwrap() + 1
    };
    let nvml = &machine.nvml;
    assert_eq!(written(&|to| nvml.nvmlDeviceGetPciInfo(device, to).unwrap()), 32);
    assert_eq!(written(&|to| nvml.nvmlDeviceGetPciInfo_v2(device, to).unwrap()), 36);
    assert_eq!(written(&|to| nvml.nvmlDeviceGetPciInfo_v3(device, to).unwrap()), 68);
}

#[test]
fn a_text_without_room_for_its_end_is_not_written() {
    let machine = machine(&[]);
    let (nvml, device) = (&machine.nvml, machine.device(0));
    let length = u32::try_from(texts::DEVICE_NAME.len()).unwrap();
    let told = |room| name(|to, room| nvml.nvmlDeviceGetName(device, to, room), room);
    assert_eq!(told(length), Err(statuses::INSUFFICIENT_SIZE));
    assert_eq!(told(length + 1).as_deref(), Ok(texts::DEVICE_NAME));
}

#[test]
fn the_name_of_a_process_is_cropped_and_that_of_an_unknown_pid_not_found() {
    let machine = machine(&[]);
    machine.process(u32::MAX, 0, 1);
    let told = |pid, room| name(|to, room| machine.nvml.nvmlSystemGetProcessName(pid, to, room), room);
    assert_eq!(told(u32::MAX, 64).as_deref(), Ok("worker"));
    assert_eq!(told(u32::MAX, 4).as_deref(), Ok("wor"));
    assert_eq!(told(u32::MAX - 1, 64), Err(statuses::NOT_FOUND));
    assert!(told(std::process::id(), 96).is_ok());
}

#[test]
fn an_event_set_lives_until_it_is_freed_and_nothing_ever_happens_in_it() {
    let machine = machine(&[]);
    let (nvml, device) = (&machine.nvml, machine.device(0));
    let mut set = core::ptr::null_mut();
    assert_eq!(nvml.nvmlEventSetCreate(&raw mut set), Ok(()));
    assert_eq!(nvml.nvmlDeviceRegisterEvents(device, 8, set), Ok(()));
    assert_eq!(nvml.nvmlDeviceRegisterEvents(device, 1 << 40, set), Err(statuses::NOT_SUPPORTED));
    let mut data = [0_u64; 4];
    let to = data.as_mut_ptr();
    assert_eq!(nvml.nvmlEventSetWait_v2(set, to.cast(), 1), Err(statuses::TIMEOUT));
    assert_eq!(nvml.nvmlEventSetFree(set), Ok(()));
    assert_eq!(nvml.nvmlEventSetFree(set), Err(statuses::INVALID_ARGUMENT));
}

#[test]
fn a_query_that_is_not_simulated_is_not_supported_and_a_wrong_handle_is_invalid() {
    let machine = machine(&[]);
    let (mut current, mut pending) = (9, 9);
    let (nvml, device) = (&machine.nvml, machine.device(0));
    assert_eq!(nvml.nvmlDeviceGetEccMode(device, &raw mut current, &raw mut pending), Err(3));
    assert_eq!(nvml.nvmlDeviceGetMigMode(device, &raw mut current, &raw mut pending), Ok(()));
    assert_eq!((current, pending), (0, 0));
    let mut other = 0_u64;
    let wrong: nvmlDevice_t = (&raw mut other).cast();
    let larger = super::machine(&[("SIMGPU_DEVICES", "2")]).device(1);
    for handle in [core::ptr::null_mut(), wrong, larger] {
        assert_eq!(nvml.nvmlDeviceGetIndex(handle, &raw mut current), Err(2));
    }
    assert_eq!(nvml.nvmlDeviceGetIndex(device, core::ptr::null_mut()), Err(2));
}

#[test]
fn the_compute_mode_is_that_of_the_settings() {
    for (settings, expected) in [(&[][..], 0), (&[("SIMGPU_NVML_COMPUTE_MODE", "3")], 3)] {
        let machine = machine(settings);
        let mut mode = 9;
        assert_eq!(machine.nvml.nvmlDeviceGetComputeMode(machine.device(0), &raw mut mode), Ok(()));
        assert_eq!(mode, expected);
    }
}

#[test]
fn while_a_gpu_is_lost_the_others_are_found_by_number_only() {
    let file = fresh_path();
    let machine =
        machine(&[("SIMGPU_DEVICES", "2"), ("SIMGPU_NVML_LOST", file.to_str().expect("it is text"))]);
    let nvml = &machine.nvml;
    let devices = [machine.device(0), machine.device(1)];
    let uuids = [0, 1].map(|gpu| std::ffi::CString::new(crate::state::machine::gpu_text(gpu)).unwrap());
    let mut found = core::ptr::null_mut();
    let mut by_uuid = |gpu: usize| nvml.nvmlDeviceGetHandleByUUID(uuids[gpu].as_ptr(), &raw mut found);
    assert_eq!([by_uuid(0), by_uuid(1)], [Ok(()); 2]);
    std::fs::write(&file, "0").unwrap();
    let lost = Err(statuses::GPU_IS_LOST);
    assert_eq!([by_uuid(0), by_uuid(1)], [lost; 2]);
    let by_number = |index| nvml.nvmlDeviceGetHandleByIndex_v2(index, &raw mut found);
    assert_eq!([0, 1].map(by_number), [lost, Ok(())]);
    let mut number = 9;
    assert_eq!(devices.map(|device| nvml.nvmlDeviceGetIndex(device, &raw mut number)), [lost, Ok(())]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(nvml.nvmlDeviceGetHandleByUUID(uuids[1].as_ptr(), &raw mut found), Ok(()));
}

#[test]
fn every_status_has_a_text() {
    let texts: Vec<_> = (0..=30).map(crate::nvml::error_text).collect();
    assert_eq!(
        (texts[0], texts[7], texts[25]),
        (c"Success", c"Insufficient Size", c"Argument version mismatch")
    );
    assert!(texts.iter().all(|text| *text != c"Unknown Error"));
    assert_eq!(
        (crate::nvml::error_text(999), crate::nvml::error_text(31)),
        (c"Unknown Error", c"Unknown Error")
    );
}

#[test]
fn the_driver_has_the_version_that_came_with_its_api() {
    assert_eq!(identity::driver_version(13_000), "580.00.00");
    assert_eq!(identity::driver_version(12_040), "550.00.00");
    assert_eq!(identity::driver_version(11_040), "470.00.00");
    assert_eq!(identity::nvml_version(12_040), "12.550.00.00");
}

#[test]
fn instances_have_handles_identities_and_memory_of_their_own() {
    let machine = machine(&[("SIMGPU_DEVICES", "2"), ("SIMGPU_MIG", "0,2"), ("SIMGPU_MEMORY", "4g,1g,2g")]);
    let (nvml, gpu) = (&machine.nvml, machine.device(1));
    let (mut count, mut mode, mut pending) = (9, 9, 9);
    assert_eq!(nvml.nvmlDeviceGetCount_v2(&raw mut count), Ok(()));
    assert_eq!(nvml.nvmlDeviceGetMigMode(gpu, &raw mut mode, &raw mut pending), Ok(()));
    assert_eq!((count, mode, pending), (2, 1, 1));
    let instances = [0, 1].map(|index| {
        let mut instance = core::ptr::null_mut();
        assert_eq!(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index, &raw mut instance), Ok(()));
        instance
    });
    let mut none = core::ptr::null_mut();
    assert_eq!(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 2, &raw mut none), Err(statuses::NOT_FOUND));
    let uuid = |device| name(|to, room| nvml.nvmlDeviceGetUUID(device, to, room), 96).unwrap();
    for (index, instance) in instances.into_iter().enumerate() {
        let (mut is_instance, mut id, mut parent) = (0, 0, core::ptr::null_mut());
        assert_eq!(nvml.nvmlDeviceIsMigDeviceHandle(instance, &raw mut is_instance), Ok(()));
        assert_eq!(nvml.nvmlDeviceGetGpuInstanceId(instance, &raw mut id), Ok(()));
        assert_eq!(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance, &raw mut parent), Ok(()));
        assert_eq!((is_instance, id, parent), (1, u32::try_from(index).unwrap() + 1, gpu));
        let text = std::ffi::CString::new(uuid(instance)).unwrap();
        assert_eq!(nvml.nvmlDeviceGetHandleByUUID(text.as_ptr(), &raw mut parent), Ok(()));
        assert!(uuid(instance).starts_with("MIG-") && parent == instance);
    }
    machine.process(1, 2, 100);
    let memory = |device| (machine.memory(device).total, machine.memory(device).used);
    assert_eq!([memory(instances[0]), memory(instances[1])], [(GIB, 0), (2 * GIB, 100)]);
    assert_eq!(memory(gpu), (3 * GIB, 100));
    let listed = machine.compute(gpu);
    assert_eq!((listed.len(), listed[0].gpu_instance, listed[0].compute_instance), (1, 2, 0));
    assert_eq!((machine.compute(instances[0]).len(), machine.compute(instances[1]).len()), (0, 1));
    // NVML does not know how busy the instances of a GPU are.
    let mut rates = nvmlUtilization_t::default();
    for device in [gpu, instances[0]] {
        assert_eq!(nvml.nvmlDeviceGetUtilizationRates(device, &raw mut rates), Err(statuses::NOT_SUPPORTED));
    }
}

#[test]
fn gpus_of_a_group_have_nvlink_and_all_others_have_not() {
    let machine = machine(&[("SIMGPU_DEVICES", "4"), ("SIMGPU_NVLINK", "2")]);
    let status = |one, other, index| {
        let mut status = 9;
        let (one, other) = (machine.device(one), machine.device(other));
        machine.nvml.nvmlDeviceGetP2PStatus(one, other, index, &raw mut status).map(|()| status)
    };
    assert_eq!(
        [(0, 1), (1, 0), (2, 3), (1, 2), (0, 3)].map(|(one, other)| status(one, other, 2)),
        [Ok(0), Ok(0), Ok(0), Ok(5), Ok(5)]
    );
    assert_eq!(status(0, 3, 0), Ok(0));
    assert_eq!((status(1, 1, 2), status(0, 1, 5)), (Err(2), Err(2)));
}
