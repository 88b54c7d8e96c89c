//! Captures: turns the calls on a stream into nodes of a graph, in place of work.

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::thread_state;
use crate::model::captures::{Capture, Membership, mode};
use crate::model::graphs::{Graph, Op};
use crate::model::streams::{NON_BLOCKING, Stream};
use crate::os::threads;
use crate::status::{Outcome, statuses};

impl ProcessObjects {
    /// Returns the capture that a stream belongs to.
    pub(crate) fn capture_of(&self, stream: u64) -> Result<Option<(u64, &Capture)>, Status> {
        let Some(membership) = &self.streams.streams.get(stream)?.capture else { return Ok(None) };
        Ok(Some((membership.capture, self.captures.get(&membership.capture).ok_or(statuses::UNKNOWN)?)))
    }

    /// Refuses a call that might have to wait for captured work, and makes the captures concerned invalid. The modes of the
    /// captures and of this thread decide which captures are concerned.
    pub(crate) fn unsafe_call(&mut self) -> Outcome {
        if self.captures.is_empty() {
            return Ok(());
        }
        let (own, own_mode) = (threads::number(), thread_state::capture_mode());
        let forbidden = |capture: &Capture| match own_mode {
            mode::RELAXED => false,
            mode::GLOBAL => {
                capture.mode == mode::GLOBAL || (capture.thread == own && capture.mode != mode::RELAXED)
            }
            _ => capture.thread == own && capture.mode != mode::RELAXED,
        };
        let mut spoiled = false;
        for capture in self.captures.values_mut().filter(|capture| forbidden(capture)) {
            capture.invalid = true;
            spoiled = true;
        }
        if spoiled { Err(statuses::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Refuses a wait for a stream that captures, and makes the capture invalid.
    pub(crate) fn refuse_capturing(&mut self, stream: u64) -> Outcome {
        let Some((number, _)) = self.capture_of(stream)? else { return Ok(()) };
        if let Some(capture) = self.captures.get_mut(&number) {
            capture.invalid = true;
        }
        Err(statuses::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Refuses work on a legacy default stream if it would have to wait for streams that capture. Makes their captures invalid.
    pub(crate) fn refuse_implicit(&mut self, stream: u64) -> Outcome {
        let numbers = self.implicit_captures(stream)?;
        for number in &numbers {
            if let Some(capture) = self.captures.get_mut(number) {
                capture.invalid = true;
            }
        }
        if numbers.is_empty() { Ok(()) } else { Err(statuses::STREAM_CAPTURE_IMPLICIT) }
    }

    /// Returns the captures whose streams would have to wait for work on this stream, or this work for them.
    pub(crate) fn implicit_captures(&self, stream: u64) -> Result<Vec<u64>, Status> {
        if self.captures.is_empty() || !self.streams.streams.get(stream)?.legacy {
            return Ok(Vec::new());
        }
        let context = self.streams.streams.get(stream)?.context;
        let entangled = |stream: &Stream| stream.context == context && stream.flags & NON_BLOCKING == 0;
        let streams = self.streams.streams.iter().filter(|(_, stream)| entangled(stream));
        let numbers = streams.filter_map(|(_, stream)| Some(stream.capture.as_ref()?.capture));
        let strict = |number: &u64| self.captures.get(number).is_some_and(|own| own.mode != mode::RELAXED);
        Ok(numbers.filter(strict).collect())
    }

    /// Begins a capture on a stream. `into` is an existing graph, and the nodes in it that the first captured node waits for.
    /// Without it the capture makes a new graph.
    pub(crate) fn begin_capture(&mut self, stream: u64, mode: u32, into: Option<(u64, Vec<u64>)>) -> Outcome {
        if mode > mode::RELAXED {
            return Err(status::INVALID_VALUE);
        }
        let found = self.streams.streams.get(stream)?;
        if found.legacy {
            return Err(statuses::STREAM_CAPTURE_UNSUPPORTED);
        }
        if found.capture.is_some() {
            return Err(statuses::ILLEGAL_STATE);
        }
        let borrowed = into.is_some();
        let (graph, after) = match into {
            Some(there) => there,
            None => (self.graphs.add(Graph::default()), Vec::new()),
        };
        self.captures_made += 1;
        let number = self.captures_made;
        let (origin, thread) = (stream, threads::number());
        self.captures.insert(number, Capture { graph, origin, mode, thread, invalid: false, borrowed });
        self.streams.streams.get_mut(stream)?.capture = Some(Membership { capture: number, after });
        Ok(())
    }

    /// Ends a capture, and returns its graph.
    ///
    /// An error of the capture shows only here: a call that cannot be captured made it invalid, or captured work of another
    /// stream does not lead to this stream. In both cases the capture ends, too, and a graph that the capture made is removed.
    pub(crate) fn end_capture(&mut self, stream: u64) -> Result<u64, Status> {
        let Some((number, capture)) = self.capture_of(stream)? else { return Err(statuses::ILLEGAL_STATE) };
        if capture.origin != stream {
            return Err(statuses::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != mode::RELAXED && capture.thread != threads::number() {
            return Err(statuses::STREAM_CAPTURE_WRONG_THREAD);
        }
        let (graph, invalid, borrowed) = (capture.graph, capture.invalid, capture.borrowed);
        let joined = self.is_joined(stream, graph)?;
        self.leave_capture(number);
        match (invalid, joined) {
            (false, true) => Ok(graph),
            (invalid, _) => {
                if !borrowed {
                    let _ = self.graphs.remove(graph);
                }
                let why = if invalid {
                    statuses::STREAM_CAPTURE_INVALIDATED
                } else {
                    statuses::STREAM_CAPTURE_UNJOINED
                };
                Err(why)
            }
        }
    }

    /// Returns true if all captured work of other streams is before the work of the stream on which the capture ends.
    fn is_joined(&self, stream: u64, graph: u64) -> Result<bool, Status> {
        let number = self.streams.streams.get(stream)?.capture.as_ref().map(|own| own.capture);
        let graph = self.graphs.get(graph)?;
        let own = self.streams.streams.get(stream)?.capture.as_ref().map(|own| own.after.clone());
        let reached = graph.ancestors(&own.unwrap_or_default());
        let others = self.streams.streams.iter().filter_map(|(_, other)| other.capture.as_ref());
        let mut ends = others.filter(|other| Some(other.capture) == number).flat_map(|other| &other.after);
        Ok(ends.all(|node| reached.contains(node)))
    }

    /// Ends a capture for all its streams and events.
    pub(crate) fn leave_capture(&mut self, number: u64) {
        self.captures.remove(&number);
        let of =
            |membership: &Option<Membership>| membership.as_ref().is_some_and(|own| own.capture == number);
        for (_, stream) in self.streams.streams.iter_mut() {
            if of(&stream.capture) {
                stream.capture = None;
            }
        }
        for (_, event) in self.streams.events.iter_mut() {
            if of(&event.captured) {
                event.captured = None;
            }
        }
    }

    /// Adds a call on a capturing stream to the graph as a node, and returns the node. Returns `None`
    /// if the stream does not capture.
    pub(crate) fn capture(&mut self, stream: u64, op: &Op) -> Result<Option<u64>, Status> {
        let Some((_, capture)) = self.capture_of(stream)? else { return Ok(None) };
        if capture.invalid {
            return Err(statuses::STREAM_CAPTURE_INVALIDATED);
        }
        let graph = capture.graph;
        let after = self.streams.streams.get(stream)?.capture.as_ref().map(|own| own.after.clone());
        let node =
            self.graphs.get_mut(graph)?.add(&mut self.nodes_made, op.clone(), after.unwrap_or_default());
        if let Some(own) = &mut self.streams.streams.get_mut(stream)?.capture {
            own.after = vec![node];
        }
        Ok(Some(node))
    }

    /// Returns an address for an allocation of a capturing stream, if earlier captured work has freed one that is large enough.
    pub(crate) fn captured_address(
        &self,
        stream: u64,
        size: u64,
        device: usize,
    ) -> Result<Option<u64>, Status> {
        let Some((_, capture)) = self.capture_of(stream)? else { return Ok(None) };
        let own = self.streams.streams.get(stream)?.capture.as_ref();
        let after = own.map(|own| own.after.clone()).unwrap_or_default();
        Ok(self.graphs.get(capture.graph)?.free_address(&after, size, device))
    }

    /// Records an event on a capturing stream: the event remembers the newest nodes. Returns false
    /// if the stream does not capture.
    pub(crate) fn capture_record(&mut self, stream: u64, event: u64) -> Result<bool, Status> {
        let own = self.streams.streams.get(stream)?.capture.clone();
        let captures = own.is_some();
        self.streams.events.get_mut(event)?.captured = own;
        Ok(captures)
    }

    /// Makes a stream wait for an event, if the stream captures or the event was recorded in a capture. Returns false otherwise.
    pub(crate) fn capture_wait(&mut self, stream: u64, event: u64) -> Result<bool, Status> {
        let captured = self.streams.events.get(event)?.captured.clone();
        let target = self.streams.streams.get_mut(stream)?;
        match (&mut target.capture, captured) {
            (None, None) => Ok(false),
            (Some(_), None) => Err(statuses::STREAM_CAPTURE_ISOLATION),
            (None, Some(_)) if target.legacy => Err(statuses::STREAM_CAPTURE_IMPLICIT),
            (None, Some(other)) => {
                target.capture = Some(other);
                Ok(true)
            }
            (Some(own), Some(other)) if own.capture == other.capture => {
                own.after.extend(other.after);
                own.after.sort_unstable();
                own.after.dedup();
                Ok(true)
            }
            (Some(_), Some(_)) => Err(statuses::STREAM_CAPTURE_MERGE),
        }
    }
}
