//! Elects the process that divides a GPU among slices, by one lease for each GPU.
//!
//! The leases lie in a small file beside the regions. All processes of one user map it if their slices divide GPUs. A lease
//! is one word with its holder and the time of its last renewal. Processes change it by compare-and-swap:
//! [`claim_lease`](gpuslice_policy::arbiter::grant_word::claim_lease). A holder that dies or is stopped loses its lease, so
//! no process has to return it.
//!
//! The file is made as regions are: complete, without a name, and then linked. It lies in a directory where other users may
//! create files, so a process uses only a file of its own user. If another user has taken its name, the process uses the
//! next numbered name. A truncated file elects no process, and `file::sigbus_guard` keeps the processes alive.

use core::ptr::NonNull;
use std::{
    fs::{File, Metadata},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
    ptr,
};

use gpuslice_policy::arbiter::grant_word;
use gpuslice_policy::time::Monotonic;

use crate::{
    file::{
        error::RegionError,
        folders,
        map::{self, FileId},
        regular::Rights,
        sigbus_guard, space,
    },
    handle::device::Uuid,
    slots::identity,
    sync::atomics::Word64,
};

/// The first eight bytes of the file, read as a little-endian number.
const LEASE_MAGIC: u64 = u64::from_le_bytes(*b"gpuchair");
/// The version of the file's layout.
const LEASE_VERSION: u64 = 1;
/// GPUs that may have an arbiter at the same time; a MIG instance is a GPU of its own.
const ENTRIES: usize = 128;
/// Bytes of the file.
const LEASE_BYTES: usize = 4096;
/// Number of times that a process opens a file that another process removes meanwhile. After these it gives up.
const LEASE_OPENINGS: u32 = 4;

/// Layout of the file.
#[derive(Debug)]
#[repr(C)]
struct LeaseTable {
    magic: Word64,
    version: Word64,
    entries: [LeaseEntry; ENTRIES],
}

/// The lease of one GPU.
#[derive(Debug)]
#[repr(C)]
struct LeaseEntry {
    /// Identifies the GPU; 0: no GPU has had the entry.
    gpu: Word64,
    /// Holder of the lease, and when it was renewed.
    holder: Word64,
}

const _: () = assert!(size_of::<LeaseTable>() <= LEASE_BYTES);

/// The arbiter leases of a directory, in the view of one process.
#[derive(Debug)]
pub struct ArbiterLeases {
    table: NonNull<LeaseTable>,
    path: PathBuf,
    id: FileId,
    me: u64,
}

// SAFETY: the pointer leads to a `LeaseTable`, which consists of atomics. It stays mapped until the drop, for all
// threads.
unsafe impl Send for ArbiterLeases {}
// SAFETY: shared references to the atomics of a `LeaseTable` may be used by all threads at the same time.
unsafe impl Sync for ArbiterLeases {}

impl Drop for ArbiterLeases {
    fn drop(&mut self) {
        sigbus_guard::forget(self.table.cast());
        // SAFETY: `ArbiterLeases::map` mapped these `LEASE_BYTES` bytes. References into them borrow `self`, so none outlives
        // this drop.
        unsafe { libc::munmap(self.table.as_ptr().cast(), LEASE_BYTES) };
    }
}

impl ArbiterLeases {
    /// Opens the leases for regions in `folder`, an absolute path. Makes them if there are none.
    ///
    /// # Errors
    /// [`RegionError::NotArbiterLeases`] or [`RegionError::NotAFile`] if another object has their path.
    /// [`RegionError::System`] if the file can be neither opened nor made.
    pub fn open(folder: &Path) -> Result<Self, RegionError> {
        // SAFETY: `geteuid` has no arguments and cannot fail.
        let user = unsafe { libc::geteuid() };
        let path =
            folders::numbered(&folder.join(format!(".gpuslice-arbiter-{user}")), |owner| owner == user);
        for _ in 0..LEASE_OPENINGS {
            match map::open_file(&path, Rights::Write)? {
                Some(file) => return Self::check(file, path, user),
                None => create(&path)?,
            }
        }
        Err(RegionError::Replaced { path })
    }

