//! Elections with any content in the arbiter's file.

use gpuslice_policy::time::Monotonic;
use gpuslice_region::{ArbiterLeases, RegionError, Uuid};
use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use crate::random::Random;

/// Size of the file in bytes.
const SIZE: u64 = 4096;
/// An instant of the monotonic clock.
const NOW: Monotonic = Monotonic::from_nanos(1 << 50);

#[derive(Debug)]
pub(crate) struct Case {
    /// Words that are written before the file is opened, and while it is open.
    before: Vec<(u64, u64)>,
    after: Vec<(u64, u64)>,
    /// Length of the file before it is opened, and while it is open.
    lengths: [Option<u64>; 2],
}

impl Case {
    pub(crate) fn new(random: &mut Random) -> Self {
        // The first two words identify the file. Most cases leave them as they are.
        let place = |random: &mut Random| match random.one_in(20) {
            true => random.below(SIZE - 8),
            false => 16 + 8 * random.below(SIZE / 8 - 2),
        };
        let words =
            |random: &mut Random| (0..random.below(40)).map(|_| (place(random), random.edge())).collect();
        let length = |random: &mut Random| random.one_in(20).then(|| random.below(2 * SIZE));
        Self { before: words(random), after: words(random), lengths: [length(random), length(random)] }
    }

    pub(crate) fn run(&self, folder: &Path) {
        let folder = folder.join("arbiter_leases");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder can be made");
        assert!(ArbiterLeases::open(&folder).expect("leases can be made").renew(&gpu(0), NOW));
        let path = file_in(&folder);
        change(&path, &self.before, self.lengths[0]);
        match ArbiterLeases::open(&folder) {
            Ok(leases) => {
                use_all(&leases);
                change(&path, &self.after, self.lengths[1]);
                use_all(&leases);
            }
            Err(RegionError::NotArbiterLeases { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        // The file may be removed in any state, and an election in a new one must work.
        fs::remove_file(&path).expect("it is there");
        assert!(ArbiterLeases::open(&folder).expect("leases can be made").renew(&gpu(0), NOW));
    }
}

fn gpu(number: u8) -> Uuid {
    Uuid([number; 16])
}

fn file_in(folder: &Path) -> PathBuf {
    let mut files = fs::read_dir(folder).expect("the folder is there");
    files.next().and_then(Result::ok).expect("there is a file").path()
}

fn change(path: &Path, words: &[(u64, u64)], length: Option<u64>) {
    let file = OpenOptions::new().write(true).open(path).expect("it is there");
    for (place, word) in words {
        file.write_all_at(&word.to_ne_bytes(), *place).expect("it can be written");
    }
    if let Some(length) = length {
        file.set_len(length).expect("it can be written");
    }
}

fn use_all(leases: &ArbiterLeases) {
    for now in [Monotonic::BEGIN, NOW, Monotonic::NEVER] {
        for number in 0..=u8::MAX {
            if leases.renew(&gpu(number), now) {
                leases.release(&gpu(number));
            }
        }
    }
    let _ = leases.is_current();
}
