//! Opens, maps and locks the shared file.

use core::ffi::CStr;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use super::layout::{ENGINE_STRIDE, ENGINES_AT, LAYOUT_VERSION, MAGIC, State};
use super::settings::Settings;
use super::sizes::{DEVICES, PROCESSES};
use crate::engine::EngineState;
use crate::os::robust_mutex::{RobustMutex, Taken};

/// The shared file, mapped into this process.
#[derive(Debug)]
pub struct Shared {
    base: NonNull<State>,
}

// SAFETY: threads use the state behind the pointer only while they hold the file's mutex, or they use atomic words.
unsafe impl Send for Shared {}
// SAFETY: threads use the state behind the pointer only while they hold the file's mutex, or they use atomic words.
unsafe impl Sync for Shared {}

/// The content of the file, for a thread that holds the file's lock. The end of this value releases the lock.
#[derive(Debug)]
pub struct Locked<'a> {
    shared: &'a Shared,
}

/// The lock of the driver's resource manager. On the whole machine, one call of one process holds it at a time.
#[derive(Debug)]
pub struct ManagerGuard<'a>(&'a RobustMutex);

impl Drop for ManagerGuard<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `munmap` needs a mapping without users: `map` made it, and a process that has joined never drops its `Shared`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), LENGTH) };
    }
}

/// Returns the path of the shared file: the value of `SIMGPU_STATE`, or the default path.
#[must_use]
pub fn default_path() -> PathBuf {
    if let Some(path) = std::env::var_os("SIMGPU_STATE").filter(|path| !path.is_empty()) {
        return path.into();
    }
    // SAFETY: `getuid` takes no pointer and has no requirement.
    let user = unsafe { libc::getuid() };
    PathBuf::from(format!("/dev/shm/simgpu-{user}"))
}

const LENGTH: usize = ENGINES_AT + DEVICES * ENGINE_STRIDE;

