//! The archive: each file is there and works, its checksum holds, and it is packed again byte by byte.

use super::release::{VERSION, file, files_below, release, run, said, script, unpacked};
use crate::support::{artefacts, skip};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Pages of the manual, without `.1`.
const PAGES: [&str; 13] = [
    "gpuslice",
    "gpuslice-agent",
    "gpuslice-cdi",
    "gpuslice-completions",
    "gpuslice-demo",
    "gpuslice-doctor",
    "gpuslice-list",
    "gpuslice-man",
    "gpuslice-remove",
    "gpuslice-run",
    "gpuslice-set",
    "gpuslice-status",
    "gpuslice-top",
];
/// Files that have a bill of materials.
const PARTS: [&str; 4] = ["libgpuslice.so", "libgpuslice_read.so", "gpuslice", "gpuslice-agent"];

/// Returns the files of the archive.
pub(crate) fn expected() -> BTreeSet<String> {
    let mut files: Vec<String> = [
        "bin/gpuslice",
        "bin/gpuslice-agent",
        "include/gpuslice.h",
        "include/gpuslice_read.h",
        "lib/gpuslice/libgpuslice.so",
        "lib/libgpuslice_read.so",
        "lib/libgpuslice_read.so.1",
        "lib/systemd/system/gpuslice-agent.service",
        "share/bash-completion/completions/gpuslice",
        "share/bash-completion/completions/gpuslice-agent",
        "share/doc/gpuslice/LICENSE",
        "share/doc/gpuslice/agent.toml",
        "share/doc/gpuslice/licences.txt",
        "share/fish/vendor_completions.d/gpuslice-agent.fish",
        "share/fish/vendor_completions.d/gpuslice.fish",
        "share/zsh/site-functions/_gpuslice",
        "share/zsh/site-functions/_gpuslice-agent",
    ]
    .map(str::to_owned)
    .into();
    files.push(format!("lib/gpuslice/{VERSION}/libgpuslice.so"));
    files.extend(PAGES.map(|page| format!("share/man/man1/{page}.1")));
    files.extend(PARTS.map(|part| format!("share/doc/gpuslice/{part}.cdx.json")));
    files.into_iter().collect()
}

#[test]
fn the_archive_has_each_file_and_the_commands_start() {
    let Some(release) = release("the archive of a release") else { return };
    let tree = unpacked(&release);
    let found: BTreeSet<String> = files_below(tree.path()).into_iter().collect();
    assert_eq!(found, expected());
    let link = fs::read_link(tree.path().join("lib/gpuslice/libgpuslice.so")).unwrap();
    assert_eq!(link, Path::new(VERSION).join("libgpuslice.so"));
    for name in ["gpuslice", "gpuslice-agent"] {
        let printed = run(Command::new(tree.path().join("bin").join(name)).arg("--version"));
        assert_eq!(printed, format!("{name} {VERSION}\n"));
    }
    for part in PARTS {
        let path = tree.path().join(format!("share/doc/gpuslice/{part}.cdx.json"));
        let parts: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        assert_eq!(
            (&parts["bomFormat"], &parts["metadata"]["component"]["version"]),
            (&"CycloneDX".into(), &VERSION.into())
        );
    }
}

#[test]
fn licences_name_each_crate_of_the_bills_of_materials_that_is_not_ours() {
    let Some(release) = release("licences of linked crates") else { return };
    let tree = unpacked(&release);
    let doc = tree.path().join("share/doc/gpuslice");
    let licences = fs::read_to_string(doc.join("licences.txt")).unwrap();
    let parts: Value =
        serde_json::from_slice(&fs::read(doc.join("libgpuslice.so.cdx.json")).unwrap()).unwrap();
    let names = parts["components"].as_array().unwrap().iter().map(|part| part["name"].as_str().unwrap());
    let foreign: Vec<&str> = names.filter(|name| !name.starts_with("gpuslice")).collect();
    assert!(foreign.contains(&"parking_lot") && foreign.len() > 5, "{foreign:?}");
    for name in foreign.iter().filter(|name| !is_of_the_compiler(name)) {
        assert!(licences.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}");
    }
    for text in ["Permission is hereby granted", "TERMS AND CONDITIONS FOR USE"] {
        assert!(licences.contains(text), "{text}");
    }
}

/// Tells whether a crate only runs in the compiler. A bill of materials names procedural macros and their crates, which are not
/// linked.
fn is_of_the_compiler(name: &str) -> bool {
    ["proc-macro2", "quote", "syn", "unicode-ident"].contains(&name) || name.ends_with("-macro")
}

