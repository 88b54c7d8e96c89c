//! Streams and events.

use std::collections::HashMap;

use super::captures::Membership;
use super::objects::{Objects, Tag};
use crate::engine::{EventId, StreamId};

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The context it lives in.
    pub(crate) context: u64,
    /// Where it is.
    pub(crate) place: StreamPlace,
    /// Flags it was made with.
    pub(crate) flags: u32,
    /// Priority it was made with.
    pub(crate) priority: i32,
    /// Its number, never used twice.
    pub(crate) number: u64,
    /// Whether it is the context's legacy default stream.
    pub(crate) legacy: bool,
    /// The green context that it was made in.
    pub(crate) green: Option<u64>,
    /// The capture it takes part in.
    pub(crate) capture: Option<Membership>,
}

/// Flag of streams that the legacy default stream does not know of.
pub(crate) const NON_BLOCKING: u32 = 1;

/// Flag of events that carry no time.
pub(crate) const DISABLE_TIMING: u32 = 2;
/// Flag of events that other processes can open.
pub(crate) const INTERPROCESS: u32 = 4;

/// A stream as the time of its device knows it.
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
    /// Set while it speaks of a point in a capture.
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
