//! Findings about settings, regions, and resources of a container.

use super::{Machine, with_mounts};
use crate::support::command::{OwnSlice, RegionFile, name};
use crate::support::{other_user, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn a_policy_without_a_neighbour_in_sight_is_warned_of() {
    let container = |region: &str| {
        let machine = Machine::simulated().with("KUBERNETES_SERVICE_HOST", "10.0.0.1");
        machine.with("SIMGPU_STATE", "/dev/shm/state").with("GPUSLICE_REGION", region)
    };
    let shm = "mount -t tmpfs none /dev/shm && chmod 1777 /dev/shm";
    let asks = |line: &str, machine: Machine| with_mounts(line, &machine, &[]);
    let equal = |region: &str| container(region).with("GPU_CORE_POLICY", "equal");
    if let Some(told) = asks(shm, equal("/dev/shm/region")) {
        told.has("region.sight", "warning", "in /dev/shm, and each container has a /dev/shm of its own");
        assert!(told.ended.out.contains("GPU_CORE_POLICY=equal has no effect"), "{}", told.ended.out);
        assert!(told.ended.out.contains("give all containers one folder"), "{}", told.ended.out);
    }
    if let Some(told) = asks(shm, container("/dev/shm/region").with("GPU_PRIORITY", "low")) {
        told.has("region.sight", "warning", "GPU_PRIORITY=low has no effect");
    }
    if let Some(told) = asks(shm, container("/dev/shm/region")) {
        told.has_no("region.sight");
    }
    if let Some(told) = asks(&format!("{shm} && echo x > /dev/shm/gpuslice-0-1"), equal("/dev/shm/region")) {
        told.has_no("region.sight");
    }
    let folder = "mount -t tmpfs none /run && mkdir -p /run/shared /run/gpuslice/region";
    if let Some(told) = asks(folder, equal("/run/shared/region")) {
        told.has_no("region.sight");
    }
    if let Some(told) = asks(folder, equal("/run/gpuslice/region/region")) {
        told.has("region.sight", "note", "while gpuslice-agent runs on the node");
    }
}

#[test]
fn an_operators_file_that_not_all_users_can_read_is_warned_of() {
    if !other_user::is_root() {
        return skip("doctor on a file's mode: needs root; to mend it: run the tests as root");
    }
    let machine = Machine::simulated();
    let file = machine.script("config", "GPU_CORE_PERCENT=20\n");
    let machine = machine.with("GPUSLICE_CONFIG", &file);
    machine.asks(&[]).has_no("settings.rights");
    for mode in [0o600, 0o640, 0o604] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let told = machine.asks(&[]);
        told.has("settings.rights", "warning", &format!("{file} has mode {mode:04o}"));
        assert!(told.ended.out.contains(&format!("chmod a+r {file}")), "{}", told.ended.out);
    }
    let fixed = "mount -t tmpfs none /run && mkdir -p /run/gpuslice/conf && umask 077 && \
                 echo GPU_MEM_LIMIT=1GiB > /run/gpuslice/conf/config";
    if let Some(told) = with_mounts(fixed, &Machine::simulated(), &[]) {
        told.has("settings.rights", "warning", "/run/gpuslice/conf/config has mode 0600");
    }
}

#[test]
fn unknown_variables_are_warned_of() {
    let with = |name: &str, value: &str| Machine::simulated().with(name, value).asks(&[]);
    let told = with("GPU_MEM_LIMITS", "4GiB");
    told.has("settings.unknown", "warning", "GPU_MEM_LIMITS is set");
    assert!(told.ended.out.contains("rename it if GPU_MEM_LIMIT is meant"), "{}", told.ended.out);
    let told = with("GPU_MEM_RESERVE", "2GiB");
    told.has("settings.unknown", "warning", "quotas may sum to more than the GPU has");
    let memory = ["GPU_MEM_LIMT", "gpu_mem_limit", "GPU_MEMORY_LIMIT"];
    for name in ["GPU_CORE_LIMIT", "GPUSLICE_REGIONS", "GPU_PRIORITY_CLASS"].into_iter().chain(memory) {
        with(name, "1").has("settings.unknown", "warning", &format!("{name} is set"));
    }
    // A malformed setting does not hide the finding about an unknown one.
    let machine = Machine::simulated().with("GPU_CORE_PERCENT", "x").with("GPU_MEM_LIMITS", "4GiB");
    machine.asks(&[]).has("settings.malformed", "error", "").has("settings.unknown", "warning", "");
    for (name, value) in
        [("GPU_MEM_LIMITS", ""), ("GPUSLICE_LOG", "warn"), ("GPUSLICE_SERVICE_HOST", "10.0.0.1")]
    {
        with(name, value).has_no("settings.unknown");
    }
}

#[test]
fn places_that_cannot_hold_a_region_are_found_by_trying() {
    let at = |path: &str| Machine::simulated().with("GPUSLICE_REGION", path);
    at("/nowhere/region").asks(&[]).has("region.folder", "error", "/nowhere/region");
    at("/proc/region").asks(&[]).has("region.folder", "error", "/proc/region");
    let tmpfs = |options: &str| format!("mount -t tmpfs -o {options} none /mnt");
    let on = at("/mnt/region");
    if let Some(told) = with_mounts(&tmpfs("size=64k"), &on, &[]) {
        told.has("region.folder", "error", "No space left");
    }
    if let Some(told) = with_mounts(&tmpfs("size=2m,mode=1777"), &on, &[]) {
        told.has("region.room", "warning", "one more region");
    }
    if let Some(told) = with_mounts(&tmpfs("size=64m,mode=777"), &on, &[]) {
        told.has("region.rights", "warning", "anybody can remove");
    }
    if let Some(told) = with_mounts(&tmpfs("ro"), &on, &[]) {
        told.has("region.folder", "error", "Read-only");
    }
    let overlay = "mount -t tmpfs none /mnt && mkdir /mnt/l /mnt/u /mnt/w /mnt/o && \
                   mount -t overlay -o lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w none /mnt/o";
    if let Some(told) = with_mounts(overlay, &at("/mnt/o/region"), &[]) {
        told.has("region.folder", "error", "/mnt/o/region: this file system forgets the lock");
    }
}