impl Shared {
    /// Opens the file. If there is none, or one of another version, makes a new one first.
    ///
    /// # Errors
    /// The file can be neither opened nor made.
    pub fn open(path: &Path, settings: &Settings) -> io::Result<Self> {
        for _ in 0..100 {
            match OpenOptions::new().read(true).write(true).open(path) {
                Ok(file) => match Self::accept(&file)? {
                    Some(shared) if same_file(&file, path) => return Ok(shared),
                    Some(_) => {}
                    None => discard(&file, path),
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => make(path, settings)?,
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("the state file is made anew again and again"))
    }

    /// Opens the file, if it exists.
    ///
    /// # Errors
    /// There is no such file, or it is of another version.
    pub fn open_existing(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Self::accept(&file)?.ok_or_else(|| io::Error::other("not a state file of this version"))
    }

    /// Maps a file. Returns `None` if it is of another version.
    fn accept(file: &File) -> io::Result<Option<Self>> {
        if file.metadata()?.len() != LENGTH as u64 {
            return Ok(None);
        }
        let shared = Self { base: map(file)? };
        let state = shared.base.as_ptr();
        // SAFETY: the read needs mapped memory that no process writes: the mapping covers the state, and the word is written
        // before the file gets its name.
        let magic = unsafe { (*state).magic };
        // SAFETY: the read needs mapped memory that no process writes: the mapping covers the state, and the word is written
        // before the file gets its name.
        let version = unsafe { (*state).version };
        if magic != MAGIC || version != LAYOUT_VERSION || shared.ready().load(Ordering::Acquire) != 1 {
            return Ok(None);
        }
        Ok(Some(shared))
    }

    fn ready(&self) -> &core::sync::atomic::AtomicU32 {
        // SAFETY: the reference needs memory that stays mapped: the mapping lives as long as the process. The word is atomic.
        unsafe { &(*self.base.as_ptr()).ready }
    }

    /// Takes the lock of the driver's resource manager. A thread that also needs the lock of the file takes this one first.
    #[must_use]
    pub fn lock_manager(&self) -> ManagerGuard<'_> {
        // SAFETY: the reference needs memory that stays mapped: the mapping lives as long as `self`. The mutex has interior
        // mutability.
        let manager = unsafe { &(*self.base.as_ptr()).manager };
        // The lock protects no data, so there is nothing to repair if a thread died while it held the lock.
        let _taken = manager.lock();
        ManagerGuard(manager)
    }

    fn mutex(&self) -> &RobustMutex {
        // SAFETY: the reference needs memory that stays mapped: the mapping lives as long as the process. The mutex has interior
        // mutability.
        unsafe { &(*self.base.as_ptr()).mutex }
    }

    /// Returns the faults. They are atomic words, so the caller needs no lock.
    #[must_use]
    pub fn faults(&self) -> &crate::faults::FaultTable {
        // SAFETY: the reference needs memory that stays mapped: the mapping lives as long as the process. The table is made of
        // atomics.
        unsafe { &(*self.base.as_ptr()).faults }
    }

    /// Returns the checkpoint phase of the process in a slot. It is an atomic word, so the caller needs no lock.
    #[must_use]
    pub fn phase(&self, slot: usize) -> Option<&core::sync::atomic::AtomicU32> {
        if slot >= PROCESSES {
            return None;
        }
        let state = self.base.as_ptr();
        // SAFETY: the place must lie inside the mapping: `state` is its start, and the field is part of the state.
        let first: *const super::layout::Process = unsafe { (&raw const (*state).processes).cast() };
        // SAFETY: `add` needs an index inside the array: `slot` is below `PROCESSES`.
        let process = unsafe { first.add(slot) };
        // SAFETY: the mapping lives as long as `self`, and the word is atomic.
        Some(unsafe { &(*process).phase })
    }

    /// Returns the life lock of the process in a slot.
    #[must_use]
    pub fn life_lock(&self, slot: usize) -> Option<&'static RobustMutex> {
        if slot >= PROCESSES {
            return None;
        }
        let state = self.base.as_ptr();
        // SAFETY: the place must lie inside the mapping: `state` is its start, and the field is part of the state.
        let first: *const super::layout::Process = unsafe { (&raw const (*state).processes).cast() };
        // SAFETY: `add` needs an index inside the array: `slot` is below `PROCESSES`.
        let process = unsafe { first.add(slot) };
        // SAFETY: the mapping is never unmapped, and the mutex has interior mutability.
        Some(unsafe { &(*process).life_lock })
    }

    /// Takes the lock of the file. If a process died while it held the lock, repairs the state first.
    #[must_use]
    pub fn lock(&self) -> Locked<'_> {
        let taken = self.mutex().lock();
        let mut locked = Locked { shared: self };
        if taken == Taken::Inherited {
            locked.takeovers = locked.takeovers.saturating_add(1);
            locked.repair();
            for device in 0..locked.settings.count() {
                super::device_time::repair(locked.engine(device));
            }
        }
        locked
    }
}

