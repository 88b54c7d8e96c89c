//! Exports: the library exports exactly the table, and the table knows every function that drivers export.

use crate::support::{artefacts, skip, table};
use gpuslice_driver::table::{ALL, Treatment};
use gpuslice_driver::{Api, Symbol, symbols};
use object::read::elf::{Dyn, ElfFile64};
use object::{Endianness, Object, ObjectSymbol, elf};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the names that an object exports.
fn exports(path: &Path) -> BTreeSet<String> {
    let bytes = read(path);
    let file = object::File::parse(&*bytes).expect("a shared object");
    let offered = file.dynamic_symbols().filter(|symbol| symbol.is_definition() && !symbol.is_local());
    offered.map(|symbol| symbol.name().expect("names are text").to_owned()).collect()
}

/// Returns the objects without which an object cannot be loaded.
fn needed(path: &Path) -> Vec<String> {
    texts(path, elf::DT_NEEDED)
}

/// Returns the name by which other objects ask for an object.
fn soname(path: &Path) -> Vec<String> {
    texts(path, elf::DT_SONAME)
}

/// Returns the texts in the dynamic section of an object that have a tag.
fn texts(path: &Path, tag: u32) -> Vec<String> {
    let bytes = read(path);
    let file = ElfFile64::<Endianness>::parse(&*bytes).expect("a 64-bit shared object");
    let (endian, sections) = (file.endian(), file.elf_section_table());
    let (entries, strings) = sections.dynamic(endian, &*bytes).expect("readable").expect("a dynamic section");
    let strings = sections.strings(endian, &*bytes, strings).expect("strings of the dynamic section");
    let wanted = entries.iter().filter(|entry| entry.tag32(endian) == Some(tag));
    wanted
        .map(|entry| String::from_utf8_lossy(entry.string(endian, strings).expect("a name")).into_owned())
        .collect()
}

/// Returns names of the driver API or of NVML that neither the table nor the list of exceptions knows.
fn unknown(names: &BTreeSet<String>) -> Vec<&String> {
    let known: BTreeSet<_> = ALL.iter().map(|symbol| symbol.name()).collect();
    let excepted =
        |name: &str| symbols::NOT_EXPORTED.iter().any(|(prefix, _reason)| name.starts_with(prefix));
    names
        .iter()
        .filter(|name| name.starts_with("cu") || name.starts_with("nvml"))
        .filter(|name| !known.contains(name.as_str()) && !excepted(name))
        .collect()
}

#[test]
fn the_library_exports_the_table_and_three_loader_functions_and_nothing_else() {
    let mut expected: BTreeSet<String> = ALL.iter().map(|symbol| symbol.name().to_owned()).collect();
    expected.extend(["dlsym", "dlvsym", "dlopen"].map(str::to_owned));
    let exported = exports(&artefacts::library());
    let missing: Vec<_> = expected.difference(&exported).collect();
    let surplus: Vec<_> = exported.difference(&expected).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "missing {missing:?}, surplus {surplus:?}");
}

#[test]
fn the_reader_exports_the_functions_of_its_header_and_nothing_else() {
    let header = artefacts::repository().join("include");
    let of = |result: &str| declared(&header.join("gpuslice_read.h"), &["-DPLAIN"], result);
    let mut expected: BTreeSet<String> =
        ["int ", "void ", "uint32_t ", "const char *"].iter().flat_map(|result| of(result)).collect();
    expected.retain(|name| name.starts_with("gpuslice_"));
    assert!(expected.len() >= 14, "{expected:?}");
    let library = artefacts::reader();
    assert_eq!(exports(&library), expected);
    assert_eq!(soname(&library), ["libgpuslice_read.so.1"]);
    let companions = ["libc.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"];
    let needed = needed(&library);
    assert!(needed.iter().all(|name| companions.contains(&name.as_str())), "{needed:?}");
}

