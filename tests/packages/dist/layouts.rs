//! Versions of the region's layout beside each other, as after an upgrade while slices run. A library of one version leaves
//! regions of another version alone, and says how to go on.

use crate::support::artefacts;
use crate::support::bench::Bench;
use crate::support::command::{RegionFile, end, gpuslice, name};
use crate::support::living::Living;
use gpuslice_region::layout::VERSION;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const MIB: u64 = 1 << 20;

/// Builds the library of the next version of the layout: the same sources with another number, without optimisation.
fn next_library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let (repository, folder) = (artefacts::repository(), artefacts::target().join("next"));
        fs::create_dir_all(&folder).unwrap();
        let mut copy = Command::new("cp");
        copy.args(["-r", "--preserve=timestamps"]).current_dir(&repository);
        succeeds(copy.args(["Cargo.toml", "Cargo.lock", "src", "examples"]).arg(&folder));
        let constants = folder.join("src/region/src/layout/constants.rs");
        let text = fs::read_to_string(&constants).unwrap();
        let line = |version| format!("pub const VERSION: u32 = {version};");
        assert!(text.contains(&line(VERSION)));
        fs::write(&constants, text.replace(&line(VERSION), &line(VERSION + 1))).unwrap();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--locked", "--package", "gpuslice-shim"]).current_dir(&folder);
        succeeds(cargo.env("CARGO_TARGET_DIR", folder.join("target")));
        folder.join("target/debug/libgpuslice.so")
    };
    LIBRARY.get_or_init(build).clone()
}

#[track_caller]
fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a bench whose slices have a quota of 64 MiB.
fn bench() -> Bench {
    Bench::simulated_without_contexts()
        .with_quick_nvml()
        .with("GPU_MEM_LIMIT", "64MiB")
        .with("GPU_CORE_PERCENT", "50")
}

/// Starts a program that holds 16 MiB in a slice of the bench.
fn program(bench: &Bench, slice: &str, library: &Path) -> Living {
    let program = bench.host("witness", &["16777216"]).preload(library).in_slice(slice).start();
    assert_eq!(program.hear().as_deref(), Some("ready"));
    program
}

/// Returns the words of a refusal.
fn words(found: u32, reads: u32) -> String {
    format!(
        "region of version {found}, this library reads version {reads}; end the processes that use it and remove it with \
         `gpuslice remove`, or load the same gpuslice in all of them"
    )
}

/// Asserts that a program with this library is refused in the slice, in one line, and changes no byte of the region.
#[track_caller]
fn is_refused(bench: &Bench, slice: &str, library: &Path, words: &str) {
    let before = fs::read(bench.region_of(slice)).unwrap();
    let refused = bench.host("refused", &[]).preload(library).in_slice(slice).run();
    refused.contains(&["init 800", "nvml 4"]);
    assert!(refused.err.lines().count() == 1 && refused.err.contains(words), "{words}: {refused}");
    assert!(before == fs::read(bench.region_of(slice)).unwrap(), "the region was changed");
}

#[test]
fn a_slice_that_runs_is_unharmed_by_a_library_of_another_layout() {
    let (ours, next) = (artefacts::library(), next_library());
    let bench = bench();
    let mut slices =
        [("ours", &ours, &next, VERSION, VERSION + 1), ("next", &next, &ours, VERSION + 1, VERSION)].map(
            |(slice, own, other, version, others)| {
                (slice, own, other, words(version, others), program(&bench, slice, own))
            },
        );
    for (slice, own, other, words, living) in &mut slices {
        // While the program is suspended, its worker does not write into the region.
        living.suspend();
        is_refused(&bench, slice, other, words);
        living.signal(libc::SIGCONT);
        assert_eq!(living.numbers("left"), [0, 48 * MIB]);
        // The slice still takes programs of its own version, and they share its quota.
        let more = program(&bench, slice, own);
        assert_eq!(living.numbers("left"), [0, 32 * MIB]);
        assert!(living.ask(&format!("take {}", 48 * MIB)).starts_with("2 "), "it passes the quota");
        drop(more);
    }
    assert_eq!(bench.truth(0).living(), 32 * MIB);
}

#[test]
fn the_command_leaves_regions_of_another_layout_alone() {
    let slice = name("next");
    let region = RegionFile::of(&slice);
    let path = region.0.display().to_string();
    let bench = bench().with("GPUSLICE_REGION", &path);
    let mut program = bench.host("witness", &["16777216"]).preload(&next_library()).start();
    assert_eq!(program.hear().as_deref(), Some("ready"));
    program.suspend();
    let before = fs::read(&region.0).unwrap();
    let words = words(VERSION + 1, VERSION);
    for (arguments, code) in [
        (&["status", &path][..], 1),
        (&["set", &path, "--mem", "1GiB"], 1),
        (&["remove", &path, "--force"], 1),
        (&["remove", "--all-unused"], 0),
        (&["list"], 0),
        (&["run", "--name", &slice, "--mem", "64MiB", "--", "true"], 0),
    ] {
        let ended = end(&mut gpuslice(arguments));
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {ended:?}");
        let tells = arguments != ["remove", "--all-unused"];
        assert!(!tells || ended.err.contains(&format!("{path}: {words}")), "{arguments:?}: {ended:?}");
        assert!(before == fs::read(&region.0).unwrap(), "{arguments:?} changed the region");
    }
    // Locks of the file show life in both versions. So the slice has ended for this version, too, once its last process has.
    program.kill();
    // Other tests have regions of their own, of which the command may say something.
    let ended = end(&mut gpuslice(&["list"])).code(0);
    assert!(!ended.err.contains(&path), "{ended:?}");
    assert!(!region.0.exists());
}

#[test]
fn a_region_of_another_layout_may_have_any_size() {
    let bench = bench();
    let mut first = program(&bench, "a", &artefacts::library());
    first.order("left");
    first.end();
    let region = bench.region_of("a");
    let size = fs::metadata(&region).unwrap().len();
    let file = OpenOptions::new().write(true).open(&region).unwrap();
    for version in [VERSION - 1, VERSION + 1] {
        for size in [4096, size / 2, size, size * 2] {
            file.write_at(&version.to_ne_bytes(), 8).unwrap();
            file.set_len(size).unwrap();
            is_refused(&bench, "a", &artefacts::library(), &words(version, VERSION));
            assert_eq!(fs::metadata(&region).unwrap().len(), size);
        }
    }
}
