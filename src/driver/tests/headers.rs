//! Compares each row with the declaration in NVIDIA's headers, by a C compiler. `ci/headers.sh` puts `cuda.h` and
//! `nvml.h` into `build/headers`. Types with the same ABI count as equal in C: an enumeration and an unsigned integer.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail, and says what it skips"
)]

use gpuslice_driver::table::{ALL, Row};
use std::collections::HashSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const HEADER: &str = "\
#define __CUDA_API_VERSION_INTERNAL
#define CUDA_ENABLE_DEPRECATED
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <cuda.h>
#include <nvml.h>
";

/// Returns a type of a row as C writes it.
fn in_c(rust: &str) -> String {
    let rust = rust.trim();
    for (pointer, before) in [("* mut ", ""), ("*mut ", ""), ("* const ", "const "), ("*const ", "const ")] {
        if let Some(inner) = rust.strip_prefix(pointer) {
            let inner = in_c(inner);
            return if inner.ends_with('*') && !before.is_empty() {
                format!("{inner} const *")
            } else {
                format!("{before}{inner} *")
            };
        }
    }
    match rust {
        "c_uint" => "unsigned int",
        "c_int" => "int",
        "c_char" => "char",
        "c_uchar" => "unsigned char",
        "c_short" => "short",
        "c_ushort" => "unsigned short",
        "c_ulong" => "unsigned long",
        "c_ulonglong" => "unsigned long long",
        "c_longlong" => "long long",
        "c_void" => "void",
        "usize" => "size_t",
        "u64" => "uint64_t",
        "f32" => "float",
        "f64" => "double",
        name => name,
    }
    .to_owned()
}

fn parameters(row: &Row) -> String {
    if row.arity == 0 {
        return "void".to_owned();
    }
    let types = row.parameters.split(',').map(|one| in_c(one.split_once(':').expect("a name and a type").1));
    types.collect::<Vec<_>>().join(", ")
}

fn assertion(row: &Row) -> String {
    let result = match row.name {
        "nvmlErrorString" => "const char *",
        name if name.starts_with("nvml") => "nvmlReturn_t",
        _ => "CUresult",
    };
    format!(
        "_Static_assert(__builtin_types_compatible_p(__typeof__({name}), {result}({parameters})), \"{name}\");",
        name = row.name,
        parameters = parameters(row),
    )
}

fn header(name: &str) -> Option<PathBuf> {
    let folder = env::var_os("GPUSLICE_TEST_HEADERS")
        .map_or_else(|| Path::new(ROOT).join("build/headers"), PathBuf::from);
    [folder.join(name), folder.join("include").join(name)].into_iter().find(|path| path.exists())
}

#[test]
fn every_row_has_the_signature_that_the_headers_declare() {
    let (Some(cuda), Some(nvml)) = (header("cuda.h"), header("nvml.h")) else {
        println!(
            "SKIP signatures of NVIDIA's headers: not in GPUSLICE_TEST_HEADERS or build/headers; to mend it: ci/headers.sh"
        );
        return;
    };
    let folders = [&cuda, &nvml].map(|path| format!("-I{}", path.parent().expect("in a folder").display()));
    let declared = compile(&["-E", "-P"], &folders, HEADER).expect("the headers can be read");
    let names: HashSet<&str> = declared
        .split(|one: char| !one.is_alphanumeric() && one != '_')
        .filter(|word| !word.is_empty())
        .collect();
    let is_declared = |row: &Row| names.contains(row.name);
    let rows: Vec<Row> = ALL.iter().map(|symbol| symbol.row()).collect();
    let (known, unknown): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_declared);
    // Rows that need headers of other interfaces, and rows without a declaration.
    let elsewhere = |row: &Row| {
        ["graphics", "undeclared"].contains(&row.family)
            || ["cuGL", "cuVDPAU", "cuProfiler"].iter().any(|start| row.name.starts_with(start))
    };
    let missing: Vec<_> = unknown.iter().filter(|row| !elsewhere(row)).map(|row| row.name).collect();
    assert!(missing.is_empty(), "declared in no header: {missing:?}");

    let mut program = HEADER.to_owned();
    known.iter().for_each(|row| writeln!(program, "{}", assertion(row)).expect("writes to memory"));
    compile(&["-fsyntax-only", "-fmax-errors=0"], &folders, &program)
        .unwrap_or_else(|errors| panic!("{errors}"));
}

/// Returns the output of the C compiler for a program, or its errors.
fn compile(options: &[&str], folders: &[String], program: &str) -> Result<String, String> {
    let source = env::temp_dir().join(format!("gpuslice-headers-{}.c", std::process::id()));
    fs::write(&source, program).expect("a temporary file can be written");
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output =
        Command::new(compiler).args(["-std=gnu11", "-w"]).args(options).args(folders).arg(&source).output();
    fs::remove_file(&source).expect("the temporary file is ours");
    let output = output.expect("a C compiler runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}