#[test]
fn the_library_needs_the_c_library_and_its_companions_only() {
    let companions = ["libc.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "libdl.so.2", "libpthread.so.0"];
    let needed = needed(&artefacts::library());
    assert!(needed.iter().all(|name| companions.contains(&name.as_str())), "{needed:?}");
}

#[test]
fn every_export_of_a_real_driver_is_in_the_table() {
    let drivers = artefacts::real_drivers();
    if drivers.is_empty() {
        skip(
            "exports of real drivers: none in GPUSLICE_TEST_DRIVERS or build/drivers; to mend it: ci/drivers.sh",
        );
    }
    for (series, driver) in drivers {
        for (library, least) in [("libcuda.so.1", 500), ("libnvidia-ml.so.1", 200)] {
            let path = driver.join(library);
            if !path.exists() {
                skip(&format!(
                    "exports of {library} of {series}: not in build/drivers; to mend it: rm -r build/drivers && ci/drivers.sh"
                ));
                continue;
            }
            let names = exports(&path);
            assert!(names.len() > least, "{series} {library}: {} exports", names.len());
            let unknown = unknown(&names);
            assert!(unknown.is_empty(), "{series} {library}: not in the table: {unknown:?}");
        }
    }
}

/// Returns the functions that a header declares, under each of the macros that change its declarations.
fn declared(header: &Path, macros: &[&str], result: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for definition in macros {
        let output = Command::new("cc").args(["-E", "-P", definition]).arg(header).output().expect("cc runs");
        let text = String::from_utf8_lossy(&output.stdout).replace('\n', " ");
        for part in text.split(result).skip(1) {
            let Some((name, _parameters)) = part.split_once('(') else { continue };
            let name = name.trim();
            if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

/// Returns the functions that `cuda.h` declares, and those that `nvml.h` declares.
fn header_names(headers: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let modes = ["-DPLAIN", "-D__CUDA_API_VERSION_INTERNAL", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM"];
    let mut cuda = declared(&headers.join("cuda.h"), &modes, "CUresult ");
    // The header itself defines this function; no library exports it.
    cuda.remove("cuGetProcAddress_v2_ptsz");
    let modes = ["-DPLAIN", "-DNVML_NO_UNVERSIONED_FUNC_DEFS"];
    let mut nvml = declared(&headers.join("nvml.h"), &modes, "nvmlReturn_t ");
    nvml.extend(declared(&headers.join("nvml.h"), &modes, "const char* "));
    nvml.retain(|name| name.starts_with("nvml"));
    (cuda, nvml)
}

#[test]
fn every_function_that_a_header_declares_is_in_the_table() {
    let Some(headers) = artefacts::headers() else {
        return skip(
            "functions of NVIDIA's headers: not in GPUSLICE_TEST_HEADERS or build/headers; to mend it: ci/headers.sh",
        );
    };
    let (cuda, nvml) = header_names(&headers);
    assert!(cuda.len() > 600 && nvml.len() > 350, "{} and {} functions", cuda.len(), nvml.len());
    for names in [cuda, nvml] {
        let unknown = unknown(&names);
        assert!(unknown.is_empty(), "not in the table: {unknown:?}");
    }
}

#[test]
fn every_name_of_the_table_comes_from_a_driver_or_a_header() {
    let drivers = artefacts::real_drivers();
    let Some(headers) = artefacts::headers().filter(|_| drivers.len() > 4) else {
        return skip(
            "where the table's names come from: not all drivers and headers are in build; to mend it: ci/drivers.sh && ci/headers.sh",
        );
    };
    let (mut names, nvml) = header_names(&headers);
    names.extend(nvml);
    for (_series, driver) in drivers {
        names.extend(exports(&driver.join("libcuda.so.1")));
        names.extend(exports(&driver.join("libnvidia-ml.so.1")));
    }
    // These headers need headers of other libraries, so they are searched as text.
    let texts =
        ["cudaEGL.h", "cudaGL.h", "cudaVDPAU.h"].map(|name| std::fs::read_to_string(headers.join(name)));
    let in_text = |name: &str| texts.iter().flatten().any(|text| text.contains(&format!(" {name}(")));
    let known = |name: &str| names.contains(name) || in_text(name);
    let invented: Vec<_> = ALL.iter().filter(|symbol| !known(symbol.name())).collect();
    assert!(invented.is_empty(), "no other source has {invented:?}");
}

#[test]
fn both_libraries_of_the_simulated_driver_offer_the_table_and_nothing_else() {
    for (library, api) in [("libcuda.so.1", Api::Cuda), ("libnvidia-ml.so.1", Api::Nvml)] {
        let exported = exports(&artefacts::simulated_driver().join(library));
        let known = table::names(api);
        let surplus: Vec<_> = exported
            .iter()
            .filter(|name| name.starts_with("cu") || name.starts_with("nvml") || name.starts_with("dl"))
            .filter(|name| !known.contains(name.as_str()) && Symbol::find(name.as_bytes()).is_none())
            // This name stands for functions of newer drivers.
            .filter(|name| *name != "cuLaunchUnheardOf")
            .collect();
        assert!(surplus.is_empty(), "{library} offers {surplus:?}");
    }
}

/// Returns the text of all test programs.
fn words_of_programs() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
    let sources =
        std::fs::read_dir(&folder).expect("the test programs").map(|entry| read(&entry.unwrap().path()));
    sources.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

#[test]
fn every_call_that_takes_or_gives_memory_or_submits_work_is_hooked_and_made_by_a_test_program() {
    let text = words_of_programs();
    let words: BTreeSet<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let counts = |symbol: &&Symbol| {
        matches!(symbol.treatment(), Treatment::Charge | Treatment::Release | Treatment::Gate)
    };
    let rows: Vec<&Symbol> = ALL.iter().filter(counts).collect();
    assert!(rows.len() > 120, "{rows:?}");
    let unhooked: Vec<_> = rows.iter().filter(|symbol| !symbol.is_hooked()).collect();
    assert!(unhooked.is_empty(), "nothing is done around {unhooked:?}");
    let untried: Vec<_> = rows.iter().filter(|symbol| !words.contains(symbol.name())).collect();
    assert!(untried.is_empty(), "no test program calls {untried:?}");
}

/// Forms with one signature and two meanings of a null stream could share a hook by mistake.
#[test]
fn work_for_a_threads_own_stream_has_hooks_of_its_own() {
    let submits =
        |hook: &str| ["launch::", "copies::", "host_copies::"].iter().any(|module| hook.starts_with(module));
    let rows = ALL.iter().filter_map(|symbol| Some((symbol, symbol.row().hook?)));
    let rows: Vec<_> = rows.filter(|(_, hook)| submits(hook)).collect();
    assert!(rows.len() > 90, "{rows:?}");
    for (symbol, hook) in rows {
        let per_thread = symbol.name().ends_with("_ptsz") || symbol.name().ends_with("_ptds");
        assert_eq!(hook.ends_with("_per_thread"), per_thread, "{symbol:?}: {hook}");
    }
}

#[test]
fn every_call_that_begins_or_ends_a_capture_or_changes_an_executable_is_hooked() {
    let matters = |symbol: &&Symbol| {
        let row = symbol.row();
        row.family == "graph_update" && row.treatment != Treatment::Pass
            || ["cuStreamBegin", "cuStreamEnd", "cuStreamDestroy"]
                .iter()
                .any(|start| row.name.starts_with(start))
    };
    let rows: Vec<_> = ALL.iter().filter(matters).collect();
    assert!(rows.len() > 24, "{rows:?}");
    let unhooked: Vec<_> = rows.iter().filter(|symbol| !symbol.is_hooked()).collect();
    assert!(unhooked.is_empty(), "nothing is done around {unhooked:?}");
}
