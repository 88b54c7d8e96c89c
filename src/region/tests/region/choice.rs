//! Tests of the choice among the names of a region that no setting names.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use gpuslice_region::{
    Member, Monitor, RegionError, Trust,
    layout::{FIGURES, VERSION},
    names::ProgramRegion,
};
use tempfile::TempDir;

use crate::puppet::{Puppet, directory, request};

/// Users without privileges: the first owns planted files.
const PLANTER: u32 = 12345;
const TENANT: u32 = 12346;
const OTHER_TENANT: u32 = 12347;
/// A text file.
const TEXT: &[u8] = b"x\n";

/// A folder like `/dev/shm`, and a region that has several names there.
struct Place {
    folder: TempDir,
    region: ProgramRegion,
}

impl Place {
    fn new(trust: Trust) -> Self {
        let folder = directory();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        let path = folder.path().join("region");
        Self { folder, region: ProgramRegion { path, trust, has_more_names: true } }
    }

    /// Returns one of the region's names.
    fn at(&self, number: u32) -> PathBuf {
        let name = if number == 1 { "region".to_owned() } else { format!("region-{number}") };
        self.folder.path().join(name)
    }

    fn join(&self) -> Result<Member, RegionError> {
        Member::join_program(&self.region, &[request(1)]).map(|(member, _)| member)
    }

    /// Starts a program of a user. Returns it with the path of its region, or with the reason for which it is refused.
    fn program(&self, user: u32) -> (Puppet, String) {
        let mut puppet = Puppet::start();
        assert_eq!(puppet.ask(&format!("user {user}")), "changed");
        let answer = puppet.ask(&self.order());
        (puppet, answer)
    }

    /// Returns the order to join the region.
    fn order(&self) -> String {
        let trust = if self.region.trust == Trust::AllUsers { "all" } else { "own" };
        format!("program {} {trust}", self.region.path.display())
    }

    /// Starts a program of a user, which must have the region under the name with this number.
    #[track_caller]
    fn has(&self, user: u32, number: u32) -> Puppet {
        let (puppet, answer) = self.program(user);
        assert_eq!(answer, self.at(number).display().to_string());
        puppet
    }

    /// Starts a program of a user, which must be refused with a message that contains `why`.
    #[track_caller]
    fn refuses(&self, user: u32, why: &str) {
        let (_puppet, answer) = self.program(user);
        assert!(answer.starts_with("refused: ") && answer.contains(why), "{why}: {answer}");
    }

    /// Writes a file of another user under one of the names.
    fn plant(&self, number: u32, owner: u32, mode: u32) {
        fs::write(self.at(number), TEXT).unwrap();
        fs::set_permissions(self.at(number), Permissions::from_mode(mode)).unwrap();
        chown(self.at(number), Some(owner), None).unwrap();
    }

    fn files(&self) -> usize {
        fs::read_dir(self.folder.path()).unwrap().count()
    }
}

/// Tells whether this process may start programs of other users; else says that a test is skipped.
fn has_users() -> bool {
    let may = Puppet::start().ask(&format!("user {TENANT}")) == "changed";
    if !may {
        eprintln!("SKIP files of other users under a region's names; to mend it: run the tests as root");
    }
    may
}

/// Returns contents of files that are no region of this version: the header of one with a version and a size, and others.
fn unusable() -> Vec<Vec<u8>> {
    let figure = |name: &str| FIGURES.iter().find(|(known, _)| *known == name).unwrap().1;
    let size = figure("size");
    let version = |version: u32, size: usize| {
        let mut bytes = vec![0; size];
        bytes[..8].copy_from_slice(b"gpuslice");
        bytes[8..12].copy_from_slice(&version.to_ne_bytes());
        bytes[16..24].copy_from_slice(&size.to_ne_bytes());
        bytes
    };
    let other_versions = [VERSION - 1, VERSION + 1].map(|other| version(other, size - 64));
    let others = [Vec::new(), TEXT.to_vec(), version(VERSION, size - 1), version(VERSION - 1, 24)];
    other_versions.into_iter().chain(others).collect()
}

