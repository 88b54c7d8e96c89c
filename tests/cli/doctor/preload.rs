//! Findings about the preloaded library, other interposers, and limits that programs would not have.

use super::{Machine, Told, with_mounts};
use crate::support::command::{PROGRAM, end};
use crate::support::container::OWN_ETC;
use crate::support::{artefacts, compiler, executable};
use gpuslice_region::layout::VERSION;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

#[test]
fn another_interposer_is_found_however_it_is_preloaded() {
    let compile = |name: &str, flags: &[&str]| {
        let flags = [&["-shared", "-fPIC"], flags].concat();
        compiler::compile("interposer.c", name, &flags).expect("interposer.c compiles").display().to_string()
    };
    let machine = Machine::simulated();
    let asks = |preload: &str| {
        let mut command = machine.command(&["--json"]);
        Told::of(end(command.env("LD_PRELOAD", preload)))
    };
    let both = compile("libvgpu.so", &["-DDLSYM", "-DCALLS"]);
    asks(&both).has("preload.conflict", "error", "HAMi-core").has("preload.entries", "note", &both);
    let looks = compile("dlsym_only.so", &["-DDLSYM"]);
    asks(&looks).has("preload.conflict", "warning", "dlsym").has("preload.active", "ok", "");
    let behind = format!("{looks}:{}", artefacts::library().display());
    asks(&behind).has("preload.inherited", "error", "calls another library's dlsym");
    asks("libm.so.6").has_no("preload.conflict");
    asks("/nowhere/lib.so").has("preload.entries", "warning", "cannot be preloaded");
    let copy = machine.path("copy.so");
    fs::copy(artefacts::library(), &copy).unwrap();
    asks(&copy.display().to_string()).has("preload.conflict", "error", "another copy of gpuslice");
    // The loader preloads a library in /etc/ld.so.preload into the doctor's children, as into all programs.
    if let Some(told) = with_mounts(&format!("{OWN_ETC} && echo {both} > /etc/ld.so.preload"), &machine, &[])
    {
        told.has("preload.conflict", "error", "HAMi-core").has(
            "preload.entries",
            "note",
            "/etc/ld.so.preload",
        );
    }
}

#[test]
fn a_limit_that_programs_started_from_here_would_not_have_is_an_error() {
    let library = artefacts::library().display().to_string();
    let bare = || Machine::simulated().without("LD_PRELOAD");
    let told = bare().asks(&[]);
    told.has("preload.active", "ok", "").has(
        "preload.inherited",
        "error",
        "no libgpuslice.so in it and no limit: LD_PRELOAD is not set",
    );
    assert!(told.ended.out.contains(&format!("export LD_PRELOAD={library}; or")), "{}", told.ended.out);
    // An entrypoint has overwritten the variable.
    let told = bare().with("LD_PRELOAD", "libm.so.6").asks(&[]);
    told.has("preload.inherited", "error", "LD_PRELOAD is libm.so.6");
    assert!(told.ended.out.contains(&format!("LD_PRELOAD={library}:$LD_PRELOAD;")), "{}", told.ended.out);
    let wrong = "/nowhere/libgpuslice.so";
    let told = bare().with("LD_PRELOAD", wrong).asks(&[]);
    told.has("preload.inherited", "error", &format!("'{wrong}' from LD_PRELOAD cannot be preloaded"));
    // The library works beside other objects too, and a copy works as the installed file does.
    bare().with("LD_PRELOAD", &format!("{library}:libm.so.6")).asks(&[]).has(
        "preload.inherited",
        "ok",
        &library,
    );
    let machine = bare();
    let copy = machine.path("copy.so");
    fs::copy(artefacts::library(), &copy).unwrap();
    let copy = copy.display().to_string();
    machine.with("LD_PRELOAD", &copy).asks(&[]).has("preload.inherited", "ok", &copy);
    // A user who sets no limit, or who uses `gpuslice run`, needs no variable.
    bare().without("GPU_MEM_LIMIT").asks(&[]).has_no("preload.inherited").has("settings.limit", "note", "");
    for brings in [
        &["nice", PROGRAM, "run", "--", "cat"][..],
        &["sh", "-c", "exec gpuslice run -- cat"],
        &["env", &format!("LD_PRELOAD={library}"), "cat"],
    ] {
        bare().asks(&[&["--"], brings].concat()).has_no("preload.inherited");
    }
    for leaves in [&["cat"][..], &["env", "LD_PRELOAD=/nowhere/libgpuslice.so", "cat"]] {
        bare().asks(&[&["--"], leaves].concat()).has("preload.inherited", "error", "");
    }
}