    /// Checks owner, size and version of an opened file, and maps it.
    fn check(file: File, path: PathBuf, user: u32) -> Result<Self, RegionError> {
        let found = file.metadata().map_err(map::system(&path, "look at it"))?;
        let mut start = [0_u8; 16];
        let _read = file.read_at(&mut start, 0).map_err(map::system(&path, "read it"))?;
        let wrong = match () {
            () if found.uid() != user => Some("belongs to another user"),
            () if usize::try_from(found.len()) != Ok(LEASE_BYTES) => Some("has another size"),
            () if start.split_at(8) != (&LEASE_MAGIC.to_ne_bytes(), &LEASE_VERSION.to_ne_bytes()) => {
                Some("is of another kind or version")
            }
            () => None,
        };
        match wrong {
            Some(wrong) => Err(RegionError::NotArbiterLeases { path, wrong }),
            None => Self::map(&file, &found).map_err(map::system(&path, "map it")).map(|table| Self {
                table,
                id: map::id_of(&found),
                me: me(),
                path,
            }),
        }
    }

    /// Maps a checked file, with protection against truncation.
    fn map(file: &File, _checked: &Metadata) -> io::Result<NonNull<LeaseTable>> {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: without `MAP_FIXED` the kernel chooses a free address, so the mapping replaces no other.
        let start = unsafe { libc::mmap(ptr::null_mut(), LEASE_BYTES, rights, kind, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start).ok_or(io::ErrorKind::AddrNotAvailable)?;
        if !sigbus_guard::protect(start, LEASE_BYTES) {
            // SAFETY: `munmap` needs a mapping without users: the code above has just made it, and no other code knows its
            // address.
            unsafe { libc::munmap(start.as_ptr(), LEASE_BYTES) };
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(start.cast())
    }

    /// Tells whether the path still leads to this file, so that other processes find it.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.table().magic.get() == LEASE_MAGIC
            && self.path.symlink_metadata().is_ok_and(|found| map::id_of(&found) == self.id)
    }

    /// Takes or renews the lease of a GPU. Returns whether this process has it. The holder renews it within
    /// [`ARBITER_SILENCE`](grant_word::ARBITER_SILENCE). `now` is the monotonic clock, in nanoseconds.
    ///
    /// Holder and time share one word, so a compare-and-swap cannot take a lease that was renewed meanwhile. A holder that
    /// was suspended for longer may find another process in its place. Both may then have divided the GPU in between. The
    /// rates that they write hold until the next round.
    #[must_use]
    pub fn renew(&self, gpu: &Uuid, now: Monotonic) -> bool {
        let Some(entry) = self.entry(gpu).or_else(|| self.take_entry(gpu, now)) else { return false };
        let before = entry.holder.get();
        grant_word::claim_lease(before, self.me, now).is_some_and(|mine| entry.holder.replace(before, mine))
    }

    /// Gives up the lease of a GPU, if this process has it.
    pub fn release(&self, gpu: &Uuid) {
        let Some(entry) = self.entry(gpu) else { return };
        let before = entry.holder.get();
        if grant_word::is_held_by(before, self.me) {
            let _lost = entry.holder.replace(before, 0);
        }
    }

    /// Returns the entry of a GPU. `None`: the GPU has no entry, or the file was truncated. If it has several entries, all
    /// processes find the same one.
    fn entry(&self, gpu: &Uuid) -> Option<&LeaseEntry> {
        let (table, wanted) = (self.table(), key(gpu));
        table
            .entries
            .iter()
            .find(|entry| entry.gpu.get() == wanted)
            .filter(|_| table.magic.get() == LEASE_MAGIC)
    }

    /// Takes an entry for a GPU that has none: an unused entry, else the entry whose lease has been free for longest.
    /// Example: a MIG instance that is made again has another UUID, and the old UUID keeps its entry.
    ///
    /// Another process may take another entry for the same GPU at the same time. Both then use the first of the two. A GPU
    /// that loses its entry takes another entry when it has work again. `None`: all leases are held, or another GPU got the
    /// entry.
    fn take_entry(&self, gpu: &Uuid, now: Monotonic) -> Option<&LeaseEntry> {
        if self.table().magic.get() != LEASE_MAGIC {
            return None;
        }
        let free = self.table().entries.iter().filter_map(|entry| {
            let of = entry.gpu.get();
            Some((of, grant_word::free_since(entry.holder.get(), now)?, entry))
        });
        let (of, _, entry) = free.min_by_key(|(of, since, _)| (*of != 0, *since))?;
        let _lost = entry.gpu.replace(of, key(gpu));
        self.entry(gpu)
    }

    /// Returns the mapped table.
    fn table(&self) -> &LeaseTable {
        // SAFETY: the memory is page-aligned, `LEASE_BYTES` bytes long, and mapped until `self` is dropped. `LeaseTable`
        // consists of atomics, for which every bit pattern is valid and which other processes may write at any time.
        unsafe { self.table.as_ref() }
    }
}

/// Makes an empty table at `path`. Succeeds if another process has made one meanwhile.
fn create(path: &Path) -> Result<(), RegionError> {
    let file = map::unnamed(path)?;
    let fill = || {
        // A limit on file sizes and a full disk would each send a signal. These two calls return an error instead.
        map::may_have_size(LEASE_BYTES)?;
        space::take_space(&file, 0..LEASE_BYTES)?;
        file.write_all_at(&LEASE_MAGIC.to_ne_bytes(), 0)?;
        file.write_all_at(&LEASE_VERSION.to_ne_bytes(), 8)
    };
    fill().map_err(map::system(path, "make it"))?;
    match map::link(&file, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(map::system(path, "name it")(error))
        }
        _ => Ok(()),
    }
}