#[test]
fn a_file_that_is_no_region_and_in_which_no_process_lives_is_replaced() {
    for trust in [Trust::OwnerOnly, Trust::AllUsers] {
        for content in unusable() {
            let place = Place::new(trust);
            fs::write(place.at(1), &content).unwrap();
            assert!(Monitor::open_program(&place.region).unwrap().is_none());
            assert_eq!((place.region.path_now(), fs::read(place.at(1)).unwrap()), (place.at(1), content));
            let members = [place.join().unwrap(), place.join().unwrap()];
            assert_eq!(
                members.each_ref().map(|member| (member.path(), member.slot())),
                [(&*place.at(1), 0), (&*place.at(1), 1)]
            );
            let monitor = Monitor::open_program(&place.region).unwrap().unwrap();
            assert_eq!((monitor.path(), monitor.processes().len(), place.files()), (&*place.at(1), 2, 1));
            members.into_iter().for_each(Member::leave);
        }
    }
}

#[test]
fn a_file_in_which_a_process_lives_is_refused_and_stays() {
    for trust in [Trust::OwnerOnly, Trust::AllUsers] {
        for content in unusable() {
            let place = Place::new(trust);
            let mut member = Puppet::start();
            assert_eq!(member.ask(&place.order()), place.at(1).display().to_string());
            fs::write(place.at(1), &content).unwrap();
            let refusal = place.join().unwrap_err();
            let expected = Member::join(&place.at(1), trust, &[]).unwrap_err();
            assert_eq!(refusal.to_string(), expected.to_string());
            assert!(Monitor::open_program(&place.region).is_err());
            assert_eq!((fs::read(place.at(1)).unwrap(), place.files()), (content, 1));
            member.kill();
            let later = place.join().unwrap();
            assert_eq!((later.path(), place.files()), (&*place.at(1), 1));
            later.leave();
        }
    }
}

#[test]
fn a_file_that_a_user_may_not_remove_takes_one_name_and_the_next_one_stays_the_region() {
    if !has_users() {
        return;
    }
    for (trust, owner) in [(Trust::OwnerOnly, 0), (Trust::OwnerOnly, PLANTER), (Trust::AllUsers, PLANTER)] {
        for mode in [0o644, 0o600, 0o666] {
            let place = Place::new(trust);
            place.plant(1, owner, mode);
            let first = place.has(TENANT, 2);
            let second = place.has(if trust == Trust::AllUsers { OTHER_TENANT } else { TENANT }, 2);
            if trust == Trust::AllUsers {
                // This process is root.
                assert_eq!(Monitor::open_program(&place.region).unwrap().unwrap().processes().len(), 2);
                assert_eq!(place.region.path_now(), place.at(2));
            }
            fs::remove_file(place.at(1)).unwrap();
            let third = place.has(TENANT, 2);
            drop((first, second, third));
            // An old region comes before a free name: its slice may owe GPU time.
            place.has(TENANT, 2);
            assert_eq!(place.files(), 1);
        }
    }
}

#[test]
fn a_name_of_no_regular_file_is_left_alone() {
    let place = Place::new(Trust::AllUsers);
    fs::create_dir(place.at(1)).unwrap();
    symlink(place.at(7), place.at(2)).unwrap();
    let member = place.join().unwrap();
    assert_eq!((member.path(), place.files()), (&*place.at(3), 3));
    member.leave();
}

#[test]
fn files_under_all_names_refuse_a_program() {
    if !has_users() {
        return;
    }
    for (trust, why) in [
        (Trust::AllUsers, "a region begins with \"gpuslice\""),
        (Trust::OwnerOnly, "belongs to user 12345, but must belong to user 12346 or 0"),
    ] {
        let place = Place::new(trust);
        (1..=16).for_each(|number| place.plant(number, PLANTER, 0o666));
        place.refuses(TENANT, why);
        let (_puppet, answer) = place.program(TENANT);
        assert!(answer.contains(&format!("{}: ", place.at(1).display())), "{answer}");
        fs::remove_file(place.at(16)).unwrap();
        place.has(TENANT, 16);
    }
}

/// Changes files of a region in use, as a program of the slice can.
type Attack = fn(&Place, &Path);

