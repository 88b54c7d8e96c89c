//! What do the processes of one slice share, and how do they change it without waiting for each other?
//!
//! A *region* is one file of fixed size that every process of a slice maps, and that monitors map too. It says
//! which processes live (`roster`), what each of them holds on each device (`memory`), until when the slice's GPU time
//! is paid (`compute`), and the limits. The crate knows words and their owners; what the words are spent on it does not
//! know. What a word of the compute ledger becomes, the pure functions of `gpuslice_policy` say: they are that
//! arithmetic's one place, where it is tested in virtual time.
//!
//! - [`Member`] is a process's place in a slice: it reserves and gives back.
//! - [`Monitor`] reads the same figures without taking a place.
//! - [`Reader`] reads them without the right to write.
//! - [`Region`] is what both can read.
//!
//! Functions here make system calls (never on the way of a reservation that is granted at once) and may change
//! `errno`; a preload library saves it around them. None of them panics on what another process wrote.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
#![cfg_attr(loom, allow(dead_code, reason = "the models use no file, and so not all of the words"))]

mod compute;
mod debts;
mod estate;
mod history;
pub mod layout;
mod memory;
mod ring;
mod roster;
mod sampler;
mod shares;
mod sync;
mod words;

#[cfg(not(loom))]
mod bell;
#[cfg(loom)]
#[path = "models/bell.rs"]
mod bell;
#[cfg(not(loom))]
pub mod bystander;
#[cfg(not(loom))]
mod chairs;
#[cfg(not(loom))]
mod change;
#[cfg(not(loom))]
mod detached;
#[cfg(not(loom))]
mod error;
mod leaving;
#[cfg(not(loom))]
mod lock;
#[cfg(not(loom))]
mod making;
#[cfg(not(loom))]
mod map;
#[cfg(not(loom))]
mod member;
#[cfg(not(loom))]
mod monitor;
#[cfg(not(loom))]
pub mod names;
#[cfg(not(loom))]
mod numbers;
#[cfg(not(loom))]
pub mod operator;
#[cfg(not(loom))]
mod patience;
#[cfg(not(loom))]
mod pause;
#[cfg(not(loom))]
mod places;
#[cfg(not(loom))]
mod process;
#[cfg(not(loom))]
mod reader;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod removal;
#[cfg(not(loom))]
mod sharing;
#[cfg(not(loom))]
mod shortened;
#[cfg(not(loom))]
mod time;
#[cfg(not(loom))]
mod trial;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod properties;

pub use estate::TimeUsed;
pub use history::Lately;
pub use leaving::LEAVING;
pub use memory::{Refusal, Why};
pub use ring::RING_PLACES;
pub use roster::Reaped;

#[cfg(not(loom))]
pub use {
    chairs::Chairs,
    change::Change,
    detached::{Detached, detached},
    error::RegionError,
    making::Makings,
    map::{Trust, make},
    member::{DeviceRequest, Difference, Member, Use},
    monitor::Monitor,
    pause::pause,
    reader::{DeviceFigures, Reader},
    region::{Device, DeviceView, Limits, ProcessView, Region, Uuid},
    removal::{Removal, remove_for_good, remove_if_unused},
    sharing::Sharing,
    time::AtWork,
    trial::try_path,
};
