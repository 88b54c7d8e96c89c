//! When does what happen on the simulated device?
//!
//! The time engine: streams, events, queues, time slices between clients, busy time, NVML samples. One
//! [`EngineState`] is one device: plain integers without pointers, valid when zeroed, made for a mapped file
//! that all processes share. Nothing in here reads a clock, sleeps or locks: the caller holds a lock that
//! works across processes, passes `now_ns` (`CLOCK_MONOTONIC`; virtual time in tests), and sleeps outside the
//! lock until the instant it was told.
//!
//! # Calls
//!
//! All are methods of [`EngineState`]. Every call with `now_ns` first moves the device to that instant, so
//! `advance` alone is needed by nobody who asks something. Instants before the device's clock count as now.
//!
//! ```text
//! fn advance(&mut self, now_ns: u64)
//! fn clock_ns(&self) -> u64
//! fn repair(&mut self, now_ns: u64)                      // the last holder of the lock died with it
//! fn config(&self) -> &Config
//! fn set_config(&mut self, config: Config, now_ns: u64)
//!
//! fn add_client(&mut self, pid: u32, now_ns: u64) -> Result<ClientId, Refused>
//! fn remove_client(&mut self, id: ClientId, now_ns: u64) -> Result<(), Gone>
//! fn legacy_stream(&self, id: ClientId) -> Result<StreamId, Gone>
//! fn add_stream(&mut self, id: ClientId, kind: StreamKind) -> Result<StreamId, Refused>
//! fn remove_stream(&mut self, id: StreamId, now_ns: u64) -> Result<(), Gone>
//! fn add_event(&mut self, id: ClientId) -> Result<EventId, Refused>
//! fn remove_event(&mut self, id: EventId) -> Result<(), Gone>
//! fn share_event(&mut self, id: EventId) -> Result<u32, Gone>
//! fn import_event(&mut self, id: ClientId, from: EventId, shared: u32) -> Result<EventId, Refused>
//!
//! fn enqueue(&mut self, id: StreamId, work: Work, now_ns: u64) -> Result<Ticket, EnqueueError>
//! fn next_host_call(&mut self, id: ClientId, now_ns: u64) -> Option<HostCall>
//! fn finish_host_call(&mut self, call: HostCall, now_ns: u64) -> Result<(), Gone>
//!
//! fn unmet(&self) -> u32
//! fn waiting(&self) -> impl Iterator<Item = Meeting>
//! fn meet(&mut self, meeting: Meeting)
//!
//! fn completion(&mut self, target: Target, now_ns: u64) -> Result<Completion, Gone>
//! fn event_status(&mut self, id: EventId, now_ns: u64) -> Result<EventStatus, Gone>
//! fn elapsed_ns(&mut self, from: EventId, to: EventId, now_ns: u64) -> Result<i64, ElapsedError>
//!
//! fn client_truth(&mut self, id: ClientId, now_ns: u64) -> Result<ClientTruth, Gone>
//! fn each_client(&mut self, now_ns: u64, give: impl FnMut(ClientTruth))
//! fn each_removed(&self, give: impl FnMut(ClientTruth))
//! fn device_truth(&mut self, now_ns: u64) -> DeviceTruth
//! fn busy_between(&self, id: Option<ClientId>, from_ns: u64, to_ns: u64) -> Option<u64>
//!
//! fn utilization(&mut self, now_ns: u64) -> DeviceSample
//! fn device_samples(&mut self, now_ns: u64, last_seen_us: u64, give: impl FnMut(DeviceSample))
//! fn process_samples(&mut self, now_ns: u64, last_seen_us: u64, give: impl FnMut(ProcessSample)) -> usize
//! ```
//!
//! # How driver calls map to them
//!
//! * A context is a client: a process with two contexts on a device has two, with one pid. A per-thread
//!   default stream is a [`StreamKind::Blocking`] stream that the caller makes at its first use.
//! * A launch enqueues and, told [`EnqueueError::WouldBlock`], sleeps until then and tries again: that is how a
//!   driver with a full queue blocks.
//! * Synchronising is a loop over `completion`: sleep until [`Completion::NotBefore`]; at
//!   [`Completion::NeedsHost`] run what `next_host_call` gives, or wait until another thread has. A query is
//!   one turn of it.
//! * `cuMemFreeAsync` enqueues [`Work::Marker`] and takes the memory back when its ticket is complete.
//! * An event of another device cannot be waited for here: enqueue [`Work::Host`] with a token of the
//!   caller's and finish it when the other device's engine says that the event is complete.
//! * A collective is [`Work::Meet`] on each of its devices. While any is [`unmet`](EngineState::unmet), the caller moves all
//!   devices to one instant, counts who is [waiting](EngineState::waiting), and lets those go on that are complete.
//! * A process without news among `process_samples` (0 given) is `NVML_ERROR_NOT_FOUND`.
//!
//! # What is modelled
//!
//! *Slices.* Clients with kernels to run take turns, [`Config::slice_ns`] each, in the order in which they
//! became runnable; who runs dry hands over at once. A kernel is interrupted at the end of a slice and goes
//! on in the next. Between two different clients the device pauses for [`Config::switch_ns`]. Alone, a client
//! is never interrupted. Copy engines know no slices.
//!
//! *Side by side.* Kernels of different streams of a client start in the order in which they became ready and
//! run at full speed beside each other while their occupancies sum up to at most 1000 and their number to
//! at most [`Config::concurrent`]. The first that does not fit holds up those after it.
//!
//! *Not modelled:* stream priorities, kernels slowing each other down by sharing caches or bandwidth, the
//! time of a launch itself, events or waits that cost device time.
#![allow(dead_code, unused_imports, reason = "an interface: the exports use what they need of it")]

mod advance;
mod clients;
mod compute;
mod config;
mod copy;
mod enqueue;
mod ids;
mod layout;
mod meet;
mod order;
mod query;
mod repair;
mod rows;
mod sample;
mod table;
mod truth;
mod write_order;

pub(crate) use config::{Config, Direction, MAX_CONCURRENT, MAX_COPY_ENGINES, WHOLE_DEVICE};
pub(crate) use ids::{
    ClientId, Completion, ElapsedError, EnqueueError, EventId, EventStatus, Gone, HostCall, Meeting, Refused,
    StreamId, StreamKind, Target, Ticket, Work,
};
pub(crate) use layout::{
    CLIENTS, ClientTruth, DEVICE_SAMPLES, DeviceSample, EVENTS, EngineState, ITEMS, PROCESS_SAMPLES,
    ProcessSample, STREAMS,
};
pub(crate) use truth::DeviceTruth;

#[cfg(test)]
mod tests;