impl Locked<'_> {
    /// Returns the engine of a device. For a device number that is too large, it is the engine of the last device.
    pub(crate) fn engine(&mut self, device: usize) -> &mut EngineState {
        let at = ENGINES_AT + device.min(DEVICES - 1) * ENGINE_STRIDE;
        // SAFETY: the place lies inside the mapping, which has `DEVICES` of them at this distance.
        let engine = unsafe { self.shared.base.as_ptr().byte_add(at) };
        // SAFETY: the engine is aligned to 64 KiB and valid when zeroed. The lock is held, so no other reference to it exists.
        unsafe { &mut *engine.cast() }
    }

    /// Makes everything as in a new file, except the locks of the file.
    pub fn clear(&mut self, settings: &Settings) {
        let state: *mut State = &raw mut **self;
        // SAFETY: `state` points to the mapping, so the address of its field lies inside the mapping. Nothing is read.
        let start = unsafe { &raw mut (*state).settings };
        let offset = core::mem::offset_of!(State, settings);
        // SAFETY: `write_bytes` needs a range that is valid for writes: this one reaches from the settings to `ENGINES_AT`,
        // inside the mapping. All of it is valid when zeroed. The lock is held, so no other process uses it. The engines come
        // later, so that pages of them that were never used stay without memory.
        unsafe { start.cast::<u8>().write_bytes(0, ENGINES_AT - offset) };
        // SAFETY: `byte_add` needs an offset inside the mapping: `ENGINES_AT` is the offset of the engines.
        let engines = unsafe { state.byte_add(ENGINES_AT) };
        // SAFETY: `madvise` needs mapped whole pages: these are the mapping's pages from `ENGINES_AT` to its end. They
        // read as zero afterwards.
        let removed = unsafe { libc::madvise(engines.cast(), LENGTH - ENGINES_AT, libc::MADV_REMOVE) };
        if removed != 0 {
            // SAFETY: `write_bytes` needs writable bytes: these reach to the end of the mapping. Engines are valid when zeroed.
            // This is for file systems that cannot give pages back.
            unsafe { engines.cast::<u8>().write_bytes(0, LENGTH - ENGINES_AT) };
        }
        self.found(settings);
    }
}

impl State {
    /// Sets those words of a new file that are not zero.
    fn found(&mut self, settings: &Settings) {
        self.settings = *settings;
        for process in &self.processes {
            process.life_lock.init();
        }
    }
}

impl Deref for Locked<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        // SAFETY: the mapping lives as long as the process, and no other thread or process writes while the lock is held.
        unsafe { self.shared.base.as_ref() }
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: the mapping lives as long as the process, and one `Locked` exists at a time, because it holds the lock.
        unsafe { &mut *self.shared.base.as_ptr() }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.shared.mutex().unlock();
    }
}

fn map(file: &File) -> io::Result<NonNull<State>> {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
    // SAFETY: without `MAP_FIXED` the kernel chooses a free address, so the mapping replaces no other.
    let base = unsafe { libc::mmap(core::ptr::null_mut(), LENGTH, rights, flags, file.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))
}

/// Makes a complete file under a temporary name, and then gives it its own name. If another process was
/// faster, that process's file stays.
fn make(path: &Path, settings: &Settings) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.{}", std::process::id(), crate::os::clock::now()));
    let beside = PathBuf::from(beside);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&beside)?;
    let made = fill(&file, settings).and_then(|()| link(&beside, path));
    let _ = fs::remove_file(&beside);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn fill(file: &File, settings: &Settings) -> io::Result<()> {
    file.set_len(LENGTH as u64)?;
    let base = map(file)?;
    // SAFETY: no other process knows the new file, and zeroed memory is a valid state.
    let state = unsafe { &mut *base.as_ptr() };
    state.magic = MAGIC;
    state.version = LAYOUT_VERSION;
    state.mutex.init();
    state.manager.init();
    state.found(settings);
    state.ready.store(1, Ordering::Release);
    // SAFETY: `munmap` needs a mapping without users: `map` made it above, and nothing refers to it any more.
    unsafe { libc::munmap(base.as_ptr().cast(), LENGTH) };
    Ok(())
}

fn link(from: &Path, to: &Path) -> io::Result<()> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other);
    let (from, to) = (name(from)?, name(to)?);
    let (from, to): (&CStr, &CStr) = (&from, &to);
    // SAFETY: `link` needs strings that end with a zero: both are `CString`s.
    if unsafe { libc::link(from.as_ptr(), to.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns true if the path still names the opened file.
fn same_file(file: &File, path: &Path) -> bool {
    let Ok(opened) = file.metadata() else { return false };
    fs::metadata(path).is_ok_and(|named| (named.ino(), named.dev()) == (opened.ino(), opened.dev()))
}

/// Removes a file of another version, if the path still names it.
fn discard(file: &File, path: &Path) {
    if same_file(file, path) {
        let _ = fs::remove_file(path);
    }
}
