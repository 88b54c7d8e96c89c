//! Functions of streams and events. They include waits.

use gpuslice_driver::types::*;

use super::Streams;
use super::methods::methods;
use super::submit::StreamArgument;
use crate::call::DriverCall;
use crate::engine::{Completion, EventStatus, Target};
use crate::model::objects::{handle, pointer};
use crate::model::streams::{DISABLE_TIMING, INTERPROCESS, NON_BLOCKING};
use crate::process::thread_state;
use crate::status::{Outcome, statuses};

/// All flags of events.
const EVENT_FLAGS: u32 = 7;

impl DriverCall {
    fn create_stream(&self, to: *mut CUstream, flags: u32, priority: i32) -> Outcome {
        if to.is_null() || flags & !NON_BLOCKING != 0 {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let context = objects.current()?.0;
        let stream = objects.make_stream(simulation, context, flags, priority.clamp(-5, 0))?;
        self.write(to, pointer(stream))
    }

    fn destroy_stream(&self, stream: CUstream) -> Outcome {
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let stream = handle(stream);
        if let Some((capture, _)) = objects.capture_of(stream)? {
            objects.leave_capture(capture);
        }
        objects.end_stream(simulation, stream)
    }

    fn synchronize_stream(&self, on: StreamArgument) -> Outcome {
        let simulation = self.simulation()?;
        let (stream, place) = self.stream(on)?;
        {
            let mut objects = simulation.objects();
            objects.refuse_capturing(stream)?;
            objects.refuse_implicit(stream)?;
        }
        simulation.wait(place.device, Target::Stream(place.id));
        simulation.objects().release_pools(simulation, Some(place.device), None);
        Ok(())
    }

    fn query_stream(&self, on: StreamArgument) -> Outcome {
        let simulation = self.simulation()?;
        let (stream, place) = self.stream(on)?;
        simulation.objects().refuse_capturing(stream)?;
        match simulation.completion(place.device, Target::Stream(place.id)) {
            Completion::Done => Ok(()),
            _ => Err(statuses::NOT_READY),
        }
    }

    fn synchronize_context(&self, context: CUcontext) -> Outcome {
        let simulation = self.simulation()?;
        let (handle, device) = {
            let mut objects = simulation.objects();
            objects.unsafe_call()?;
            objects.context(handle(context)).map(|(handle, context)| (handle, context.device))?
        };
        simulation.wait_for_context(handle)?;
        simulation.objects().release_pools(simulation, Some(device), None);
        Ok(())
    }

    fn copy_stream_attributes(&self, to: CUstream, from: CUstream) -> Outcome {
        self.stream(StreamArgument::legacy(to))?;
        self.stream(StreamArgument::legacy(from)).map(|_| ())
    }

    fn stream_context(&self, on: StreamArgument, to: *mut CUcontext) -> Outcome {
        let (stream, _) = self.stream(on)?;
        let mut objects = self.simulation()?.objects();
        let (context, green) =
            objects.streams.streams.get(stream).map(|stream| (stream.context, stream.green))?;
        // A stream of a green context shows the green context's handle as long as the green context exists.
        let view = green.and_then(|green| objects.green_view(green).ok());
        self.write(to, pointer(view.unwrap_or(context)))
    }

    fn stream_device(&self, on: StreamArgument, to: *mut CUdevice) -> Outcome {
        let (_, place) = self.stream(on)?;
        self.write(to, self.simulation()?.ordinal(place.device))
    }

    fn stream_flags(&self, on: StreamArgument, to: *mut c_uint) -> Outcome {
        let (stream, _) = self.stream(on)?;
        let flags = self.simulation()?.objects().streams.streams.get(stream)?.flags;
        self.write(to, flags)
    }

    fn stream_priority(&self, on: StreamArgument, to: *mut c_int) -> Outcome {
        let (stream, _) = self.stream(on)?;
        let priority = self.simulation()?.objects().streams.streams.get(stream)?.priority;
        self.write(to, priority)
    }

    fn stream_id(&self, on: StreamArgument, to: *mut c_ulonglong) -> Outcome {
        let (stream, _) = self.stream(on)?;
        let number = self.simulation()?.objects().streams.streams.get(stream)?.number;
        self.write(to, number)
    }

    /// Reads an attribute of a stream. No attribute has an effect here, so all are 0.
    fn get_attribute(&self, on: StreamArgument, to: *mut CUstreamAttrValue) -> Outcome {
        self.stream(on)?;
        self.write(to.cast::<[u8; 64]>(), [0; 64])
    }

    fn set_attribute(&self, on: StreamArgument) -> Outcome {
        self.stream(on).map(|_| ())
    }

    fn write_value(&self, on: StreamArgument, address: CUdeviceptr, value: u64, bytes: u64) -> Outcome {
        use crate::model::graphs::Op;
        use crate::model::movement::{Movement, Side};
        let bytes_of = value.to_le_bytes();
        let from = Side::Host(bytes_of.as_ptr().expose_provenance() as u64);
        let movement = Movement::run(Side::Device(address), from, bytes);
        self.stream(on)?;
        // The value is on this stack, so its bytes must move before the function returns, even in a capture.
        let simulation = self.simulation()?;
        movement.prepare(&simulation.objects(), simulation)?.perform();
        self.submit(on, &Op::Empty, super::submit::Wait::No)
    }
}

const _: () = assert!(size_of::<CUstreamAttrValue>() == 64);

impl Streams for DriverCall {
    methods! { self;
        cuStreamCreate(ph_stream: *mut CUstream, flags: c_uint) => self.create_stream(ph_stream, flags, 0);
        cuStreamCreateWithPriority(ph_stream: *mut CUstream, flags: c_uint, priority: c_int) =>
            self.create_stream(ph_stream, flags, priority);
        cuGreenCtxStreamCreate(ph_stream: *mut CUstream, green_ctx: CUgreenCtx, flags: c_uint, priority: c_int) =>
            self.green_stream(ph_stream, green_ctx, flags, priority);
        cuStreamDestroy(h_stream: CUstream) => self.destroy_stream(h_stream);
        cuStreamDestroy_v2(h_stream: CUstream) => self.destroy_stream(h_stream);

        cuStreamSynchronize(h_stream: CUstream) => self.synchronize_stream(StreamArgument::legacy(h_stream));
        cuStreamSynchronize_ptsz(h_stream: CUstream) => self.synchronize_stream(StreamArgument::per_thread(h_stream));
        cuStreamQuery(h_stream: CUstream) => self.query_stream(StreamArgument::legacy(h_stream));
        cuStreamQuery_ptsz(h_stream: CUstream) => self.query_stream(StreamArgument::per_thread(h_stream));
        cuCtxSynchronize() => self.synchronize_context(core::ptr::null_mut());
        cuCtxSynchronize_v2(ctx: CUcontext) => self.synchronize_context(ctx);

        cuStreamWaitEvent(h_stream: CUstream, h_event: CUevent, _flags: c_uint) =>
            self.wait_event(StreamArgument::legacy(h_stream), h_event);
        cuStreamWaitEvent_ptsz(h_stream: CUstream, h_event: CUevent, _flags: c_uint) =>
            self.wait_event(StreamArgument::per_thread(h_stream), h_event);

        cuStreamCopyAttributes(dst_stream: CUstream, src_stream: CUstream) =>
            self.copy_stream_attributes(dst_stream, src_stream);
        cuStreamCopyAttributes_ptsz(dst: CUstream, src: CUstream) => self.copy_stream_attributes(dst, src);
        cuStreamGetAttribute(h_stream: CUstream, _attr: c_uint, value: *mut CUstreamAttrValue) =>
            self.get_attribute(StreamArgument::legacy(h_stream), value);
        cuStreamGetAttribute_ptsz(h_stream: CUstream, _attr: c_uint, value_out: *mut CUstreamAttrValue) =>
            self.get_attribute(StreamArgument::per_thread(h_stream), value_out);
        cuStreamSetAttribute(h_stream: CUstream, _attr: c_uint, _param: *const CUstreamAttrValue) =>
            self.set_attribute(StreamArgument::legacy(h_stream));
        cuStreamSetAttribute_ptsz(h_stream: CUstream, _attr: c_uint, _value: *const CUstreamAttrValue) =>
            self.set_attribute(StreamArgument::per_thread(h_stream));
        cuStreamGetCtx(h_stream: CUstream, pctx: *mut CUcontext) => self.stream_context(StreamArgument::legacy(h_stream), pctx);
        cuStreamGetCtx_ptsz(h_stream: CUstream, pctx: *mut CUcontext) =>
            self.stream_context(StreamArgument::per_thread(h_stream), pctx);
        cuStreamGetCtx_v2(h_stream: CUstream, p_ctx: *mut CUcontext, p_green_ctx: *mut CUgreenCtx) => {
            self.offer(p_green_ctx, core::ptr::null_mut());
            self.stream_context(StreamArgument::legacy(h_stream), p_ctx)
        };
        cuStreamGetCtx_v2_ptsz(h_stream: CUstream, p_ctx: *mut CUcontext, p_green_ctx: *mut CUgreenCtx) => {
            self.offer(p_green_ctx, core::ptr::null_mut());
            self.stream_context(StreamArgument::per_thread(h_stream), p_ctx)
        };
        cuStreamGetDevice(h_stream: CUstream, device: *mut CUdevice) =>
            self.stream_device(StreamArgument::legacy(h_stream), device);
        cuStreamGetDevice_ptsz(h_stream: CUstream, device: *mut CUdevice) =>
            self.stream_device(StreamArgument::per_thread(h_stream), device);
        cuStreamGetFlags(h_stream: CUstream, flags: *mut c_uint) => self.stream_flags(StreamArgument::legacy(h_stream), flags);
        cuStreamGetFlags_ptsz(h_stream: CUstream, flags: *mut c_uint) =>
            self.stream_flags(StreamArgument::per_thread(h_stream), flags);
        cuStreamGetPriority(h_stream: CUstream, priority: *mut c_int) =>
            self.stream_priority(StreamArgument::legacy(h_stream), priority);
        cuStreamGetPriority_ptsz(h_stream: CUstream, priority: *mut c_int) =>
            self.stream_priority(StreamArgument::per_thread(h_stream), priority);
        cuStreamGetId(h_stream: CUstream, stream_id: *mut c_ulonglong) =>
            self.stream_id(StreamArgument::legacy(h_stream), stream_id);
        cuStreamGetId_ptsz(h_stream: CUstream, stream_id: *mut c_ulonglong) =>
            self.stream_id(StreamArgument::per_thread(h_stream), stream_id);

        cuEventCreate(ph_event: *mut CUevent, flags: c_uint) => {
            if ph_event.is_null() || flags & !EVENT_FLAGS != 0 {
                return Err(status::INVALID_VALUE);
            }
            if flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0 {
                return Err(status::INVALID_VALUE);
            }
            let simulation = self.simulation()?;
            let event = simulation.objects().make_event(simulation, flags)?;
            self.write(ph_event, pointer(event))
        };
        cuEventDestroy(h_event: CUevent) => self.destroy_event(h_event);
        cuEventDestroy_v2(h_event: CUevent) => self.destroy_event(h_event);
        cuEventRecord(h_event: CUevent, h_stream: CUstream) => self.record(h_event, StreamArgument::legacy(h_stream));
        cuEventRecord_ptsz(h_event: CUevent, h_stream: CUstream) => self.record(h_event, StreamArgument::per_thread(h_stream));
        cuEventRecordWithFlags(h_event: CUevent, h_stream: CUstream, _flags: c_uint) =>
            self.record(h_event, StreamArgument::legacy(h_stream));
        cuEventRecordWithFlags_ptsz(h_event: CUevent, h_stream: CUstream, _flags: c_uint) =>
            self.record(h_event, StreamArgument::per_thread(h_stream));
        cuEventQuery(h_event: CUevent) => {
            let (device, id) = self.event(h_event)?;
            let simulation = self.simulation()?;
            let (now, mut state) = (crate::os::clock::now(), simulation.shared.lock());
            crate::process::collectives::release_complete(&mut state, now);
            match state.engine(device).event_status(id, now) {
                Ok(EventStatus::Pending) => Err(statuses::NOT_READY),
                Ok(_) => Ok(()),
                Err(_) => Err(statuses::INVALID_HANDLE),
            }
        };
        cuEventSynchronize(h_event: CUevent) => {
            let (device, id) = self.event(h_event)?;
            let simulation = self.simulation()?;
            simulation.wait(device, Target::Event(id));
            simulation.objects().release_pools(simulation, Some(device), None);
            Ok(())
        };
        cuEventElapsedTime(p_milliseconds: *mut f32, h_start: CUevent, h_end: CUevent) =>
            self.elapsed(p_milliseconds, h_start, h_end);
        cuEventElapsedTime_v2(p_milliseconds: *mut f32, h_start: CUevent, h_end: CUevent) =>
            self.elapsed(p_milliseconds, h_start, h_end);

        cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) => {
            let wanted = self.read(mode.cast::<u32>())?;
            if wanted > 2 {
                return Err(status::INVALID_VALUE);
            }
            self.write(mode.cast::<u32>(), thread_state::exchange_capture_mode(wanted))
        };
        cuStreamBeginCapture(h_stream: CUstream) => self.begin(StreamArgument::legacy(h_stream), 0);
        cuStreamBeginCapture_ptsz(h_stream: CUstream) => self.begin(StreamArgument::per_thread(h_stream), 0);
        cuStreamBeginCapture_v2(h_stream: CUstream, mode: c_uint) => self.begin(StreamArgument::legacy(h_stream), mode);
        cuStreamBeginCapture_v2_ptsz(h_stream: CUstream, mode: c_uint) => self.begin(StreamArgument::per_thread(h_stream), mode);
        cuStreamBeginCaptureToGraph(h_stream: CUstream, h_graph: CUgraph, dependencies: *const CUgraphNode,
            _dependency_data: *const CUgraphEdgeData, num_dependencies: usize, mode: c_uint) =>
            self.begin_into(StreamArgument::legacy(h_stream), mode, h_graph, dependencies, num_dependencies);
        cuStreamBeginCaptureToGraph_ptsz(h_stream: CUstream, h_graph: CUgraph, dependencies: *const CUgraphNode,
            _dependency_data: *const CUgraphEdgeData, num_dependencies: usize, mode: c_uint) =>
            self.begin_into(StreamArgument::per_thread(h_stream), mode, h_graph, dependencies, num_dependencies);
        cuStreamEndCapture(h_stream: CUstream, ph_graph: *mut CUgraph) => self.end(StreamArgument::legacy(h_stream), ph_graph);
        cuStreamEndCapture_ptsz(h_stream: CUstream, ph_graph: *mut CUgraph) =>
            self.end(StreamArgument::per_thread(h_stream), ph_graph);
        cuStreamIsCapturing(h_stream: CUstream, capture_status: *mut CUstreamCaptureStatus) =>
            self.capturing(StreamArgument::legacy(h_stream), capture_status);
        cuStreamIsCapturing_ptsz(h_stream: CUstream, capture_status: *mut CUstreamCaptureStatus) =>
            self.capturing(StreamArgument::per_thread(h_stream), capture_status);
        cuStreamGetCaptureInfo(h_stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut u64) =>
            self.capture_info(StreamArgument::legacy(h_stream), capture_status_out, id_out).map(|_| ());
        cuStreamGetCaptureInfo_ptsz(h_stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus,
            id_out: *mut u64) =>
            self.capture_info(StreamArgument::per_thread(h_stream), capture_status_out, id_out).map(|_| ());
        cuStreamGetCaptureInfo_v2(h_stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut u64,
            graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode, num_dependencies_out: *mut usize) =>
            self.capture_details(StreamArgument::legacy(h_stream), capture_status_out, id_out, graph_out, dependencies_out,
                num_dependencies_out);
        cuStreamGetCaptureInfo_v2_ptsz(h_stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus,
            id_out: *mut u64, graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode,
            num_dependencies_out: *mut usize) =>
            self.capture_details(StreamArgument::per_thread(h_stream), capture_status_out, id_out, graph_out, dependencies_out,
                num_dependencies_out);
        cuStreamGetCaptureInfo_v3(h_stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut u64,
            graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode,
            edge_data_out: *mut *const CUgraphEdgeData, num_dependencies_out: *mut usize) => {
            self.offer(edge_data_out, core::ptr::null());
            self.capture_details(StreamArgument::legacy(h_stream), capture_status_out, id_out, graph_out, dependencies_out,
                num_dependencies_out)
        };
        cuStreamGetCaptureInfo_v3_ptsz(h_stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus,
            id_out: *mut u64, graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode,
            edge_data_out: *mut *const CUgraphEdgeData, num_dependencies_out: *mut usize) => {
            self.offer(edge_data_out, core::ptr::null());
            self.capture_details(StreamArgument::per_thread(h_stream), capture_status_out, id_out, graph_out, dependencies_out,
                num_dependencies_out)
        };
        cuStreamUpdateCaptureDependencies(h_stream: CUstream, dependencies: *mut CUgraphNode, num_dependencies: usize,
            flags: c_uint) =>
            self.update_dependencies(StreamArgument::legacy(h_stream), dependencies, num_dependencies, flags);
        cuStreamUpdateCaptureDependencies_ptsz(h_stream: CUstream, dependencies: *mut CUgraphNode,
            num_dependencies: usize, flags: c_uint) =>
            self.update_dependencies(StreamArgument::per_thread(h_stream), dependencies, num_dependencies, flags);
        cuStreamUpdateCaptureDependencies_v2(h_stream: CUstream, dependencies: *mut CUgraphNode,
            _dependency_data: *const CUgraphEdgeData, num_dependencies: usize, flags: c_uint) =>
            self.update_dependencies(StreamArgument::legacy(h_stream), dependencies, num_dependencies, flags);
        cuStreamUpdateCaptureDependencies_v2_ptsz(h_stream: CUstream, dependencies: *mut CUgraphNode,
            _dependency_data: *const CUgraphEdgeData, num_dependencies: usize, flags: c_uint) =>
            self.update_dependencies(StreamArgument::per_thread(h_stream), dependencies, num_dependencies, flags);

