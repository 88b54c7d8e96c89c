//! Compares the interface with its header and with the interfaces of earlier releases.

use crate::API_VERSION;
use crate::boundary::Plain;
use crate::figures::{DeviceFigures, NO_LIMIT, ProcessFigures};
use crate::status::NAMES;
use core::mem::{align_of, offset_of, size_of};
use gpuslice_policy::compute::attribution::correction;
use gpuslice_region::layout::WHOLE_SHARE;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap().join("../..")
}

/// Returns the name in C and value of each number in the header.
fn numbers() -> Vec<(String, u64)> {
    let mut numbers = vec![
        ("GPUSLICE_API_VERSION".to_owned(), API_VERSION.into()),
        ("GPUSLICE_NO_LIMIT".to_owned(), NO_LIMIT),
        ("GPUSLICE_WHOLE_SHARE".to_owned(), WHOLE_SHARE.into()),
        ("GPUSLICE_WHOLE_FACTOR".to_owned(), correction::WHOLE_FACTOR.into()),
    ];
    numbers.extend(NAMES.iter().map(|(name, number)| ((*name).to_owned(), u64::try_from(*number).unwrap())));
    let of_enumerations = [
        ("POLICY", &["FIXED", "EQUAL", "BEST_EFFORT"] as &[&str]),
        ("PRIORITY", &["NORMAL", "HIGH", "LOW"]),
        (
            "METER",
            &[
                "NONE",
                "EVENTS",
                "EVENTS_AND_NVML",
                "NVML",
                "ESTIMATES",
                "EVENTS_REPLAYED",
                "EVENTS_REPLAYED_AND_NVML",
            ],
        ),
    ];
    for (kind, names) in of_enumerations {
        numbers.extend((0..).zip(names).map(|(value, name)| (format!("GPUSLICE_{kind}_{name}"), value)));
    }
    numbers.extend(layout().into_iter().map(|(name, value)| (name, u64::try_from(value).unwrap())));
    numbers
}

/// Returns sizes and offsets, as expressions of C.
fn layout() -> Vec<(String, usize)> {
    let mut layout = Vec::new();
    macro_rules! structure {
        ($name:literal, $structure:ident: $($field:ident)*) => {
            layout.push((concat!("sizeof(struct ", $name, ")").to_owned(), size_of::<$structure>()));
            $(layout.push((
                concat!("offsetof(struct ", $name, ", ", stringify!($field), ")").to_owned(),
                offset_of!($structure, $field),
            ));)*
        };
    }
    structure!("gpuslice_device_figures", DeviceFigures: uuid total memory_limit held held_by_dead peak refused unmet
        spilled burst_ns used_ns throttled_ns queued_ns copied_ns launches paid_until_ns read_at_ns number
        share_permille policy priority weight oversubscribe meter factor_millionths held_by_contexts);
    structure!("gpuslice_process_figures", ProcessFigures: start pid_namespace held refused spilled used_ns
        throttled_ns queued_ns copied_ns launches slot pid held_by_contexts);
    layout
}

/// Returns the functions that the header declares, one line each.
fn functions() -> Vec<String> {
    let header = root().join("include/gpuslice_read.h");
    let output = Command::new("cc").args(["-E", "-P"]).arg(header).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let parts = text.split(';').map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    parts
        .filter(|part| part.contains(" gpuslice_") || part.contains("*gpuslice_"))
        .filter(|part| part.ends_with(')'))
        .collect()
}

/// Returns the whole interface, in the form that is kept for each version.
fn interface() -> String {
    let mut text = String::new();
    for (name, value) in numbers() {
        writeln!(text, "{name} = {value}").unwrap();
    }
    for function in functions() {
        writeln!(text, "{function}").unwrap();
    }
    text
}