#[test]
fn a_program_that_damages_its_region_gives_the_slice_no_second_one() {
    if !has_users() {
        return;
    }
    let attacks: [(&str, Attack); 7] = [
        ("a region begins with", |_, path| fs::write(path, TEXT).unwrap()),
        ("a region begins with", |_, path| fs::write(path, "").unwrap()),
        ("size 77, a region of", |_, path| {
            fs::OpenOptions::new().write(true).open(path).unwrap().set_len(77).unwrap();
        }),
        ("the right to read and write it", |_, path| {
            fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        }),
        ("was removed while in use by", |_, path| fs::remove_file(path).unwrap()),
        ("was removed while in use by", |place, path| {
            fs::remove_file(path).unwrap();
            place.plant(1, TENANT, 0o666);
        }),
        ("was removed while in use by", |place, path| {
            Member::join(&place.at(3), Trust::AllUsers, &[]).unwrap().0.leave();
            fs::remove_file(path).unwrap();
        }),
    ];
    for number in [1, 2] {
        for (why, attack) in attacks {
            let place = Place::new(Trust::AllUsers);
            (1..number).for_each(|lower| place.plant(lower, PLANTER, 0o644));
            let mut first = place.has(TENANT, number);
            (1..number).for_each(|lower| fs::remove_file(place.at(lower)).unwrap());
            attack(&place, &place.at(number));
            // A program sees the mappings of its own user only.
            let user = if why.contains("removed") { TENANT } else { OTHER_TENANT };
            place.refuses(user, why);
            first.kill();
            drop(place.program(user));
        }
    }
}

#[test]
fn a_region_that_gets_another_of_its_names_is_found_there() {
    let place = Place::new(Trust::AllUsers);
    let mut first = Puppet::start();
    assert_eq!(first.ask(&place.order()), place.at(1).display().to_string());
    fs::rename(place.at(1), place.at(9)).unwrap();
    let second = place.join().unwrap();
    assert_eq!((second.path(), second.slot()), (&*place.at(9), 1));
    second.leave();
}

#[test]
fn another_region_under_a_name_takes_no_program_from_its_slice() {
    if !has_users() {
        return;
    }
    for number in [1, 3] {
        let place = Place::new(Trust::AllUsers);
        place.plant(1, PLANTER, 0o644);
        let first = place.has(TENANT, 2);
        let _none_at_1 = fs::remove_file(place.at(1));
        // A region without processes.
        Member::join(&place.at(number), Trust::AllUsers, &[]).unwrap().0.leave();
        let second = place.has(OTHER_TENANT, 2);
        let mut planter = Puppet::joined(&place.at(number), 1);
        place.refuses(TENANT, "two regions would give the slice its limits twice");
        planter.kill();
        place.has(TENANT, 2);
        drop((first, second));
    }
}

#[test]
fn a_program_that_has_chosen_a_second_file_gives_it_back() {
    if !has_users() {
        return;
    }
    let place = Place::new(Trust::AllUsers);
    place.plant(1, PLANTER, 0o644);
    let _first = place.has(TENANT, 2);
    fs::remove_file(place.at(1)).unwrap();
    Member::join(&place.at(1), Trust::AllUsers, &[]).unwrap().0.leave();
    // The program sees a lock at the first name and waits for it.
    let mut joining = Puppet::start();
    assert_eq!(joining.ask(&format!("lock {}", place.at(1).display())), "locked");
    let mut second = Puppet::start();
    second.tell(&place.order());
    let maps = || fs::read_to_string(format!("/proc/{}/maps", second.pid())).unwrap();
    let begun = Instant::now();
    while !maps().contains(&format!("{}\n", place.at(1).display())) {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not look at the first name");
        thread::yield_now();
    }
    joining.kill();
    assert_eq!(second.hear(), place.at(2).display().to_string());
}

#[test]
fn programs_that_start_at_once_have_one_region() {
    if !has_users() {
        return;
    }
    // The programs replace their own file, and not that of the other user.
    for (trust, owner) in
        [(Trust::AllUsers, PLANTER), (Trust::AllUsers, TENANT), (Trust::OwnerOnly, TENANT)].repeat(12)
    {
        let place = Place::new(trust);
        place.plant(1, owner, 0o644);
        let mut programs: Vec<Puppet> = (0..6).map(|_| Puppet::start()).collect();
        for puppet in &mut programs {
            assert_eq!(puppet.ask(&format!("user {TENANT}")), "changed");
        }
        for (index, puppet) in programs.iter_mut().enumerate() {
            puppet.tell(&place.order());
            if index == 2 && owner == PLANTER {
                fs::remove_file(place.at(1)).unwrap();
            }
        }
        let mut paths: Vec<String> = programs.iter_mut().map(Puppet::hear).collect();
        paths.dedup();
        assert!(paths.len() == 1 && paths[0].starts_with('/'), "{paths:?}");
    }
}
