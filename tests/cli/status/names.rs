//! Slices are found by their names, their files and their paths.

use crate::support::command::{GIB, OwnSlice, RegionFile, ask, end, gpuslice, json, name};
use gpuslice_region::{DeviceRequest, Limits, Member, Trust, Uuid};
use serde_json::Value;
use std::fs;

#[test]
fn a_slice_is_meant_by_its_name_its_file_and_its_path() {
    let slice = OwnSlice::join("meant");
    let path = slice.region.0.clone();
    let file = path.file_name().expect("it has a name").to_string_lossy().into_owned();
    for meant in [&slice.name, &file, &path.display().to_string()] {
        ask(&["status", meant]).code(0).says(&slice.name);
        ask(&["set", meant, "--weight", "7"]).code(0);
    }
    let mut here = gpuslice(&["status", &format!("./{file}")]);
    end(here.current_dir("/dev/shm")).code(0).says(&slice.name);
}

#[test]
fn a_name_that_nothing_has_is_answered_with_those_there_are() {
    let slice = OwnSlice::join("there");
    for command in [&["status", "nothing-like-it"][..], &["set", "nothing-like-it", "--mem", "1g"]] {
        let ended = ask(command).code(1).complains("there is no slice \"nothing-like-it\"; there are: ");
        assert!(ended.err.contains(&slice.name) || ended.err.contains(" more, see "), "{ended:?}");
    }
    ask(&["status", "/dev/shm/no/region"]).code(1).complains("there is no region at /dev/shm/no/region");
    let folder = tempfile::tempdir().expect("a folder can be made");
    fs::write(folder.path().join("here"), "").expect("it can be written");
    end(gpuslice(&["status", "here"]).current_dir(folder.path())).code(1).complains("write ./here");
}

#[test]
fn a_name_that_several_have_is_answered_with_their_paths_and_listed_so_that_it_can_be_typed() {
    let slice = OwnSlice::join("twice");
    // This is the region of a container with the same name.
    let other = slice.region.0.display().to_string().replace("-run-", "-");
    let other = RegionFile(other.into());
    let (_member, _) = Member::join(&other.0, Trust::OwnerOnly, &[]).expect("it can be made");
    let [first, second] = [&slice.region.0, &other.0].map(|path| path.display().to_string());
    let ended = ask(&["status", &slice.name]).code(1).complains("means several slices");
    assert!(ended.err.contains(&first) && ended.err.contains(&second), "{ended:?}");
    let listing = json(&["list", "--json"]);
    let slices = listing.pointer("/slices").and_then(Value::as_array).expect("there are slices");
    for path in [first, second] {
        let own = slices.iter().find(|found| found.get("region") == Some(&path.clone().into()));
        let name = own.and_then(|own| own.get("name")).and_then(Value::as_str).expect("it is listed");
        let status = json(&["status", name, "--json"]);
        assert_eq!(status.pointer("/slices/0/region"), Some(&path.into()), "{name}");
    }
}

#[test]
fn inside_a_slice_its_own_region_is_listed_wherever_it_is() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let region = folder.path().join(name("own"));
    let wanted = DeviceRequest { uuid: Uuid([0x33; 16]), total: GIB, limits: Limits::NONE };
    let (_member, _) = Member::join(&region, Trust::OwnerOnly, &[wanted]).expect("it can be made");
    for arguments in [&["list"][..], &["status"], &["status", &name("own")]] {
        end(gpuslice(arguments).env("GPUSLICE_REGION", &region)).code(0).says(&name("own"));
    }
    let listed = ask(&["list"]).code(0).out;
    assert!(!listed.contains(&name("own")), "outside it is meant by its path: {listed}");
}

#[test]
fn names_that_others_chose_steer_no_terminal() {
    let region = RegionFile(format!("/dev/shm/gpuslice-x-\u{1b}[31m{}", name("red")).into());
    let (_member, _) = Member::join(&region.0, Trust::OwnerOnly, &[]).expect("it can be made");
    let ended = ask(&["list"]).code(0);
    assert!(ended.out.contains("?[31m") && !ended.out.contains('\u{1b}'), "{ended:?}");
}

#[test]
fn an_unfinished_region_is_removed_by_the_command_that_lists_it() {
    let region = RegionFile::of(&name("unready"));
    let (maker, _) = Member::join(&region.0, Trust::OwnerOnly, &[]).expect("it can be made");
    let file = fs::OpenOptions::new().write(true).open(&region.0).expect("it is ours");
    maker.leave();
    let ready = gpuslice_region::layout::FIGURES.iter().find(|(name, _)| *name == "header.ready");
    let offset = ready.expect("there is such a word").1 as u64;
    // If a `list` of another test has removed the unused region already, the test holds as well.
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4], offset).expect("it can be written");
    ask(&["list"]).code(0);
    assert!(!region.0.exists());
}
