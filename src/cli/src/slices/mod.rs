//! The slices of this machine, and the region that a slice's name means.

pub(crate) mod bounds;
pub(crate) mod too_many;
pub(crate) mod typed_limits;

use crate::arguments::SliceName;
use crate::output::ending::Ending;
use crate::output::failure::{self, Failure};
use crate::system;
pub(crate) use gpuslice_region::names::label;
use gpuslice_region::names::{self, FOLDER, NameMatch, PREFIX, RUN, folder};
use gpuslice_region::{
    Detached, Monitor, ProcessView, Reader, RegionError, Removal, Trust, detached, remove_if_unused,
};
use gpuslice_slices::process;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf, absolute};

/// Inode of the initial process-number namespace of a machine.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// Most names that a message lists.
const TOLD: usize = 20;

/// Returns the region of a slice that `run` starts under a name.
///
/// Every user may make files in its folder, and the library trusts the region that it is told, of any owner. So this
/// function refuses a region that another user has put there.
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

/// Returns the region of a slice of this process's demo.
pub(crate) fn of_demo(name: &str) -> PathBuf {
    in_folder(&demo_name(name))
}

/// Returns the name of a slice of this process's demo.
pub(crate) fn demo_name(name: &str) -> String {
    format!("demo-{}-{name}", own_number())
}

/// Returns this process's number. In a container the number of the namespace follows, because containers may
/// share [`FOLDER`] and their process numbers repeat.
pub(crate) fn own_number() -> String {
    let number = std::process::id();
    match fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino()) {
        FIRST_PID_NAMESPACE => number.to_string(),
        namespace => format!("{number}-{namespace}"),
    }
}

fn in_folder(name: &str) -> PathBuf {
    folder().join(format!("{PREFIX}{}-{RUN}{name}", system::user()))
}

/// Tells whether no slice needs the region: no process lives in it and it owes nothing. A region that cannot
/// be read counts as used.
fn is_unused(path: &Path) -> bool {
    matches!(remove_if_unused(path, Trust::OwnerOnly), Ok(Removal::Gone))
}

/// Returns every path that may be a region.
pub(crate) fn all() -> Result<Vec<PathBuf>, Failure> {
    names::all().map_err(unreadable)
}

/// Returns the slices whose region was removed while processes use it, if the region would be among [`all`].
pub(crate) fn removed() -> Vec<Detached> {
    let mut found = detached();
    found.retain(|region| names::is_usual(&region.path));
    found
}

fn unreadable(error: io::Error) -> Failure {
    Failure::new(format!("{FOLDER} cannot be read: {error}; mount a tmpfs there"))
}

/// Returns the region that a slice's name or path means.
pub(crate) fn find(slice: &OsStr) -> Result<PathBuf, Failure> {
    let text = slice.to_string_lossy();
    let is_path = text.contains('/');
    let failed = |error: io::Error| match is_path {
        true => Failure::new(format!("{text}: {error}; give an absolute path")),
        false => unreadable(error),
    };
    match names::find(slice).map_err(failed)? {
        NameMatch::One(path) => Ok(path),
        NameMatch::Nothing => of_process(&text).ok_or_else(|| missing(slice)),
        NameMatch::Several(paths) => {
            let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            Err(Failure::new(format!(
                "{text:?} means several slices; give the path of one: {}",
                paths.join(", ")
            )))
        }
    }
}

/// Returns the region of the slice in which the process with the number `text` lives. Names have precedence,
/// because a slice without a name is called by its process number.
fn of_process(text: &str) -> Option<PathBuf> {
    let pid: u32 = text.parse().ok()?;
    let is_it = |process: &ProcessView| process.pid == pid && process::is_near(process);
    let lives_in = |reader: &Reader| reader.processes().is_ok_and(|all| all.iter().any(is_it));
    readable().into_iter().find(lives_in).map(|reader| reader.path().to_owned())
}

/// Prints the names that a shell can offer without quotes: `gpuslice complete-slices`.
pub(crate) fn print_names() -> Result<Ending, Failure> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    let names = readable().into_iter().map(|reader| label(reader.path()));
    failure::print(
        &names.filter(|name| name.chars().all(is_plain)).map(|name| name + "\n").collect::<String>(),
    )?;
    Ok(Ending::Code(0))
}

