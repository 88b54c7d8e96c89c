//! Handles of a region: [`Member`](member::Member) takes part, [`Monitor`](monitor::Monitor) watches and sets limits, and
//! [`Reader`](reader::Reader) reads. A [`Cotenant`](cotenant::Cotenant) is a slice in the division of GPUs.

pub(crate) mod calls;
pub(crate) mod change_limits;
pub(crate) mod cotenant;
pub(crate) mod device;
pub(crate) mod join;
pub(crate) mod limits;
pub(crate) mod member;
pub(crate) mod member_time;
pub(crate) mod monitor;
pub(crate) mod reader;
pub(crate) mod region;
pub(crate) mod region_time;
pub(crate) mod remove;
pub(crate) mod reserve_env;