        cuStreamWriteValue32(stream: CUstream, addr: CUdeviceptr, value: c_uint, _flags: c_uint) =>
            self.write_value(StreamArgument::legacy(stream), addr, u64::from(value), 4);
        cuStreamWriteValue32_ptsz(stream: CUstream, addr: CUdeviceptr, value: c_uint, _flags: c_uint) =>
            self.write_value(StreamArgument::per_thread(stream), addr, u64::from(value), 4);
        cuStreamWriteValue32_v2(stream: CUstream, addr: CUdeviceptr, value: c_uint, _flags: c_uint) =>
            self.write_value(StreamArgument::legacy(stream), addr, u64::from(value), 4);
        cuStreamWriteValue32_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: c_uint, _flags: c_uint) =>
            self.write_value(StreamArgument::per_thread(stream), addr, u64::from(value), 4);
        cuStreamWriteValue64(stream: CUstream, addr: CUdeviceptr, value: u64, _flags: c_uint) =>
            self.write_value(StreamArgument::legacy(stream), addr, value, 8);
        cuStreamWriteValue64_ptsz(stream: CUstream, addr: CUdeviceptr, value: u64, _flags: c_uint) =>
            self.write_value(StreamArgument::per_thread(stream), addr, value, 8);
        cuStreamWriteValue64_v2(stream: CUstream, addr: CUdeviceptr, value: u64, _flags: c_uint) =>
            self.write_value(StreamArgument::legacy(stream), addr, value, 8);
        cuStreamWriteValue64_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: u64, _flags: c_uint) =>
            self.write_value(StreamArgument::per_thread(stream), addr, value, 8);
        cuFlushGPUDirectRDMAWrites(_target: c_uint, _scope: c_uint) => self.simulation().map(|_| ());
    }
}
