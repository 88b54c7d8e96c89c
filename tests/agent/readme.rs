//! Runs commands of documents unchanged. The lines of `README.md` lead from an archive to two containers that share a GPU, 30 to
//! 70. The commands of the guide start a container by variables, by an image and by an operator's files.

use crate::cotenants::come_to_30_and_70;
use crate::engines::{IMAGE, Kind};
use crate::places::{Place, base};
use crate::support::artefacts;
use crate::support::bench::Bench;
use crate::support::command::GIB;
use crate::support::compiler;
use crate::support::neighbours::BUSY;
use crate::support::release::release;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

/// Returns a block of commands below a heading of a document, with the engine's image for `IMAGE`. The first block is number 0.
fn block(document: &str, heading: &str, number: usize) -> String {
    let text = fs::read_to_string(artefacts::repository().join(document)).unwrap();
    let (_before, section) = text.split_once(&format!("\n## {heading}\n")).expect("it has the section");
    let (section, _after) = section.split_once("\n## ").unwrap_or((section, ""));
    let block = section.split("```\n").nth(2 * number + 1).expect("the section has the block");
    block.replace("IMAGE", IMAGE)
}

/// Makes a folder in which the lines of the README run. They call `ci/dist.sh`, and an empty script takes its place here: the
/// release exists already.
fn checkout(place: &Place, release: &Path) -> String {
    let folder = place.folder("checkout");
    let script = place.folder("checkout/ci").join("dist.sh");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    symlink(release.parent().unwrap(), folder.join("target")).unwrap();
    folder.display().to_string()
}

#[test]
fn the_lines_of_the_readme_give_two_containers_30_and_70_percent_of_a_gpu() {
    let what = "the README's two containers";
    let Some(release) = release(what) else { return };
    if base("here", what).is_none() {
        return;
    }
    let bench = Bench::simulated_without_contexts().with("SIMGPU_MEMORY", "16GiB");
    let Some(mut place) = Place::make_on(bench, Kind::Podman, what) else { return };
    compiler::plain("load");
    place.specify_gpu(&format!("exec /programs/load {} </dev/null", BUSY.join(" ")));
    let folder = checkout(&place, &release);
    place.session.removes(&["rm", "--force", "--all"]);
    // The lines write into these folders.
    let lines = block("README.md", "In containers", 0);
    assert_eq!(lines.lines().count(), 5, "{lines}");
    let script = format!(
        "for folder in /usr/local /var/lib; do mount -t tmpfs tmpfs $folder; done\ncd '{folder}'\n{lines}"
    );
    let ran = place.session.program(&["sh", "-euxc", &script]).run();
    assert_eq!(ran.ended, "exit 0", "{ran}");
    come_to_30_and_70(&place.bench);
    for (slice, limit, share) in [("a", 4 * GIB, 300), ("b", 8 * GIB, 700)] {
        let told = place.session.program(&["gpuslice", "status", slice, "--json"]).run();
        let status: Value = serde_json::from_str(&told.out).unwrap_or_else(|_| panic!("{told}"));
        let device = &status["slices"][0]["devices"][0];
        assert_eq!(device["limit"], limit, "{status}");
        assert_eq!(device["time"]["share_permille"], share, "{status}");
    }
}

/// Script in place of a program in a container with a quota of 4 GiB. It fails unless the program gets 4.2 GB and does not get
/// 4.4 GB.
const PROGRAM_OF_4_GIB: &str =
    "/programs/witness 4200000000 </dev/null && ! /programs/witness 4400000000 </dev/null";

#[test]
fn the_commands_of_the_guide_limit_a_container_by_variables_by_an_image_and_by_files() {
    const GUIDE: &str = "docs/guide/containers.md";
    let what = "the guide's containers by variables, image and files";
    let Some(release) = release(what) else { return };
    if base("here", what).is_none() {
        return;
    }
    let bench = Bench::simulated_without_contexts().with("SIMGPU_MEMORY", "16GiB");
    let Some(place) = Place::make_on(bench, Kind::Docker, what) else { return };
    place.specify_gpu(PROGRAM_OF_4_GIB);
    let run = |script: &str| {
        // `--gpus` needs NVIDIA's runtime. The operator's files lie in a folder that no other program uses.
        let script = script.replace("--gpus all", "--network=none --device nvidia.com/gpu=0");
        let script = script.replace("/etc/gpuslice", "/run/operator");
        place.session.program(&["sh", "-euxc", &script]).run()
    };
    let archive = fs::read_dir(&release).unwrap().map(|entry| entry.unwrap().path());
    let archive = archive.into_iter().find(|path| path.to_string_lossy().ends_with(".tar.gz")).unwrap();
    let folder = place.folder("image");
    fs::copy(&archive, folder.join(archive.file_name().unwrap())).unwrap();
    let dockerfile = block(GUIDE, "An image with the library", 0);
    fs::write(folder.join("Dockerfile"), dockerfile.replace("python:3.12-slim-bookworm", IMAGE)).unwrap();
    let install = format!("mount -t tmpfs tmpfs /usr/local\ntar -C /usr/local -xzf '{}'", archive.display());
    let build = block(GUIDE, "An image with the library", 1);
    for script in [
        install,
        block(GUIDE, "By variables", 0),
        format!("cd '{}'\n{build}", folder.display()),
        block(GUIDE, "Limits that the environment cannot change", 0),
    ] {
        let ran = run(&script);
        assert_eq!(ran.ended, "exit 0", "{ran}");
    }
    let unlimited = block(GUIDE, "By variables", 0).replace("4GiB", "5GiB");
    let ran = run(&unlimited);
    assert_ne!(ran.ended, "exit 0", "the program does not notice its quota: {ran}");
}