fn released(version: u32) -> String {
    let path = root().join(format!("src/reader/released/{version}.txt"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_interface_equals_the_record_of_its_version() {
    let (now, then) = (interface(), released(API_VERSION));
    assert!(
        now == then,
        "the interface has changed: count API_VERSION and GPUSLICE_API_VERSION up, and keep this as \
         src/reader/released/{API_VERSION}.txt of the new number:\n{now}"
    );
}

/// Returns the lines of an earlier version that a later one does not have, except its number and the sizes of structures.
fn lost<'text>(earlier: &'text str, later: &str) -> Vec<&'text str> {
    let grows = |line: &&str| line.starts_with("sizeof") || line.starts_with("GPUSLICE_API_VERSION");
    let kept = |line: &&str| later.lines().any(|other| other == *line);
    earlier.lines().filter(|line| !grows(line) && !kept(line)).collect()
}

#[test]
fn a_later_version_has_all_of_an_earlier_version() {
    let versions: Vec<String> = (1..=API_VERSION).map(released).collect();
    for pair in versions.windows(2) {
        assert_eq!(lost(&pair[0], &pair[1]), [""; 0]);
    }
    let first = &versions[0];
    let longer = first
        .replace("device_figures) = 176", "device_figures) = 184")
        .replace("API_VERSION = 1", "API_VERSION = 2");
    assert_eq!(lost(first, &longer), [""; 0]);
    let moved = first.replace("peak) = 48", "peak) = 56");
    assert_eq!(lost(first, &moved), ["offsetof(struct gpuslice_device_figures, peak) = 48"]);
    let other = first.replace("gpuslice_reap(const ", "gpuslice_reap(");
    assert_eq!(lost(first, &other).len(), 1);
}

#[test]
fn structures_have_no_padding_and_never_shrink() {
    for (size, first, alignment) in [
        (size_of::<DeviceFigures>(), DeviceFigures::FIRST_SIZE, align_of::<DeviceFigures>()),
        (size_of::<ProcessFigures>(), ProcessFigures::FIRST_SIZE, align_of::<ProcessFigures>()),
    ] {
        assert!(size >= first && size % 8 == 0 && alignment == 8, "{size} {first} {alignment}");
    }
    let first = released(1);
    for (name, size) in [
        ("gpuslice_device_figures", DeviceFigures::FIRST_SIZE),
        ("gpuslice_process_figures", ProcessFigures::FIRST_SIZE),
    ] {
        assert!(first.contains(&format!("sizeof(struct {name}) = {size}\n")));
    }
    // Each field ends where the next one begins.
    let device: Vec<usize> = layout().iter().skip(1).take(26).map(|(_, offset)| *offset).collect();
    let gaps: Vec<usize> = device.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [&[16][..], &[8; 16], &[4; 8]].concat());
}

#[test]
fn the_header_has_the_same_numbers_in_c_and_in_cpp_and_compiles_without_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let numbers = numbers();
    let print = |(name, _): &(String, u64)| format!("    printf(\"%llu\\n\", (unsigned long long){name});\n");
    let lines: String = numbers.iter().map(print).collect();
    let expected: Vec<String> = numbers.iter().map(|(_, value)| value.to_string()).collect();
    let both = "#include \"gpuslice.h\"\n";
    for (compiler, standard, before) in [
        ("cc", "c99", ""),
        ("cc", "c11", both),
        ("cc", "gnu17", ""),
        ("c++", "c++11", ""),
        ("c++", "c++17", both),
    ] {
        if Command::new(compiler).arg("--version").output().is_err() {
            println!("SKIP the header in {standard}: no {compiler}; to mend it: apt-get install gcc g++");
            continue;
        }
        let suffix = if compiler == "cc" { "c" } else { "cc" };
        let (source, program) =
            (directory.path().join(format!("{standard}.{suffix}")), directory.path().join(standard));
        let text = format!(
            "{before}#include \"gpuslice_read.h\"\n#include <stdio.h>\nint main(void)\n{{\n{lines}    return 0;\n}}\n"
        );
        fs::write(&source, text).unwrap();
        let strict = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-I"];
        let output = Command::new(compiler)
            .arg(format!("-std={standard}"))
            .args(strict)
            .arg(root().join("include"))
            .args([&source, Path::new("-o"), &program])
            .output()
            .unwrap();
        assert!(output.status.success(), "{standard}: {}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
        assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{standard}");
    }
}