#[test]
fn existing_regions_are_reported_with_their_state() {
    let machine = Machine::simulated();
    let region = machine.path("region");
    fs::write(&region, [&b"gpuslice"[..], &3_u32.to_ne_bytes(), &[0; 64]].concat()).unwrap();
    machine.asks(&[]).has("region.own", "error", "region of version 3");
    fs::write(&region, "something else").unwrap();
    machine.asks(&[]).has("region.own", "error", "begins with");
    fs::remove_file(&region).unwrap();
    fs::create_dir(&region).unwrap();
    machine.asks(&[]).has("region.own", "error", "a directory");
    let damaged = RegionFile::of(&name("doctor-damaged"));
    fs::write(&damaged.0, "something else").unwrap();
    machine.asks(&[]).has("region.unusable", "warning", &damaged.0.display().to_string());
    let slice = OwnSlice::join("doctor");
    let path = slice.member.path().display().to_string();
    let named = Machine::simulated().with("GPUSLICE_REGION", &path);
    named.asks(&[]).has("region.own", "note", "1 processes live");
    Machine::simulated().asks(&[]).has("region.others", "ok", "");
    let OwnSlice { member, region: _region, .. } = slice;
    member.leave();
    Machine::simulated().asks(&[]).has("region.stale", "note", &path);
    named.asks(&[]).has("region.own", "ok", "no process lives");
}

#[test]
fn settings_are_read_as_the_library_reads_them() {
    let with = |name: &str, value: &str| Machine::simulated().with(name, value).asks(&[]);
    with("GPU_MEM_LIMIT", "4Gigs").has(
        "settings.malformed",
        "error",
        "GPU_MEM_LIMIT=\"4Gigs\" is not a size",
    );
    with("GPU_CORE_PERCENT", "101").has("settings.malformed", "error", "GPU_CORE_PERCENT");
    with("GPUSLICE_CONFIG", "/nowhere/config").has("settings.malformed", "error", "/nowhere/config");
    with("GPU_MEM_LIMIT", "").has("settings.limit", "note", "not limited");
    with("CUDA_DEVICE_MEMORY_LIMIT", "2g").has("settings.value", "ok", "GPU_MEM_LIMIT is 4GiB");
    let machine = Machine::simulated();
    let file = machine.script("config", "GPU_CORE_PERCENT=20\nGPU_MEM_LIMIT=1GiB\n");
    let machine = machine.with("GPUSLICE_CONFIG", &file).with("GPU_CORE_PERCENT", "30");
    machine
        .asks(&[])
        .has("settings.value", "ok", "GPU_CORE_PERCENT is 20, by an operator's file, which wins over 30")
        .has("settings.value", "ok", "GPU_MEM_LIMIT is 1GiB, by an operator's file, which wins over 4GiB")
        .has_no("settings.left-out");
    let machine = Machine::simulated().with("SIMGPU_DEVICES", "2");
    let file = machine.script("config", "GPU_MEM_LIMIT=1=1GiB\n");
    let told = machine.with("GPUSLICE_CONFIG", &file).asks(&[]);
    told.has(
        "settings.left-out",
        "warning",
        "GPU_MEM_LIMIT=\"1=1GiB\" sets no limit for these devices of this machine: 0",
    );
    let machine = Machine::simulated();
    let file = machine.script("config", "GPU_MEM_LIMT=1GiB\n");
    let told = machine.with("GPUSLICE_CONFIG", &file).asks(&[]);
    told.has("settings.malformed", "error", "config:1: GPU_MEM_LIMT=\"1GiB\" is not a setting of gpuslice");
}

#[test]
fn resources_that_a_container_was_not_given_are_reported() {
    let with = |name: &str, value: &str| Machine::simulated().with(name, value).asks(&[]);
    with("NVIDIA_VISIBLE_DEVICES", "void").has("machine.nvidia", "warning", "brings no GPU in");
    with("NVIDIA_DRIVER_CAPABILITIES", "compute").has("machine.nvidia", "warning", "without utility");
    with("NVIDIA_VISIBLE_DEVICES", "all").has("machine.nvidia", "ok", "is all");
    let machine = Machine::simulated();
    if let Some(told) = with_mounts("mount -t tmpfs -o size=8m none /dev/shm", &machine, &[]) {
        told.has("machine.shm", "warning", "free of 8.00 MiB");
    }
    let forbidden = "mount -t tmpfs -o nodev none /mnt && mknod -m 666 /mnt/ctl c 195 255 && mount -t tmpfs none /dev && \
                     mknod -m 666 /dev/null c 1 3 && mkdir /dev/shm && touch /dev/nvidiactl && \
                     mount --bind /mnt/ctl /dev/nvidiactl";
    if let Some(told) = with_mounts(forbidden, &machine, &[]) {
        told.has("machine.device-files", "error", "may not use /dev/nvidiactl");
    }
}
