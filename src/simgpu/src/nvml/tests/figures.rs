//! Tests of memory figures and lists of processes.

use super::*;

#[test]
fn used_memory_is_the_sum_over_all_processes() {
    let machine = machine(&[("SIMGPU_DEVICES", "2"), ("SIMGPU_MEMORY", "8GiB,4GiB")]);
    machine.process(100, 1, GIB);
    machine.process(200, 1, 3);
    let device = machine.device(1);
    let memory = machine.memory(device);
    assert_eq!((memory.total, memory.used, memory.free), (4 * GIB, GIB + 3, 3 * GIB - 3));
    let held: u64 = machine.compute(device).iter().map(|process| process.used).sum();
    assert_eq!(held, memory.used);
    assert_eq!(machine.memory(machine.device(0)).used, 0);
}

#[test]
fn the_second_form_adds_up_and_insists_on_its_version() {
    let machine = machine(&[]);
    machine.process(100, 0, GIB);
    let mut memory = nvmlMemory_v2_t { version: 0x0200_0028, ..nvmlMemory_v2_t::default() };
    assert_eq!(machine.nvml.nvmlDeviceGetMemoryInfo_v2(machine.device(0), &raw mut memory), Ok(()));
    assert_eq!(memory.total, memory.used + memory.free + memory.reserved);
    assert_eq!((memory.used, memory.reserved), (GIB, 0));
    memory.version = 0x0100_0028;
    let wrong = machine.nvml.nvmlDeviceGetMemoryInfo_v2(machine.device(0), &raw mut memory);
    assert_eq!(wrong, Err(statuses::ARGUMENT_VERSION_MISMATCH));
}

#[test]
fn a_list_that_is_too_short_says_how_long_it_must_be_and_is_left_alone() {
    let machine = machine(&[]);
    let device = machine.device(0);
    let mut count = 0;
    let size =
        machine.nvml.nvmlDeviceGetComputeRunningProcesses(device, &raw mut count, core::ptr::null_mut());
    assert_eq!((size, count), (Ok(()), 0), "no process is there");
    machine.process(100, 0, 1);
    machine.process(200, 0, 2);
    let mut infos = [ProcessInfoV1 { pid: 7, used: 7 }; 2];
    count = 1;
    let to = infos.as_mut_ptr().cast();
    let short = machine.nvml.nvmlDeviceGetComputeRunningProcesses(device, &raw mut count, to);
    assert_eq!((short, count), (Err(statuses::INSUFFICIENT_SIZE), 2));
    assert_eq!(infos, [ProcessInfoV1 { pid: 7, used: 7 }; 2]);
    assert_eq!(machine.nvml.nvmlDeviceGetComputeRunningProcesses(device, &raw mut count, to), Ok(()));
    assert_eq!(infos, [ProcessInfoV1 { pid: 100, used: 1 }, ProcessInfoV1 { pid: 200, used: 2 }]);
}

#[test]
fn graphics_and_service_lists_are_empty() {
    let machine = machine(&[]);
    machine.process(100, 0, 1);
    let (nvml, device, none) = (&machine.nvml, machine.device(0), core::ptr::null_mut::<nvmlProcessInfo_t>());
    let mut counts = [5_u32; 6];
    let [a, b, c, d, e, f] = &mut counts;
    assert_eq!(nvml.nvmlDeviceGetGraphicsRunningProcesses(device, a, none.cast()), Ok(()));
    assert_eq!(nvml.nvmlDeviceGetGraphicsRunningProcesses_v2(device, b, none.cast()), Ok(()));
    assert_eq!(nvml.nvmlDeviceGetGraphicsRunningProcesses_v3(device, c, none.cast()), Ok(()));
    assert_eq!(nvml.nvmlDeviceGetMPSComputeRunningProcesses(device, d, none.cast()), Ok(()));
    assert_eq!(nvml.nvmlDeviceGetMPSComputeRunningProcesses_v2(device, e, none.cast()), Ok(()));
    assert_eq!(nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(device, f, none), Ok(()));
    assert_eq!(counts, [0; 6]);
}

#[test]
fn details_come_in_entries_of_32_bytes() {
    let machine = machine(&[]);
    machine.process(100, 0, 5);
    let mut entries = [ProcessDetail::default(); 4];
    let version = layouts::version::<ProcessDetailList>(1);
    assert_eq!(version, 0x0100_0018);
    let mut list = ProcessDetailList { version, mode: 0, count: 4, entries: entries.as_mut_ptr() };
    let to: *mut ProcessDetailList = &raw mut list;
    assert_eq!(machine.nvml.nvmlDeviceGetRunningProcessDetailList(machine.device(0), to.cast()), Ok(()));
    let expected =
        ProcessDetail { pid: 100, used: 5, gpu_instance: u32::MAX, compute_instance: u32::MAX, protected: 0 };
    assert_eq!((list.count, entries[0]), (1, expected));
    for (version, mode, status) in [(7, 0, Err(2)), (version, 3, Err(2)), (version, 1, Ok(()))] {
        (list.version, list.mode) = (version, mode);
        let to: *mut ProcessDetailList = &raw mut list;
        let got = machine.nvml.nvmlDeviceGetRunningProcessDetailList(machine.device(0), to.cast());
        assert_eq!(got, status, "version {version}, mode {mode}");
    }
    assert_eq!(list.count, 0);
}

#[test]
fn a_dead_process_is_in_no_list_and_holds_nothing() {
    // Without a teardown the device has its memory back at once. So the test knows how much memory is used.
    let machine = machine(&[("SIMGPU_TEARDOWN_MS", "0")]);
    let (device, slot) = (machine.device(0), machine.process(100, 0, GIB));
    assert_eq!(machine.compute(device).len(), 1);
    machine.library.shared.life_lock(slot).unwrap().unlock();
    assert_eq!(machine.compute(device), []);
    assert_eq!(machine.memory(device).used, 0);
}
