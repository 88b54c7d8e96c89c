//! The time engine: streams, events, queues, time slices between clients, busy time, and NVML samples of one device.
//!
//! One [`EngineState`] is one device. It consists of plain integers without pointers, and is valid when zeroed. It lies in a
//! mapped file that all processes share. No function here reads a clock, sleeps or locks. The caller holds a lock that works
//! across processes, and passes `now_ns`, an instant of `CLOCK_MONOTONIC`. Tests pass virtual time. If a function returns a later
//! instant, the caller releases the lock and sleeps until then.
//!
//! Every call with `now_ns` first advances the device to that instant. If the instant is before the
//! device's clock, the clock stays.
//!
//! # Driver calls
//!
//! * A context is a client. A process with two contexts on a device has two clients with one PID. A per-thread default
//!   stream is a [`StreamKind::Blocking`] stream, which the caller makes at its first use.
//! * A launch enqueues work. At [`EnqueueError::WouldBlock`] the caller sleeps until the instant in the error and tries
//!   again, like a driver with a full queue.
//! * Synchronisation is a loop over `completion`. At [`Completion::NotBefore`] the caller sleeps. At
//!   [`Completion::NeedsHost`] it runs the function of `next_host_call`, or waits until another thread has run it. A
//!   query is one round of this loop.
//! * `cuMemFreeAsync` enqueues [`Work::Marker`], and takes the memory back when the ticket is complete.
//! * A stream cannot wait here for an event of another device. So the caller enqueues [`Work::Host`] with a token, and
//!   finishes it when the event is complete in the engine of the other device.
//! * A collective is [`Work::Collective`] on each of its devices. While any kernel is [`unmet`](EngineState::unmet), the
//!   caller advances all devices to one instant and counts the [waiting](EngineState::waiting) kernels. It
//!   [releases](EngineState::release_collective) complete collectives.
//! * If `process_samples` passes on no sample, NVML returns `NVML_ERROR_NOT_FOUND`.
//!
//! # The model
//!
//! *Slices.* Clients with kernels to run take turns of [`DeviceConfig::slice_ns`], in the order of their rows. A
//! [runlist](https://developer.nvidia.com/docs/drive/drive-os/archives/6.0.4/linux/sdk/common/topics/graphics_content/RunlistInterleaveFrequency40.html)
//! has such an order. If a client has no kernel to run, the next client gets the device at once. A kernel is interrupted at the
//! end of a slice, and continues in the next one. Between two clients, the device pauses for [`DeviceConfig::switch_ns`]. A
//! client without competitors is never interrupted. Copy engines have no slices.
//!
//! *Overlap.* Kernels on different streams of a client start in the order in which they became ready. They run at full speed
//! beside each other while the sum of their occupancies is at most 1000, and their number is at most
//! [`DeviceConfig::concurrent`]. The first kernel that does not fit delays all kernels after it.
//!
//! *Not modelled:* stream priorities, slowdown by shared caches or bandwidth, and the time of a launch itself.
#![allow(dead_code, unused_imports, reason = "an interface: the exports use what they need of it")]

mod advance;
mod clients;
mod collectives;
mod compute;
mod config;
mod copy;
mod enqueue;
mod ids;
mod layout;
mod order;
mod query;
mod repair;
mod rows;
mod sample;
mod table;
mod truth;
mod write_order;

pub(crate) use config::{DeviceConfig, Direction, MAX_CONCURRENT, MAX_COPY_ENGINES, WHOLE_DEVICE};
pub(crate) use ids::{
    ClientId, Collective, Completion, ElapsedError, EnqueueError, EventId, EventStatus, HostCall, Refused,
    StreamId, StreamKind, Target, Ticket, UnknownId, Work,
};
pub(crate) use layout::{
    CLIENTS, ClientTruth, DEVICE_SAMPLES, DeviceSample, EVENTS, EngineState, ITEMS, PROCESS_SAMPLES,
    ProcessSample, STREAMS,
};
pub(crate) use truth::DeviceTruth;

#[cfg(test)]
mod tests;