/// Returns a number that identifies this process, also among processes of other namespaces. The probability that two
/// processes have the same number is negligible.
fn me() -> u64 {
    let who = identity::own_identity();
    mixed(mixed(u64::from(who.pid) ^ who.start.rotate_left(32)) ^ who.pid_namespace)
}

/// Returns a number that identifies a GPU, not 0.
fn key(gpu: &Uuid) -> u64 {
    let number = u128::from_le_bytes(gpu.0);
    let [low, high] = [0, 64].map(|shift| u64::try_from(number >> shift & u128::from(u64::MAX)).unwrap_or(0));
    mixed(mixed(low).wrapping_add(high)).max(1)
}

/// Mixes a number by splitmix64, so that every bit of the result depends on every bit of the input.
fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test")]
mod tests {
    use super::*;
    use gpuslice_policy::arbiter::grant_word::ARBITER_SILENCE;
    use gpuslice_policy::time::literals::ns;
    use std::{fs, os::unix::fs::symlink};

    const NOW: Monotonic = Monotonic::from_nanos(1 << 50);
    const GPU: Uuid = Uuid([0x11; 16]);

    /// Returns the leases of a directory, in the view of a process with this number.
    fn of(folder: &Path, me: u64) -> ArbiterLeases {
        let mut leases = open(folder).unwrap();
        leases.me = me;
        leases
    }

    fn open(folder: &Path) -> Result<ArbiterLeases, RegionError> {
        ArbiterLeases::open(folder)
    }

    fn file(folder: &Path) -> PathBuf {
        // SAFETY: the call has no arguments and cannot fail.
        folder.join(format!(".gpuslice-arbiter-{}", unsafe { libc::geteuid() }))
    }

    fn wrong(folder: &Path) -> String {
        ArbiterLeases::open(folder).unwrap_err().to_string()
    }

