//! Streams and events.

use std::collections::HashMap;

use super::captures::Membership;
use super::objects::{Objects, Tag};
use crate::engine::{EventId, StreamId};

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The context that the stream belongs to.
    pub(crate) context: u64,
    /// Where the stream is in the engine.
    pub(crate) place: StreamPlace,
    /// The flags with which the stream was made.
    pub(crate) flags: u32,
    /// The priority with which the stream was made.
    pub(crate) priority: i32,
    /// The stream's number, never reused.
    pub(crate) number: u64,
    /// True if this is the legacy default stream of the context.
    pub(crate) legacy: bool,
    /// The green context that was current when the stream was made.
    pub(crate) green: Option<u64>,
    /// The capture that the stream belongs to, if there is one.
    pub(crate) capture: Option<Membership>,
}

/// Flag of a stream that does not synchronise with the legacy default stream.
pub(crate) const NON_BLOCKING: u32 = 1;

/// Flag of an event that measures no time.
pub(crate) const DISABLE_TIMING: u32 = 2;
/// Flag of an event that other processes can open.
pub(crate) const INTERPROCESS: u32 = 4;

/// Names a stream of the engine: its device, its client, and the stream's number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamPlace {
    pub(crate) device: usize,
    pub(crate) id: StreamId,
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: u64,
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) id: EventId,
    /// The capture in which the event was recorded, if there is one.
    pub(crate) captured: Option<Membership>,
}

/// All streams and events of this process.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) streams: Objects<Stream>,
    pub(crate) events: Objects<Event>,
    /// The per-thread default streams, by context and thread.
    pub(crate) per_thread: HashMap<(u64, i32), u64>,
    /// The legacy default streams, by context.
    pub(crate) legacy: HashMap<u64, u64>,
    pub(crate) made: u64,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self {
            streams: Objects::new(Tag::Stream),
            events: Objects::new(Tag::Event),
            per_thread: HashMap::new(),
            legacy: HashMap::new(),
            made: 0,
        }
    }
}
