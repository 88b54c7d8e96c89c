//! Streams and events.

use std::collections::HashMap;

use super::captures::Membership;
use super::objects::{Objects, Tag};
use crate::engine::{EventId, StreamId};

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The stream's context.
    pub(crate) context: u64,
    /// The stream's place in the engine.
    pub(crate) place: StreamPlace,
    /// The stream's creation flags.
    pub(crate) flags: u32,
    /// The stream's creation priority.
    pub(crate) priority: i32,
    /// The stream's number, never reused.
    pub(crate) number: u64,
    /// True if it is the context's legacy default stream.
    pub(crate) legacy: bool,
    /// The green context in which it was made.
    pub(crate) green: Option<u64>,
    /// The stream's part in a capture.
    pub(crate) capture: Option<Membership>,
}

/// Flag of streams that do not synchronise with the legacy default stream.
pub(crate) const NON_BLOCKING: u32 = 1;

/// Flag of events without time.
pub(crate) const DISABLE_TIMING: u32 = 2;
/// Flag of events that other processes can open.
pub(crate) const INTERPROCESS: u32 = 4;

/// A stream of an engine.
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
    /// The event's part in a capture, if it was recorded in one.
    pub(crate) captured: Option<Membership>,
}

/// All streams and events.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) streams: Objects<Stream>,
    pub(crate) events: Objects<Event>,
    /// The per-thread default streams by context and thread.
    pub(crate) per_thread: HashMap<(u64, i32), u64>,
    /// The legacy default streams by context.
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
