//! The state of this process, and how it joins its slice.
//!
//! The process joins its slice as soon as the driver is initialised. A child that it forks has to join again. The state that
//! belongs to one process lives on a page that the kernel empties at a fork.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::bypass;
use crate::compute::Compute;
use crate::memory::state::Memory;
use crate::os::messages;
use crate::os::reentrancy::{catch_panic, without_cancellation};
use crate::slice::devices::{self, FoundDevice};
use crate::slice::enforcement::{Stage, refuse, stage};
use crate::slice::handle::Slice;
use crate::slice::settings;
use core::cell::Cell;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use gpuslice_policy::config::LogLevel;
use gpuslice_region::Member;
use once_cell::race::OnceNonZeroUsize;
use parking_lot::Mutex;
use std::num::NonZeroUsize;

/// The state of a process that is a member of a slice. Made once per process and never ended.
#[derive(Debug)]
pub(crate) struct Process {
    memory: &'static Memory,
    /// GPU time that this process uses.
    pub(crate) compute: Compute,
}

impl Process {
    fn new(member: Member, found: &[FoundDevice]) -> Self {
        let memory: &'static Memory = Box::leak(Box::new(Memory::new(Slice::new(member, found))));
        let of_this_process = || joined().map(|process| process.compute.usage());
        Self { memory, compute: Compute::new(memory, of_this_process) }
    }
}

impl Deref for Process {
    type Target = Memory;

    #[inline]
    fn deref(&self) -> &Memory {
        self.memory
    }
}

/// Whether the library enforces limits in this process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Enforcement {
    /// No limit was set, or the driver is not initialised: the library forwards calls unchanged.
    Off,
    /// The process is a member of a slice.
    Active(&'static Process),
    /// A limit was set that the library cannot enforce.
    Failed,
}

/// State that belongs to one process and not to its forked children. It is valid when it is all zeroes, as a child finds it.
struct Own {
    process: AtomicPtr<Process>,
    joining: Mutex<()>,
}

/// Returns whether the library enforces limits in this process, and joins its slice if the driver has been initialised. Cheap
/// once the process has joined.
#[inline]
pub(crate) fn enforcement() -> Enforcement {
    // Relaxed: the settings themselves are published by `SETTINGS`.
    match stage() {
        Stage::FREE => Enforcement::Off,
        Stage::LIMITED => member().map_or_else(join, Enforcement::Active),
        Stage::REFUSED => Enforcement::Failed,
        _ => {
            settings::read_settings();
            enforcement_now()
        }
    }
}

#[cold]
fn enforcement_now() -> Enforcement {
    match stage() {
        Stage::LIMITED => member().map_or_else(join, Enforcement::Active),
        Stage::REFUSED => Enforcement::Failed,
        _ => Enforcement::Off,
    }
}

#[inline]
fn member() -> Option<&'static Process> {
    let own = own()?;
    // Acquire: pairs with the store in `join`.
    let process = own.process.load(Ordering::Acquire);
    // SAFETY: `as_ref` requires null or a valid pointer. `join_now` stores only a leaked `Process`.
    unsafe { process.as_ref() }
}

/// Returns the state of this process if it has joined its slice. Never joins.
pub(crate) fn joined() -> Option<&'static Process> {
    if stage() == Stage::LIMITED { member() } else { None }
}

/// Makes the process a member of its slice, if the driver is initialised.
///
/// The library allocates while it holds the lock on joining. If the program's allocator calls the driver then, that call goes to
/// the driver as it is.
#[cold]
fn join() -> Enforcement {
    std::thread_local! {
        static IS_JOINING: Cell<bool> = const { Cell::new(false) };
    }
    if IS_JOINING.replace(true) {
        return Enforcement::Off;
    }
    let joined = without_cancellation(|| catch_panic(join_now)).unwrap_or(Enforcement::Failed);
    IS_JOINING.set(false);
    joined
}

fn join_now() -> Enforcement {
    let (Some(settings), Some(own)) = (settings::known(), own()) else {
        // Without a page of its own the process has refused all GPU work.
        return if stage() == Stage::REFUSED { Enforcement::Failed } else { Enforcement::Off };
    };
    let _one_at_a_time = own.joining.lock();
    if let Some(process) = member() {
        return Enforcement::Active(process);
    }
    if stage() == Stage::REFUSED {
        return Enforcement::Failed;
    }
    let mut found = match devices::find() {
        None => return Enforcement::Off,
        Some(Ok(found)) => found,
        Some(Err(unknown)) => {
            refuse(&unknown);
            return Enforcement::Failed;
        }
    };
    if let Some(hidden) = bypass::hidden() {
        refuse(&hidden);
        return Enforcement::Failed;
    }
    if settings.config.counts_on_bus()
        && let Err(unknown) = devices::number_by_bus(&mut found)
    {
        refuse(&unknown);
        return Enforcement::Failed;
    }
    let uuids: Vec<_> = found.iter().map(|device| device.uuid).collect();
    let ambiguous = settings.config.ambiguous(&uuids);
    if !ambiguous.is_empty() {
        ambiguous.iter().for_each(|malformed| refuse(malformed));
        return Enforcement::Failed;
    }
    let asked = devices::limits(&found, &settings.config);
    let (member, differences) = match Member::join_program(&settings.region, &asked) {
        Ok(joined) => joined,
        Err(error) => {
            refuse(&format_args!("gpuslice: {error}. GPU work is refused."));
            return Enforcement::Failed;
        }
    };
    for difference in differences {
        messages::say(LogLevel::Warn, &devices::Disagreement(difference));
    }
    let process = Box::leak(Box::new(Process::new(member, &found)));
    // Release: pairs with the load in `member`.
    own.process.store(ptr::from_mut(process), Ordering::Release);
    Enforcement::Active(process)
}

/// Returns the page of this process; `None` if the kernel gave none.
#[inline]
fn own() -> Option<&'static Own> {
    static PAGE: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let page = PAGE.get().or_else(|| Some(PAGE.get_or_init(|| map_page().unwrap_or(NonZeroUsize::MIN))))?;
    if page == NonZeroUsize::MIN {
        return None;
    }
    // SAFETY: `as_ref` requires a valid `Own`. The page is this library's own and never unmapped, and all zeroes is a valid
    // `Own`.
    unsafe { ptr::with_exposed_provenance::<Own>(page.get()).as_ref() }
}

/// Maps a page that a forked child finds empty, whichever call forked the child.
#[cold]
fn map_page() -> Option<NonZeroUsize> {
    const SIZE: usize = 4096;
    const { assert!(size_of::<Own>() <= SIZE) };
    // SAFETY: `mmap` without `MAP_FIXED` touches no existing mapping: the kernel chooses the address.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    // SAFETY: `madvise` requires a mapped range: the page that `mmap` returned. If it fails, nothing uses the page.
    if page == libc::MAP_FAILED || unsafe { libc::madvise(page, SIZE, libc::MADV_WIPEONFORK) } != 0 {
        refuse(
            &"gpuslice: the kernel gives no page that is emptied at a fork (Linux 4.14 has it). GPU work is refused.",
        );
        return None;
    }
    NonZeroUsize::new(page.expose_provenance())
}