    #[test]
    fn one_process_holds_a_lease_until_it_gives_it_back_or_is_silent() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let (one, other) = (of(folder.path(), 1), of(folder.path(), 2));
        assert!(one.renew(&GPU, NOW));
        assert!(!other.renew(&GPU, NOW + ARBITER_SILENCE.part(2)));
        assert!(one.renew(&GPU, NOW + ARBITER_SILENCE.part(2)));
        other.release(&GPU);
        assert!(!other.renew(&GPU, NOW + ARBITER_SILENCE), "no process gives back the lease of another");
        one.release(&GPU);
        assert!(other.renew(&GPU, NOW + ARBITER_SILENCE));
        assert!(
            one.renew(&GPU, NOW + 2 * ARBITER_SILENCE + ns(1 << 20)),
            "the other one is dead or stands still"
        );
        assert!(!other.renew(&GPU, NOW + 2 * ARBITER_SILENCE + ns(1 << 20)));
    }

    #[test]
    fn every_gpu_has_a_lease_of_its_own_and_a_new_one_gets_that_of_a_gpu_without_work() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let (one, other) = (of(folder.path(), 1), of(folder.path(), 2));
        let gpu = |number: usize| Uuid([u8::try_from(number).unwrap(); 16]);
        assert!((0..ENTRIES).step_by(2).all(|number| one.renew(&gpu(number), NOW)));
        assert!((0..ENTRIES).all(|number| other.renew(&gpu(number), NOW) == (number % 2 == 1)));
        assert!(!one.renew(&gpu(ENTRIES), NOW), "there is no room");
        let later = NOW + ARBITER_SILENCE;
        one.release(&gpu(ENTRIES));
        let mut renewed = (1..ENTRIES).map(|number| [&one, &other][number % 2].renew(&gpu(number), later));
        assert!(renewed.all(|is_renewed| is_renewed));
        assert!(one.renew(&gpu(ENTRIES), later) && !other.renew(&gpu(ENTRIES), later));
        assert!(!one.renew(&gpu(0), later), "its lease is that of the new GPU");
        other.release(&gpu(5));
        assert!(other.renew(&gpu(0), later) && !one.renew(&gpu(5), later));
    }

    #[test]
    fn a_gpu_that_has_two_entries_has_one_lease() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let (one, other) = (of(folder.path(), 1), of(folder.path(), 2));
        assert!(one.renew(&GPU, NOW));
        // Another process has taken an entry at the same time.
        one.table().entries[1].gpu.set(key(&GPU));
        assert!(!other.renew(&GPU, NOW) && one.renew(&GPU, NOW));
    }

    #[test]
    fn a_file_that_is_no_table_of_leases_is_left_alone() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = file(folder.path());
        let precious = folder.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, &path).unwrap();
        assert!(wrong(folder.path()).contains("a symbolic link"));
        fs::remove_file(&path).unwrap();
        for content in [Vec::new(), b"precious".to_vec(), vec![b'x'; LEASE_BYTES]] {
            fs::write(&path, &content).unwrap();
            assert!(wrong(folder.path()).contains("so no arbiter can be elected there"));
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(wrong(folder.path()).contains("a directory"));
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
    }

    #[test]
    fn a_table_of_another_user_is_not_believed() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        drop(open(folder.path()).unwrap());
        if std::os::unix::fs::chown(file(folder.path()), Some(12345), None).is_err() {
            eprintln!("SKIP files of other users; to mend it: run the tests as root");
            return;
        }
        let (one, other) = (of(folder.path(), 1), of(folder.path(), 2));
        assert!(one.renew(&GPU, NOW) && !other.renew(&GPU, NOW), "one table for both, of another name");
        fs::remove_file(file(folder.path())).unwrap();
        let third = of(folder.path(), 3);
        assert!(one.is_current() && !third.renew(&GPU, NOW), "the table that the others use");
    }

    #[test]
    fn a_shortened_table_ends_no_process_and_elects_none() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let one = of(folder.path(), 1);
        assert!(one.renew(&GPU, NOW) && one.is_current());
        fs::OpenOptions::new().write(true).open(file(folder.path())).unwrap().set_len(0).unwrap();
        assert!(!one.renew(&GPU, NOW + ns(1)));
        one.release(&GPU);
        assert!(!one.is_current());
        assert!(wrong(folder.path()).contains("has another size"));
    }

    #[test]
    fn a_table_that_was_removed_is_not_the_one_that_others_find() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let one = of(folder.path(), 1);
        fs::remove_file(file(folder.path())).unwrap();
        assert!(!one.is_current());
        let other = of(folder.path(), 2);
        assert!(!one.is_current() && other.is_current());
    }
}