#[test]
fn limits_of_operators_files_and_shares_are_looked_for_in_programs_as_well() {
    let bare = || Machine::simulated().without("LD_PRELOAD").without("GPU_MEM_LIMIT");
    for (name, value) in [
        ("GPU_CORE_PERCENT", "30"),
        ("GPU_CORE_POLICY", "equal"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "2g"),
        ("GPU_MEM_LIMIT", "4Gigs"),
    ] {
        bare().with(name, value).asks(&[]).has("preload.inherited", "error", "not set");
    }
    let machine = bare();
    let file = machine.script("config", "GPU_MEM_LIMIT=1GiB\n");
    machine.with("GPUSLICE_CONFIG", &file).asks(&[]).has("preload.inherited", "error", "not set");
    let fixed = "mount -t tmpfs none /run && mkdir -p /run/gpuslice/conf && \
                 echo GPU_MEM_LIMIT=1GiB > /run/gpuslice/conf/config";
    if let Some(told) = with_mounts(fixed, &bare(), &[]) {
        told.has("preload.inherited", "error", "not set");
    }
    // The loader preloads the library that this file names into every program, without a variable.
    let library = artefacts::library().display().to_string();
    let line = format!("{OWN_ETC} && echo {library} > /etc/ld.so.preload");
    let machine = bare().with("GPU_MEM_LIMIT", "4GiB");
    if let Some(told) = with_mounts(&line, &machine, &[]) {
        told.has("preload.inherited", "ok", &library);
    }
}

#[test]
fn a_library_that_is_preloaded_from_another_place_is_found() {
    let machine = Machine::simulated();
    let (program, copy) = (machine.path("gpuslice"), machine.path("copy.so"));
    executable::copy(PROGRAM, &program, 0o755);
    fs::copy(artefacts::library(), &copy).unwrap();
    let copy = copy.display().to_string();
    let asks = |preload: &str| {
        let asked = machine.command(&["--json"]);
        let mut command = Command::new(&program);
        command.args(asked.get_args()).env_clear();
        command.envs(asked.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Told::of(end(command.env_remove("GPUSLICE_LIB").env("LD_PRELOAD", preload)))
    };
    let told = asks(&copy);
    told.has("library.found", "note", &format!("{copy}, "))
        .has("library.version", "ok", "")
        .has("preload.active", "ok", &copy)
        .has("preload.inherited", "ok", &copy)
        .has_no("preload.conflict");
    asks(&format!("libm.so.6:{copy}")).has("library.found", "note", &format!("{copy}, "));
    asks("libm.so.6").has("library.found", "error", "is not at");
}

#[test]
fn programs_with_musl_that_ignore_the_file_of_preloads_are_told() {
    let machine = Machine::simulated();
    let library = artefacts::library().display().to_string();
    let (loader, musl) = ("/lib64/ld-linux-x86-64.so.2\0", "/lib/ld-musl-x86_64.so.1\0\0\0\0");
    let mut shell = fs::read("/bin/sh").unwrap();
    let at = shell.windows(loader.len()).position(|part| part == loader.as_bytes()).expect("it has a loader");
    shell[at..at + musl.len()].copy_from_slice(musl.as_bytes());
    let path = machine.path("sh");
    fs::write(&path, shell).unwrap();
    let line = format!("{OWN_ETC} && echo {library} > /etc/ld.so.preload");
    let with_musl = format!("{line} && mount --bind {} /bin/sh", path.display());
    if let Some(told) = with_mounts(&with_musl, &machine, &[]) {
        told.has_no("preload.musl");
    }
    let machine = machine.without("LD_PRELOAD");
    if let Some(told) = with_mounts(&with_musl, &machine, &[]) {
        told.has("preload.musl", "warning", "/bin/sh is loaded by /lib/ld-musl-x86_64.so.1");
        assert!(told.ended.out.contains(&format!("set LD_PRELOAD={library} ")), "{}", told.ended.out);
    }
    if let Some(told) = with_mounts(&line, &machine, &[]) {
        told.has_no("preload.musl");
    }
}

#[test]
fn a_library_that_cannot_work_is_reported_with_its_fault() {
    let machine = Machine::simulated();
    let asks = |library: &Path| {
        let mut command = machine.command(&["--json"]);
        Told::of(end(command.env("GPUSLICE_LIB", library)))
    };
    asks(Path::new("/nowhere.so")).has("library.found", "error", "/nowhere.so");
    let other = artefacts::system_object("libm.so.6").expect("every system has it");
    asks(&other).has("library.found", "error", "does not export").has("preload.active", "error", "");
    let copy = machine.path("libgpuslice.so");
    let changed = |from: &[u8], to: &[u8]| {
        let mut bytes = fs::read(artefacts::library()).unwrap();
        let at = bytes.windows(from.len()).position(|part| part == from).expect("it is there");
        bytes[at..at + to.len()].copy_from_slice(to);
        fs::write(&copy, bytes).unwrap();
        asks(&copy)
    };
    let of_version = |version: u32| [&b"gpuslice\0\0\0\0"[..], &version.to_ne_bytes()].concat();
    let note = of_version(VERSION);
    changed(&note, &of_version(3)).has("library.version", "error", "regions of version 3");
    let version = [&note[..], b"0.1.0"].concat();
    let older = [&note[..], b"0.0.9"].concat();
    changed(&version, &older).has("library.version", "warning", "the library is 0.0.9");
    changed(b"\x7fELF\x02", b"\x7fELF\x01").has("library.found", "error", "another architecture");
    changed(b"GLIBC_2.34\0", b"GLIBC_9.99\0").has("library.c-library", "error", "needs glibc 9.99");
    fs::copy(artefacts::library(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
    asks(&copy).has("library.rights", "warning", "all users");
    let spaced = machine.path("a b.so");
    fs::copy(artefacts::library(), &spaced).unwrap();
    asks(&spaced).has("preload.active", "error", "space or colon");
}
