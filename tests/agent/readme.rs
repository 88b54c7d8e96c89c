//! The lines of `README.md` that lead from an archive to two containers which share a GPU, 30 to 70.

use crate::cotenants::have_30_and_70;
use crate::engines::Kind;
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

/// Number of measurements, of five seconds each, within which both containers must get their shares.
const MEASUREMENTS: usize = 12;

/// Returns the lines of the README for containers.
fn lines() -> String {
    let readme = fs::read_to_string(artefacts::repository().join("README.md")).unwrap();
    let (_before, section) = readme.split_once("\n## In containers\n").expect("it has the section");
    let block = section.split("```\n").nth(1).expect("the section has a block");
    assert_eq!(block.lines().count(), 5, "{block}");
    block.replace("IMAGE", "base:1")
}

/// Makes a folder in which the lines run: `ci/dist.sh` has packed the release before, and does it once only.
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
    let script = format!(
        "for folder in /usr/local /var/lib; do mount -t tmpfs tmpfs $folder; done\ncd '{folder}'\n{}",
        lines()
    );
    let ran = place.session.program(&["sh", "-euxc", &script]).run();
    assert_eq!(ran.ended, "exit 0", "{ran}");
    assert!((0..MEASUREMENTS).any(|_| have_30_and_70(&place.bench)), "they do not get their shares");
    for (slice, limit, share) in [("a", 4 * GIB, 300), ("b", 8 * GIB, 700)] {
        let told = place.session.program(&["gpuslice", "status", slice, "--json"]).run();
        let status: Value = serde_json::from_str(&told.out).unwrap_or_else(|_| panic!("{told}"));
        let device = &status["slices"][0]["devices"][0];
        assert_eq!(device["limit"], limit, "{status}");
        assert_eq!(device["time"]["share_permille"], share, "{status}");
    }
}