#[test]
fn manual_pages_render_and_completions_load() {
    let Some(release) = release("manual pages and completions of a release") else { return };
    let tree = unpacked(&release);
    for page in PAGES {
        let path = tree.path().join(format!("share/man/man1/{page}.1"));
        let mut man = Command::new("man");
        man.args(["--warnings", "-l"]).arg(&path).env("MANPAGER", "cat").env("LC_ALL", "C.UTF-8");
        let Ok(output) = man.output() else {
            return skip("manual pages of a release: there is no man; to mend it: apt-get install man-db");
        };
        let said = said(&output);
        assert!(output.status.success() && output.stderr.is_empty(), "{page}: {said}");
        assert!(said.contains("SYNOPSIS") && said.contains("gpuslice"), "{page}: {said}");
    }
    let script = tree.path().join("share/bash-completion/completions/gpuslice");
    let load = "source \"$1\" && complete -p gpuslice && COMP_WORDS=(gpuslice stat) COMP_CWORD=1 && \
                _gpuslice gpuslice stat gpuslice && echo \"${COMPREPLY[@]}\"";
    let printed = run(Command::new("bash").args(["-c", load, "bash"]).arg(script));
    assert!(printed.contains("-F _gpuslice gpuslice") && printed.ends_with("status\n"), "{printed}");
    let script = tree.path().join("share/bash-completion/completions/gpuslice-agent");
    let load = "source \"$1\" && COMP_WORDS=(gpuslice-agent run --c) COMP_CWORD=2 && \
                _gpusliceagent gpuslice-agent --c run && echo \"${COMPREPLY[@]}\"";
    let printed = run(Command::new("bash").args(["-c", load, "bash"]).arg(script));
    assert_eq!(printed, "--config\n");
}

#[test]
fn checksums_hold_and_a_changed_byte_breaks_them() {
    let Some(release) = release("checksums of a release") else { return };
    let copy = tempfile::tempdir().unwrap();
    run(Command::new("cp").arg("-r").arg(release.join(".")).arg(copy.path()));
    let check =
        || Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(copy.path()).output();
    let first = check().unwrap();
    let listed = said(&first).lines().filter(|line| line.ends_with(": OK")).count();
    assert!(first.status.success() && listed + 1 == fs::read_dir(&release).unwrap().count(), "{first:?}");
    let archive = file(copy.path(), ".tar.gz");
    let mut bytes = fs::read(&archive).unwrap();
    bytes[1000] ^= 1;
    fs::write(&archive, bytes).unwrap();
    assert!(!check().unwrap().status.success());
}

/// Returns the newest version of glibc that a binary asks for, as (2, 31).
fn glibc(binary: &Path) -> (u32, u32) {
    let listed = run(Command::new("readelf").args(["--version-info", "--wide"]).arg(binary));
    let versions = listed.split("GLIBC_2.").skip(1);
    let minor = |rest: &str| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
    (2, versions.map(minor).max().expect("it asks for a version"))
}

#[test]
fn binaries_are_portable_and_name_no_path_of_this_machine() {
    let Some(release) = release("portable binaries of a release") else { return };
    let tree = unpacked(&release);
    let library = format!("lib/gpuslice/{VERSION}/libgpuslice.so");
    for name in ["bin/gpuslice", "bin/gpuslice-agent", "lib/libgpuslice_read.so.1", &library] {
        let path = tree.path().join(name);
        assert!(glibc(&path) <= (2, 31), "{name}: {:?}", glibc(&path));
    }
    let repository = artefacts::repository();
    let home = std::env::var("HOME").unwrap_or_default();
    for path in [repository.to_str().unwrap(), home.trim_end_matches('/')] {
        // A home such as `/` is in every path.
        if path.len() < 4 {
            continue;
        }
        let cargo = format!("{path}/.cargo");
        let words = if path == home { cargo.as_str() } else { path };
        let found = Command::new("grep").args(["-rlF", words]).arg(tree.path()).output().unwrap();
        assert_eq!(said(&found), "", "{words}");
    }
}

#[test]
fn the_same_binaries_are_packed_into_the_same_bytes() {
    let Some(release) = release("packing a release twice") else { return };
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let pack = |(folder, (umask, zone)): (&TempDir, (&str, &str))| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask \"$1\"; shift; exec \"$@\"", "sh", umask]);
        shell.arg(script("ci/dist/pack.sh").get_program()).arg(folder.path().join("out"));
        shell.env("CARGO_TARGET_DIR", artefacts::target()).env("TZ", zone);
        run(shell.env("SOURCE_DATE_EPOCH", "1700000000"));
    };
    std::thread::scope(|scope| {
        for one in folders.iter().zip([("022", "UTC"), ("077", "Asia/Tokyo")]) {
            scope.spawn(move || pack(one));
        }
    });
    let [first, second] = folders.each_ref().map(|folder| folder.path().join("out"));
    let names = files_below(&first);
    assert_eq!(names, files_below(&second));
    assert_eq!(names, files_below(&release));
    for name in names {
        assert!(fs::read(first.join(&name)).unwrap() == fs::read(second.join(&name)).unwrap(), "{name}");
    }
}
