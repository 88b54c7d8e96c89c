//! The file that the processes of one slice share, and how they change it without waiting for each other.
//!
//! A *region* is one file of fixed size. Every process of a slice maps it, and monitors map it too. It holds these
//! facts:
//!
//! - the limits of the slice;
//! - one slot for each living process;
//! - the bytes that each process holds on each device;
//! - the instant up to which the slice's GPU time is paid.
//!
//! `gpuslice_policy` has the arithmetic of the compute ledger as pure functions, where tests run it in virtual time.
//!
//! Folders, lowest first. A module imports from its own folder and from folders earlier in this list. No files import each other
//! in a circle. `tests/repository/dependencies` checks both.
//!
//! 1. `sync`: atomic words, clocks, and ways to wait.
//! 2. `layout`: the words of the region file and their offsets.
//! 3. `slots`: the processes of a slice, and the proof that each is alive.
//! 4. `memory`: the memory ledger.
//! 5. `compute`: the compute ledger.
//! 6. `file`: finding, opening, mapping and locking the region file.
//! 7. `handle`: [`Member`], [`Monitor`], [`Reader`] and [`Region`].
//! 8. `arbiter_lease`: the election of the process that divides a GPU among slices.
//! 9. `interval_locks`: busy intervals that slices of different directories tell each other.
//! 10. `models`, `properties`: tests of the ledgers, with loom and with random sequences.
//!
//! The four handles differ in their rights:
//!
//! - [`Member`] has a slot: it reserves memory and GPU time, and gives them back.
//! - [`Monitor`] has no slot. It reads figures, sets limits and reaps.
//! - [`Reader`] reads figures without the right to write.
//! - [`Region`] has the functions that a member and a monitor share.
//!
//! A reservation that is granted at once makes no system call. Other functions may make system calls and change
//! `errno`; a preload library saves `errno` around them. No function panics, whatever other processes write into the
//! region.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
#![cfg_attr(loom, allow(dead_code, reason = "the models use no file, and so not all of the words"))]

#[cfg(not(loom))]
mod arbiter_lease;
mod compute;
#[cfg(not(loom))]
mod file;
#[cfg(not(loom))]
mod handle;
#[cfg(not(loom))]
mod interval_locks;
pub mod layout;
mod memory;
mod slots;
mod sync;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod properties;

pub use compute::{
    history::RecentUsage, intervals::INTERVAL_SLOTS, reclaim::TimeUsed, sampler_lease::SamplerLease,
};
pub use memory::{
    leaving::LEAVING,
    ledger::{Refusal, RefusalReason},
};
pub use slots::identity::{FIRST_PID_NAMESPACE, own_pid_namespace};
pub use slots::roster::Reaped;

#[cfg(not(loom))]
pub use {
    arbiter_lease::ArbiterLeases,
    file::{
        detached::{Detached, detached},
        error::RegionError,
        map::{Trust, make},
        names, operator,
        probe::probe_path,
        regular::{Opened, open_found},
        sigbus_forwarding,
        space::file_space,
    },
    handle::{
        calls::Calls,
        change_limits::LimitsChange,
        cotenant::{Cotenant, allocate_gpu},
        device::{Device, Uuid},
        join::{DeviceRequest, Difference},
        limits::{Limits, Sharing},
        member::{Member, SharedUse},
        monitor::Monitor,
        reader::{DeviceFigures, Reader},
        region::{DeviceView, ProcessView, Region},
        region_time::{Origin, ProcessActivity},
        remove::{Removal, remove_for_good, remove_if_unused, remove_if_unused_now},
    },
    interval_locks::IntervalLocks,
    sync::{
        backoff::{Backoff, RESERVING},
        clock::now,
        pause::pause,
    },
};
