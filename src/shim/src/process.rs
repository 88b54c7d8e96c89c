//! The state of this process, and how it joins its slice.
//!
//! The process joins its slice as soon as the driver is initialised. A child that it forks has to join again. So the state that
//! belongs to one process is on a page that the kernel empties in the child at a fork.
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

/// The state of a process that is a member of a slice. It is made once per process and never dropped.
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

/// Tells whether the library enforces limits in this process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Enforcement {
    /// No limit was set, or the driver is not initialised: the library forwards calls unchanged.
    Off,
    /// The process is a member of a slice.
    Active(&'static Process),
    /// A limit was set that the library cannot enforce.
    Failed,
}

/// State that belongs to one process and not to its forked children. All zeroes are a valid value: a child finds the page so.
struct Own {
    process: AtomicPtr<Process>,
    joining: Mutex<()>,
}

/// Tells whether the library enforces limits in this process. Joins the slice first, if the driver is initialised and the process
/// has not joined. After that it costs a few loads.
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
/// The library allocates while it holds the lock `joining`. If the program's allocator calls the driver meanwhile, `IS_JOINING`
/// is set, and the call goes to the driver unchanged. Otherwise the thread would wait for itself.
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

/// Joins the slice under the lock `joining`, so that threads that come at once join only once.
///
/// Before `cuInit` there are no devices: the function then returns [`Enforcement::Off`], and a later call tries again. Every
/// other failure refuses GPU work for the life of the process. The checks come before the join, so a process that fails them
/// never becomes a member. The pointer to the state is stored last, when other threads may use the state.
fn join_now() -> Enforcement {
    let (Some(settings), Some(own)) = (settings::known(), own()) else {
        // If the kernel gave no page, `map_page` has refused all GPU work.
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
    // SAFETY: `as_ref` requires a valid `Own`. `map_page` made the page, nothing unmaps it, and all zeroes are a valid `Own`.
    unsafe { ptr::with_exposed_provenance::<Own>(page.get()).as_ref() }
}

/// Maps a page that a forked child finds empty. The kernel empties it, so that holds for every call that forks.
#[cold]
fn map_page() -> Option<NonZeroUsize> {
    const SIZE: usize = 4096;
    const { assert!(size_of::<Own>() <= SIZE) };
    // SAFETY: `mmap` requires that it replaces no mapping in use: without `MAP_FIXED` the kernel chooses a free range.
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
