//! The slices of this machine, and the regions that their names mean.

mod access;
pub(crate) mod agent;
pub(crate) mod bounds;
pub(crate) mod survey;
pub(crate) mod too_many;
pub(crate) mod typed_limits;

use crate::arguments::SliceName;
use crate::output::ending::Ending;
use crate::output::failure::{self, Failure};
use crate::system;
pub(crate) use access::{is_of_others, look_at, trust};
use gpuslice_region::names::{self, FILE_PREFIX, RUN, folder};
use gpuslice_region::{
    FIRST_PID_NAMESPACE, RegionError, Removal, Trust, own_pid_namespace, remove_if_unused,
    remove_if_unused_now,
};
use gpuslice_slices::discovery::FoundRegion;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
pub(crate) use survey::{OpenRegion, Survey};

/// Returns the region of a slice that `run` starts under a name.
///
/// Every user may make files in the region's folder, and the library trusts the region that a setting names, whoever owns it. So
/// this function refuses a region that another user has put there.
pub(crate) fn named(name: &SliceName) -> Result<PathBuf, Failure> {
    let path = in_folder(&name.0);
    match fs::symlink_metadata(&path).map_or(0, |found| found.uid()) {
        owner if owner == 0 || owner == system::user() => Ok(path),
        owner => Err(Failure::new(format!(
            "{} belongs to user {owner}, who could change its limits; choose another --name, have that user or root \
             remove the file, or name it with --region if that user is trusted",
            path.display()
        ))),
    }
}

/// Returns the path of an unused region, for a slice without a name.
pub(crate) fn fresh() -> Result<PathBuf, Failure> {
    let name = own_number();
    let first = in_folder(&name);
    let others = (2..100).map(|number| in_folder(&format!("{name}-{number}")));
    [first.clone()].into_iter().chain(others).find(|path| is_unused(path)).ok_or_else(|| {
        Failure::new(format!("{} and its successors are in use; name the slice with --name", first.display()))
    })
}

/// Returns the region of a slice in the demo of this process.
pub(crate) fn of_demo(name: &str) -> PathBuf {
    in_folder(&demo_name(name))
}

/// Returns the name of a slice in the demo of this process.
pub(crate) fn demo_name(name: &str) -> String {
    format!("demo-{}-{name}", own_number())
}

/// Returns this process's number. In a container, the number of the namespace follows. Containers may share [`names::FOLDER`],
/// and their process numbers repeat.
pub(crate) fn own_number() -> String {
    let number = std::process::id();
    match own_pid_namespace() {
        FIRST_PID_NAMESPACE => number.to_string(),
        namespace => format!("{number}-{namespace}"),
    }
}

fn in_folder(name: &str) -> PathBuf {
    folder().join(format!("{FILE_PREFIX}{}-{RUN}{name}", system::user()))
}

/// Tells whether no slice needs the region: no process of it lives, and it owes nothing. An unreadable region counts as used.
fn is_unused(path: &Path) -> bool {
    matches!(remove_if_unused(path, Trust::OwnerOnly), Ok(Removal::Gone))
}

/// Returns every path that may be a region.
pub(crate) fn all() -> Result<Vec<PathBuf>, Failure> {
    names::all().map_err(access::unreadable)
}

/// Prints the names that a shell can offer without quotes: `gpuslice complete-slices`.
pub(crate) fn print_names() -> Result<Ending, Failure> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    let survey = Survey::now()?;
    let names = survey.readable().map(|(region, _)| survey.label(region));
    failure::print(
        &names.filter(|name| name.chars().all(is_plain)).map(|name| name + "\n").collect::<String>(),
    )?;
    Ok(Ending::Code(0))
}

/// Opens every region for reading, and prints the reason for each one that cannot be read. First removes the regions that no
/// process uses any more and that `run` has not removed itself.
pub(crate) fn look_at_all() -> Result<(Survey, Vec<OpenRegion>), Failure> {
    gpuslice_slices::allow_more_open_files();
    sweep();
    let survey = Survey::now()?;
    let open = survey.look_at_all();
    Ok((survey, open))
}

/// Describes the failure to read a slice after its region was opened.
pub(crate) fn lost(region: &FoundRegion, error: &RegionError) -> String {
    match error {
        RegionError::Replaced { .. } | RegionError::Reinitialised { .. } => {
            format!("{}: its slice ended while it was looked at", survey::shown(region))
        }
        other => survey::in_words(region, &other.to_string()),
    }
}

/// Removes regions of `run` without a living process.
///
/// Such regions remain if a command was killed, or if its program ran on after it. A slice that is about to start loses nothing,
/// because its first process initialises the region anyway. A region that cannot be removed stays for the users who list it. The
/// function waits for no lock: another user may make many such files and hold their locks.
pub(crate) fn sweep() {
    let mine = |path: &&PathBuf| system::user() == 0 || is_own(path);
    for path in all().unwrap_or_default().iter().filter(|path| names::is_of_run(path)).filter(mine) {
        let _left = remove_if_unused_now(path, trust());
    }
}

fn is_own(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() == system::user())
}
