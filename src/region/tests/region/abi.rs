//! Tests that a C program with `include/gpuslice.h` sees the layout of the library.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use gpuslice_region::layout::FIGURES;

use crate::puppet::{TOTAL, directory, join};
use gpuslice_policy::time::literals::ns;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap().join("../..")
}

/// Compiles the C program, as strictly as a user of the header might compile it.
fn compile(directory: &Path, standard: &str) -> PathBuf {
    let program = directory.join(standard);
    let output = Command::new("cc")
        .args([&format!("-std={standard}"), "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(root().join("include"))
        .arg(root().join("tests/abi/region.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn lines(program: &Path, argument: Option<&Path>) -> Vec<String> {
    let output = Command::new(program).args(argument).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_header_has_the_layout_of_the_library() {
    let directory = directory();
    let ours: Vec<_> = FIGURES.iter().map(|(name, value)| format!("{name} {value}")).collect();
    for standard in ["c11", "gnu17"] {
        assert_eq!(lines(&compile(directory.path(), standard), None), ours);
    }
}

#[test]
fn a_c_program_reads_a_region_that_is_in_use() {
    let directory = directory();
    let path = directory.path().join("region");
    let (first, device) = join(&path, 1000);
    let (second, _) = join(&path, 1000);
    assert_eq!(first.reserve(device, 300), Ok(()));
    assert_eq!(second.reserve(device, 50), Ok(()));
    second.count_quota_denial(device);
    first.count_used(device, ns(40));
    second.count_used(device, ns(2));
    let program = compile(directory.path(), "c11");
    let pid = std::process::id();
    let expected = [
        format!(
            "device 0 07070707070707070707070707070707 total {TOTAL} limit 1000 cores 500 burst 20000000 held 350 used 42"
        ),
        format!("process 0 pid {pid} alive 1 held 300 refused 0 used 40"),
        format!("process 1 pid {pid} alive 1 held 50 refused 1 used 2"),
    ];
    assert_eq!(lines(&program, Some(&path)), expected);
}

#[test]
fn the_document_names_every_offset() {
    let document = fs::read_to_string(root().join("docs/internals/region.md")).unwrap();
    let cells: Vec<Vec<&str>> = document
        .lines()
        .map(|line| line.split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    for (name, value) in FIGURES {
        let value = value.to_string();
        let named = |row: &&Vec<&str>| row.get(1) == Some(&name) && row.get(2) == Some(&value.as_str());
        assert!(
            cells.iter().any(|row| named(&row)),
            "no row `{name}` with {value} in docs/internals/region.md"
        );
    }
}
