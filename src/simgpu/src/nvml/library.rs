//! The state that NVML reads in this process, and the number of `nvmlInit` calls.

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuslice_driver::Symbol;
use gpuslice_driver::types::Status;
use parking_lot::Mutex;

use super::statuses;
use crate::config::NvmlView;
use crate::os::messages;
use crate::state::file::{Shared, default_path};
use crate::state::settings::Settings;

/// A state that this process has opened.
#[derive(Debug)]
pub(crate) struct NvmlLibrary {
    /// The state, which all processes share.
    pub(super) shared: Shared,
    /// The view of NVML that this process gets.
    pub(super) view: NvmlView,
    path: PathBuf,
    file: Option<FileIdentity>,
    /// The file that gets a line for each call (`SIMGPU_NVML_CALLS`).
    calls: Option<File>,
    /// The file with the number of the lost GPU (`SIMGPU_NVML_LOST`).
    lost: Option<PathBuf>,
}

/// Device and inode of a file, which together identify the file.
type FileIdentity = (u64, u64);

/// The state that calls use now. Each state file that is opened gets one library, which is never freed.
static LIBRARY: AtomicPtr<NvmlLibrary> = AtomicPtr::new(core::ptr::null_mut());
static OPENING: Mutex<()> = Mutex::new(());
static USES: AtomicU32 = AtomicU32::new(0);

/// Counts a call of `nvmlInit`.
pub(super) fn use_once_more() {
    USES.fetch_add(1, Ordering::Relaxed);
}

/// Counts a call of `nvmlShutdown`.
pub(super) fn use_once_less() {
    let less = |uses: u32| Some(uses.saturating_sub(1));
    let _ = USES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Returns true if NVML is initialised. A further `nvmlInit` is only counted.
pub(super) fn is_in_use() -> bool {
    USES.load(Ordering::Relaxed) != 0
}

/// Returns the opened state, if NVML is initialised.
pub(super) fn current() -> Option<&'static NvmlLibrary> {
    if !is_in_use() {
        return None;
    }
    open().ok()
}

/// Returns the opened state. The first call opens the file. If another file has taken the file's place, a call opens that one.
pub(super) fn open() -> Result<&'static NvmlLibrary, Status> {
    if let Some(library) = opened().filter(|library| !library.replaced()) {
        return Ok(library);
    }
    let _opening = OPENING.lock();
    let before = opened();
    if let Some(library) = before.filter(|library| !library.replaced()) {
        return Ok(library);
    }
    match (NvmlLibrary::open(default_path(), |name| std::env::var(name).ok()), before) {
        (Ok(library), _) => {
            let library: &'static NvmlLibrary = Box::leak(Box::new(library));
            LIBRARY.store(core::ptr::from_ref(library).cast_mut(), Ordering::Release);
            Ok(library)
        }
        (Err(_), Some(before)) => Ok(before),
        (Err(status), None) => Err(status),
    }
}

fn opened() -> Option<&'static NvmlLibrary> {
    let library: *const NvmlLibrary = LIBRARY.load(Ordering::Acquire);
    // SAFETY: `as_ref` needs null or a valid pointer: `open` has stored a leaked library, which no thread changes.
    unsafe { library.as_ref() }
}

fn identity(path: &Path) -> Option<FileIdentity> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl NvmlLibrary {
    /// Opens a state file, and makes it if there is none. `get` returns the value of an environment variable.
    pub(super) fn open(path: PathBuf, get: impl Fn(&str) -> Option<String>) -> Result<Self, Status> {
        let asked = Cell::new(false);
        let wanted = Settings::read(|name| {
            let value = get(name);
            asked.set(asked.get() || value.is_some());
            value
        });
        let wanted = wanted.map_err(|wrong| failed(&format!("not understood: {wrong}")))?;
        let file = identity(&path);
        let shared =
            Shared::open(&path, &wanted).map_err(|error| failed(&format!("{}: {error}", path.display())))?;
        let mut state = shared.lock();
        state.reap_dead(None);
        // A monitor does not change the state. The exception: no process lives, and the monitor's
        // environment describes another machine.
        if asked.get() && !state.inhabited() && state.settings != wanted {
            state.clear(&wanted);
        }
        let view = NvmlView::read(&get);
        view.apply(&mut state);
        drop(state);
        let calls =
            get("SIMGPU_NVML_CALLS").map(|path| OpenOptions::new().create(true).append(true).open(path));
        let calls = calls.transpose().map_err(|error| failed(&format!("SIMGPU_NVML_CALLS: {error}")))?;
        let lost = get("SIMGPU_NVML_LOST").map(PathBuf::from);
        Ok(Self { shared, view, file: file.or_else(|| identity(&path)), path, calls, lost })
    }

    /// Writes a call and the calling process into the file. Several processes may use one file, so one call is one write.
    pub(super) fn write_down(&self, symbol: Symbol) {
        if let Some(mut calls) = self.calls.as_ref() {
            let line = format!("{} {}\n", std::process::id(), symbol.name());
            let _full = calls.write_all(line.as_bytes());
        }
    }

    /// Waits as long as a call takes in the resource manager, and holds the manager's lock all that time.
    pub(super) fn pass_through_manager(&self, symbol: Symbol) {
        if let Some(duration) = self.view.turn_ns(symbol, is_in_use()) {
            let _turn = self.shared.lock_manager();
            std::thread::sleep(Duration::from_nanos(duration));
        }
    }

    /// Returns the number of the GPU that has fallen off the bus, if one has.
    pub(super) fn lost(&self) -> Option<usize> {
        fs::read_to_string(self.lost.as_ref()?).ok()?.trim().parse().ok()
    }

    /// Returns true if another file has the name now. If no file has it, the old one stays in use.
    pub(super) fn replaced(&self) -> bool {
        identity(&self.path).is_some_and(|now| Some(now) != self.file)
    }
}

fn failed(why: &str) -> Status {
    messages::say(why);
    statuses::UNKNOWN
}
