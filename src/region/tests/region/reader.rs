//! Tests of a reader that has no right to write.

use std::{
    fs::{self, OpenOptions, Permissions},
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::Path,
};

use gpuslice_region::{Monitor, Reader, RegionError, Trust, layout::FIGURES};

use crate::puppet::{Puppet, directory, join};
use gpuslice_policy::time::literals::ns;

const LIMIT: u64 = 1000;

fn open(path: &Path) -> Reader {
    Reader::open(path, Trust::AnyOwner).unwrap().unwrap()
}

fn figure(name: &str) -> u64 {
    FIGURES.iter().find(|(known, _)| *known == name).unwrap().1 as u64
}

#[test]
fn the_dead_are_told_from_the_living_without_being_cleared() {
    let directory = directory();
    let path = directory.path().join("region");
    let mut puppets =
        [Puppet::joined(&path, LIMIT), Puppet::joined(&path, LIMIT), Puppet::joined(&path, LIMIT)];
    for (puppet, bytes) in puppets.iter_mut().zip([100, 20, 3]) {
        assert_eq!(puppet.ask(&format!("reserve {bytes}")), "Ok(())");
        assert_eq!(puppet.ask(&format!("context {bytes}")), "said");
    }
    let reader = open(&path);
    let seen = |reader: &Reader| {
        let device = reader.device(0).unwrap().unwrap();
        let processes = reader.processes().unwrap();
        let slots: Vec<usize> = processes.iter().map(|process| process.slot).collect();
        assert_eq!(reader.process_count().unwrap(), slots.len());
        let each: u64 = processes.iter().map(|process| process.contexts[0]).sum();
        assert_eq!((device.contexts, each), (device.held, device.held), "all that is held is contexts'");
        (device.held, device.held_by_dead, device.peak, slots)
    };
    assert_eq!(seen(&reader), (123, 0, 123, vec![0, 1, 2]));
    let before = fs::read(&path).unwrap();
    puppets[1].kill();
    assert_eq!(seen(&reader), (103, 20, 123, vec![0, 2]));
    puppets[0].kill_to_zombie();
    assert_eq!(seen(&reader), (3, 120, 123, vec![2]));
    assert!(fs::read(&path).unwrap() == before, "a reader has changed the region");
    Monitor::open(&path, Trust::OwnerOnly).unwrap().unwrap().reap().unwrap();
    assert_eq!(seen(&reader), (3, 0, 123, vec![2]));
    puppets[2].kill();
    assert_eq!(seen(&reader), (0, 3, 123, vec![]));
}

#[test]
fn a_reader_does_not_repair_words_that_members_repair() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    let reader = open(&path);
    // The instant is further in the future than any debt allows. A member that reads the word would reduce it.
    let place = figure("time.offset") + figure("time.paid_until");
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.write_at(&u64::MAX.to_ne_bytes(), place).unwrap();
    let read = reader.device(0).unwrap().unwrap();
    let mut word = [0; 8];
    file.read_exact_at(&mut word, place).unwrap();
    assert_eq!(u64::from_ne_bytes(word), u64::MAX);
    assert!(read.paid_until > read.read_at && read.paid_until < ns(u64::MAX));
    let mended = member.paid_until(device);
    assert!((read.paid_until..read.paid_until + ns(60_000_000_000)).contains(&mended));
}

#[test]
fn a_region_is_mapped_for_reading_and_its_file_opened_for_it() {
    let directory = directory();
    let path = directory.path().join("region");
    let mut puppet = Puppet::joined(&path, LIMIT);
    fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    let reader = open(&path);
    let name = path.display().to_string();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let rights: Vec<&str> =
        maps.lines().filter(|line| line.ends_with(&name)).filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(rights, ["r--s"]);
    let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let descriptors: Vec<_> =
        links.filter(|link| fs::read_link(link.path()).is_ok_and(|to| to == path)).collect();
    assert_eq!(descriptors.len(), 1);
    let number = descriptors[0].file_name().into_string().unwrap();
    let said = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
    let flags = said.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
    assert_eq!(i32::from_str_radix(flags, 8).unwrap() & libc::O_ACCMODE, libc::O_RDONLY);
    assert_eq!(puppet.ask("reserve 7"), "Ok(())");
    assert_eq!(reader.device(0).unwrap().unwrap().held, 7);
}

#[test]
fn there_is_an_end_to_the_regions_that_one_process_opens_and_none_is_taken_from_another() {
    let directory = directory();
    let path = directory.path().join("region");
    let (_member, _) = join(&path, LIMIT);
    // The puppet is a separate process, because other tests in this process would have no room.
    let mut puppet = Puppet::start();
    let answer = puppet.ask(&format!("read {}", path.display()));
    assert_eq!(
        answer,
        format!(
            "4096 {}: this process has 4096 regions open, the most that it can protect from truncation; close some",
            path.display()
        )
    );
}

/// Opens a region until an opening fails. Returns the number of openings and the last error. Then truncates all of them.
/// This process must survive.
pub(crate) fn exhaust(path: &Path) -> String {
    let descriptors = libc::rlimit { rlim_cur: 8192, rlim_max: 8192 };
    // SAFETY: `setrlimit` needs a valid `rlimit`, which `descriptors` is.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const descriptors) }, 0);
    let mut readers = Vec::new();
    let error = loop {
        match Reader::open(path, Trust::AnyOwner) {
            Ok(reader) => readers.push(reader.unwrap()),
            Err(error) => break error,
        }
    };
    // A monitor, which has the same mapping for writing, would end with a truncation too.
    assert!(matches!(Monitor::open(path, Trust::AnyOwner), Err(RegionError::TooManyOpen { .. })));
    let most = readers.len();
    readers.pop();
    readers.push(open(path));
    OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
    for reader in &readers {
        assert!(matches!(reader.device(0), Err(RegionError::Damaged { .. })));
    }
    format!("{most} {error}")
}
