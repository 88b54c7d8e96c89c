//! Begins, describes and ends captures.

use core::cell::RefCell;

use gpuslice_driver::types::*;

use super::submit::StreamArgument;
use crate::call::DriverCall;
use crate::model::objects::{handle, pointer};
use crate::status::{Outcome, statuses};

/// `CUstreamCaptureStatus`.
mod capturing {
    pub(super) const NONE: u32 = 0;
    pub(super) const ACTIVE: u32 = 1;
    pub(super) const INVALIDATED: u32 = 2;
}

thread_local! {
    /// Dependencies in the answer to the last query about a capture. The caller reads them in place.
    static DEPENDENCIES: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl DriverCall {
    pub(super) fn begin(&self, on: StreamArgument, mode: u32) -> Outcome {
        let (stream, _) = self.stream(on)?;
        self.simulation()?.objects().begin_capture(stream, mode, None)
    }

    pub(super) fn begin_into(
        &self,
        on: StreamArgument,
        mode: u32,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
    ) -> Outcome {
        let (stream, _) = self.stream(on)?;
        let after = self.handles(dependencies, count)?;
        let mut objects = self.simulation()?.objects();
        objects.graphs.get(handle(graph))?;
        objects.begin_capture(stream, mode, Some((handle(graph), after)))
    }

    pub(super) fn end(&self, on: StreamArgument, to: *mut CUgraph) -> Outcome {
        let (stream, _) = self.stream(on)?;
        let ended = self.simulation()?.objects().end_capture(stream);
        self.offer(to, pointer(ended.unwrap_or(0)));
        ended.map(|_| ())
    }

    /// Returns the handles of the nodes in a list of the caller.
    pub(super) fn handles(&self, from: *const CUgraphNode, count: usize) -> Result<Vec<u64>, Status> {
        (0..count).map(|index| self.read_at(from, index).map(handle)).collect()
    }

    pub(super) fn capturing(&self, on: StreamArgument, to: *mut CUstreamCaptureStatus) -> Outcome {
        let simulation = self.simulation()?;
        let (stream, _) = self.stream(on)?;
        let objects = simulation.objects();
        if !objects.implicit_captures(stream)?.is_empty() {
            return Err(statuses::STREAM_CAPTURE_IMPLICIT);
        }
        let answer = match objects.capture_of(stream)? {
            None => capturing::NONE,
            Some((_, capture)) if capture.invalid => capturing::INVALIDATED,
            Some(_) => capturing::ACTIVE,
        };
        self.write(to.cast::<u32>(), answer)
    }

    /// Writes the status and the number of a capture. If the capture is valid, returns its graph and its dependencies.
    pub(super) fn capture_info(
        &self,
        on: StreamArgument,
        to: *mut CUstreamCaptureStatus,
        id: *mut u64,
    ) -> Result<Option<(u64, Vec<u64>)>, Status> {
        self.capturing(on, to)?;
        let (stream, _) = self.stream(on)?;
        let objects = self.simulation()?.objects();
        let Some((number, capture)) = objects.capture_of(stream)? else { return Ok(None) };
        self.offer(id, number);
        let membership = objects.streams.streams.get(stream)?.capture.as_ref();
        let after = membership.map(|own| own.after.clone()).unwrap_or_default();
        Ok((!capture.invalid).then_some((capture.graph, after)))
    }

    pub(super) fn capture_details(
        &self,
        on: StreamArgument,
        to: *mut CUstreamCaptureStatus,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        count: *mut usize,
    ) -> Outcome {
        let Some((found, after)) = self.capture_info(on, to, id)? else { return Ok(()) };
        self.offer(graph, pointer(found));
        self.offer(count, after.len());
        DEPENDENCIES
            .try_with(|kept| {
                let mut kept = kept.borrow_mut();
                *kept = after.iter().filter_map(|node| usize::try_from(*node).ok()).collect();
                self.offer(dependencies, kept.as_ptr().cast());
            })
            .map_err(|_| statuses::DEINITIALIZED)
    }

    pub(super) fn update_dependencies(
        &self,
        on: StreamArgument,
        dependencies: *mut CUgraphNode,
        count: usize,
        flags: u32,
    ) -> Outcome {
        let (stream, _) = self.stream(on)?;
        let nodes = self.handles(dependencies, count)?;
        let mut objects = self.simulation()?.objects();
        let found = objects.streams.streams.get_mut(stream)?;
        let own = found.capture.as_mut().ok_or(statuses::ILLEGAL_STATE)?;
        match flags {
            0 => own.after.extend(nodes),
            1 => own.after = nodes,
            _ => return Err(status::INVALID_VALUE),
        }
        Ok(())
    }
}