/// Returns the failure that there is no such slice. It names the existing slices.
pub(crate) fn missing(slice: &OsStr) -> Failure {
    let text = slice.to_string_lossy();
    if text.contains('/') {
        let removed =
            absolute(slice).ok().and_then(|path| detached().into_iter().find(|found| found.path == path));
        if let Some(removed) = removed {
            return Failure::new(removed.to_string());
        }
        return Failure::new(format!("there is no region at {text}; `gpuslice list` shows those there are"));
    }
    let is_it =
        |found: &Detached| names::name_of(&found.path) == text || found.path.file_name() == Some(slice);
    if let Some(removed) = removed().into_iter().find(is_it) {
        return Failure::new(removed.to_string());
    }
    let mut names: Vec<String> = readable().iter().map(|reader| label(reader.path())).collect();
    let more = names.len().saturating_sub(TOLD);
    names.truncate(TOLD);
    let there = match (names.as_slice(), more) {
        ([], _) => "there is none at all".to_owned(),
        (names, 0) => format!("there are: {}", names.join(", ")),
        (names, more) => format!("there are: {} and {more} more, see `gpuslice list`", names.join(", ")),
    };
    let path = if Path::new(slice).exists() {
        format!(" (for the file of that name write ./{text})")
    } else {
        String::new()
    };
    Failure::new(format!("there is no slice {text:?}; {there}{path}"))
}

/// Opens the region of a slice that the user named, to change it.
pub(crate) fn open(slice: &OsStr) -> Result<Monitor, Failure> {
    let path = find(slice)?;
    let none = || bounds::unused(&path).unwrap_or_else(|| missing(slice));
    Monitor::open(&path, Trust::AnyOwner)?.ok_or_else(none)
}

/// Returns the trust for regions that commands show: root sees the regions of all users.
pub(crate) fn trust() -> Trust {
    if system::user() == 0 { Trust::AnyOwner } else { Trust::OwnerOnly }
}

/// Opens the region of a slice that the user named, to read it.
pub(crate) fn look(slice: &OsStr) -> Result<Reader, Failure> {
    let path = find(slice)?;
    look_at(&path, Trust::AnyOwner)?.ok_or_else(|| missing(slice))
}

/// Opens a region to read it, for which the right to read suffices.
///
/// If this process may also write the region, it reaps the dead members. Others then pay for the memory that they
/// share with them. Without that right, the figures tell the dead members apart.
pub(crate) fn look_at(path: &Path, trust: Trust) -> Result<Option<Reader>, RegionError> {
    let reader = Reader::open(path, trust)?;
    if reader.as_ref().is_some_and(|reader| reader.any_dead().is_ok_and(|any| any)) {
        let _not_now = Monitor::open(path, trust).map(|monitor| monitor.map(|monitor| monitor.reap()));
    }
    Ok(reader)
}

/// Returns every region that can be read, without a message about the others.
fn readable() -> Vec<Reader> {
    let open = |path: PathBuf| Reader::open(&path, trust()).ok().flatten();
    all().unwrap_or_default().into_iter().filter_map(open).collect()
}

/// Opens every region to read it, and prints the reason for each that cannot be read. First removes the
/// regions that `run` has left behind.
pub(crate) fn look_at_all() -> Result<Vec<Reader>, Failure> {
    sweep();
    let mut readers = Vec::new();
    let mut others: u32 = 0;
    for path in all()? {
        match look_at(&path, trust()) {
            Ok(Some(reader)) => readers.push(reader),
            Ok(None) => {}
            Err(error) if is_of_others(&error) => others = others.saturating_add(1),
            Err(error) => failure::note(&error.to_string()),
        }
    }
    removed().iter().for_each(|region| failure::note(&region.to_string()));
    if others > 0 {
        failure::note(&format!("regions of other users are not shown ({others}); root sees all"));
    }
    Ok(readers)
}

/// Describes the failure to read a slice that could be opened.
pub(crate) fn lost(error: &RegionError) -> String {
    match error {
        RegionError::Replaced { path } | RegionError::Reinitialised { path } => {
            format!("{}: its slice ended while it was looked at", path.display())
        }
        other => other.to_string(),
    }
}

pub(crate) fn is_of_others(error: &RegionError) -> bool {
    match error {
        RegionError::Owner { .. } => true,
        RegionError::System { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
        _ => false,
    }
}

/// Removes regions of `run` in which no process lives.
///
/// Such regions remain after a command that was killed, or after a program that outlived its command. A slice
/// that is about to start loses nothing, because its first process initialises the region anyway. A region
/// that cannot be removed stays for the users who list it.
pub(crate) fn sweep() {
    let mine = |path: &&PathBuf| system::user() == 0 || is_own(path);
    for path in all().unwrap_or_default().iter().filter(|path| names::is_of_run(path)).filter(mine) {
        let _left = remove_if_unused(path, trust());
    }
}

fn is_own(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() == system::user())
}
