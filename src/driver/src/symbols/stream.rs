//! Symbols of streams, events and synchronisation.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_stream {
    ({ $next:ident $($files:ident)* } $then:tt $($rows:tt)*) => { $crate::$next! { { $($files)* } $then $($rows)*
    stream_life: "The library finds the measurements of a stream by its handle, which a later stream may get" {
        pass cuGreenCtxStreamCreate @12050(ph_stream: *mut CUstream, green_ctx: CUgreenCtx, flags: c_uint, priority: c_int);
        pass cuStreamCreate @2000(ph_stream: *mut CUstream, flags: c_uint);
        pass cuStreamCreateWithPriority @5050(ph_stream: *mut CUstream, flags: c_uint, priority: c_int);
        watch cuStreamDestroy @2000(h_stream: CUstream) by stream::destroy;
        watch cuStreamDestroy_v2 @4000(h_stream: CUstream) by stream::destroy;
    }
    stream_capture: "While a stream captures, its calls are recorded and nothing runs: launches ask before they are measured" {
        watch cuStreamBeginCapture @10000(h_stream: CUstream) by capture::begin;
        watch cuStreamBeginCaptureToCig @13010(h_stream: CUstream, stream_cig_capture_params: *mut CUstreamCigCaptureParams) by capture::begin_to_graphics;
        watch cuStreamBeginCaptureToCig_ptsz @13010(h_stream: CUstream, stream_cig_capture_params: *mut CUstreamCigCaptureParams) by capture::begin_to_graphics;
        watch cuStreamBeginCaptureToGraph @12030(h_stream: CUstream, h_graph: CUgraph, dependencies: *const CUgraphNode, dependency_data: *const CUgraphEdgeData, num_dependencies: usize, mode: c_uint) by capture::begin_to_graph;
        watch cuStreamBeginCaptureToGraph_ptsz @12030(h_stream: CUstream, h_graph: CUgraph, dependencies: *const CUgraphNode, dependency_data: *const CUgraphEdgeData, num_dependencies: usize, mode: c_uint) by capture::begin_to_graph;
        watch cuStreamBeginCapture_ptsz @10000(h_stream: CUstream) by capture::begin;
        watch cuStreamBeginCapture_v2 @10010(h_stream: CUstream, mode: c_uint) by capture::begin_v2;
        watch cuStreamBeginCapture_v2_ptsz @10010(h_stream: CUstream, mode: c_uint) by capture::begin_v2;
        watch cuStreamBeginRecaptureToGraph @13030(h_stream: CUstream, mode: c_uint, h_graph: CUgraph, callback_func: CUgraphRecaptureCallback, user_data: *mut c_void) by capture::begin_again;
        watch cuStreamBeginRecaptureToGraph_ptsz @13030(h_stream: CUstream, mode: c_uint, h_graph: CUgraph, callback_func: CUgraphRecaptureCallback, user_data: *mut c_void) by capture::begin_again;
        watch cuStreamEndCapture @10000(h_stream: CUstream, ph_graph: *mut CUgraph) by capture::end;
        watch cuStreamEndCaptureToCig @13010(h_stream: CUstream) by capture::end_to_graphics;
        watch cuStreamEndCaptureToCig_ptsz @13010(h_stream: CUstream) by capture::end_to_graphics;
        watch cuStreamEndCapture_ptsz @10000(h_stream: CUstream, ph_graph: *mut CUgraph) by capture::end;
        pass cuStreamGetCaptureInfo @10010(h_stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut u64);
        pass cuStreamGetCaptureInfo_ptsz @10010(h_stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut u64);
        pass cuStreamGetCaptureInfo_v2 @11030(h_stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut u64, graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode, num_dependencies_out: *mut usize);
        pass cuStreamGetCaptureInfo_v2_ptsz @11030(h_stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut u64, graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode, num_dependencies_out: *mut usize);
        pass cuStreamGetCaptureInfo_v3 @12030(h_stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut u64, graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode, edge_data_out: *mut *const CUgraphEdgeData, num_dependencies_out: *mut usize);
        pass cuStreamGetCaptureInfo_v3_ptsz @12030(h_stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut u64, graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode, edge_data_out: *mut *const CUgraphEdgeData, num_dependencies_out: *mut usize);
        pass cuStreamIsCapturing @10000(h_stream: CUstream, capture_status: *mut CUstreamCaptureStatus);
        pass cuStreamIsCapturing_ptsz @10000(h_stream: CUstream, capture_status: *mut CUstreamCaptureStatus);
        pass cuStreamUpdateCaptureDependencies @11030(h_stream: CUstream, dependencies: *mut CUgraphNode, num_dependencies: usize, flags: c_uint);
        pass cuStreamUpdateCaptureDependencies_ptsz @11030(h_stream: CUstream, dependencies: *mut CUgraphNode, num_dependencies: usize, flags: c_uint);
        pass cuStreamUpdateCaptureDependencies_v2 @12030(h_stream: CUstream, dependencies: *mut CUgraphNode, dependency_data: *const CUgraphEdgeData, num_dependencies: usize, flags: c_uint);
        pass cuStreamUpdateCaptureDependencies_v2_ptsz @12030(h_stream: CUstream, dependencies: *mut CUgraphNode, dependency_data: *const CUgraphEdgeData, num_dependencies: usize, flags: c_uint);
        pass cuThreadExchangeStreamCaptureMode @10010(mode: *mut CUstreamCaptureMode);
    }
    sync: "The caller waits here: pools may have given memory back" {
        watch cuCtxSynchronize @2000() by sync::context;
        watch cuCtxSynchronize_v2 @13000(ctx: CUcontext) by sync::context_v2;
        watch cuEventSynchronize @2000(h_event: CUevent) by sync::event;
        watch cuStreamSynchronize @2000(h_stream: CUstream) by sync::stream;
        watch cuStreamSynchronize_ptsz @7000(h_stream: CUstream) by sync::stream_per_thread;
    }
    stream_query: "Properties and order of streams" {
        pass cuStreamCopyAttributes @11000(dst_stream: CUstream, src_stream: CUstream);
        pass cuStreamCopyAttributes_ptsz @11000(dst: CUstream, src: CUstream);
        pass cuStreamGetAttribute @11000(h_stream: CUstream, attr: c_uint, value: *mut CUstreamAttrValue);
        pass cuStreamGetAttribute_ptsz @11000(h_stream: CUstream, attr: c_uint, value_out: *mut CUstreamAttrValue);
        pass cuStreamGetCtx @9020(h_stream: CUstream, pctx: *mut CUcontext);
        pass cuStreamGetCtx_ptsz @9020(h_stream: CUstream, pctx: *mut CUcontext);
        pass cuStreamGetCtx_v2 @12050(h_stream: CUstream, p_ctx: *mut CUcontext, p_green_ctx: *mut CUgreenCtx);
        pass cuStreamGetCtx_v2_ptsz @12050(h_stream: CUstream, p_ctx: *mut CUcontext, p_green_ctx: *mut CUgreenCtx);
        pass cuStreamGetDevResource @13010(h_stream: CUstream, resource: *mut CUdevResource, kind: c_uint);
        pass cuStreamGetDevResource_ptsz @13010(h_stream: CUstream, resource: *mut CUdevResource, kind: c_uint);
        pass cuStreamGetDevice @12080(h_stream: CUstream, device: *mut CUdevice);
        pass cuStreamGetDevice_ptsz @12080(h_stream: CUstream, device: *mut CUdevice);
        pass cuStreamGetFlags @5050(h_stream: CUstream, flags: *mut c_uint);
        pass cuStreamGetFlags_ptsz @7000(h_stream: CUstream, flags: *mut c_uint);
        pass cuStreamGetGreenCtx @12040(h_stream: CUstream, ph_ctx: *mut CUgreenCtx);
        pass cuStreamGetId @12000(h_stream: CUstream, stream_id: *mut c_ulonglong);
        pass cuStreamGetId_ptsz @12000(h_stream: CUstream, stream_id: *mut c_ulonglong);
        pass cuStreamGetPriority @5050(h_stream: CUstream, priority: *mut c_int);
        pass cuStreamGetPriority_ptsz @7000(h_stream: CUstream, priority: *mut c_int);
        pass cuStreamQuery @2000(h_stream: CUstream);
        pass cuStreamQuery_ptsz @7000(h_stream: CUstream);
        pass cuStreamSetAttribute @11000(h_stream: CUstream, attr: c_uint, param: *const CUstreamAttrValue);
        pass cuStreamSetAttribute_ptsz @11000(h_stream: CUstream, attr: c_uint, value: *const CUstreamAttrValue);
        watch cuStreamWaitEvent @3020(h_stream: CUstream, h_event: CUevent, flags: c_uint) by stream_waits::first_of_three;
        watch cuStreamWaitEvent_ptsz @7000(h_stream: CUstream, h_event: CUevent, flags: c_uint) by stream_waits::first_of_three_per_thread;
    }
    stream_memop: "Waits and writes of single words by the front end" {
        pass cuFlushGPUDirectRDMAWrites @11030(target: c_uint, scope: c_uint);
        watch cuStreamBatchMemOp @8000(stream: CUstream, count: c_uint, param_array: *mut CUstreamBatchMemOpParams, flags: c_uint) by stream_waits::first_of_four;
        watch cuStreamBatchMemOp_ptsz @8000(stream: CUstream, count: c_uint, param_array: *mut CUstreamBatchMemOpParams, flags: c_uint) by stream_waits::first_of_four_per_thread;
        watch cuStreamBatchMemOp_v2 @11070(stream: CUstream, count: c_uint, param_array: *mut CUstreamBatchMemOpParams, flags: c_uint) by stream_waits::first_of_four;
        watch cuStreamBatchMemOp_v2_ptsz @11070(stream: CUstream, count: c_uint, param_array: *mut CUstreamBatchMemOpParams, flags: c_uint) by stream_waits::first_of_four_per_thread;
        watch cuStreamWaitValue32 @8000(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) by stream_waits::first_of_four;
        watch cuStreamWaitValue32_ptsz @8000(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) by stream_waits::first_of_four_per_thread;
        watch cuStreamWaitValue32_v2 @11070(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) by stream_waits::first_of_four;
        watch cuStreamWaitValue32_v2_ptsz @11070(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) by stream_waits::first_of_four_per_thread;
        watch cuStreamWaitValue64 @9000(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) by stream_waits::first_of_four;
        watch cuStreamWaitValue64_ptsz @9000(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) by stream_waits::first_of_four_per_thread;
        watch cuStreamWaitValue64_v2 @11070(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) by stream_waits::first_of_four;
        watch cuStreamWaitValue64_v2_ptsz @11070(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) by stream_waits::first_of_four_per_thread;
        pass cuStreamWriteValue32 @8000(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint);
        pass cuStreamWriteValue32_ptsz @8000(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint);
        pass cuStreamWriteValue32_v2 @11070(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint);
        pass cuStreamWriteValue32_v2_ptsz @11070(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint);
        pass cuStreamWriteValue64 @9000(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint);
        pass cuStreamWriteValue64_ptsz @9000(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint);
        pass cuStreamWriteValue64_v2 @11070(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint);
        pass cuStreamWriteValue64_v2_ptsz @11070(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint);
    }
    event: "Markers in a stream" {
        pass cuEventCreate @2000(ph_event: *mut CUevent, flags: c_uint);
        pass cuEventDestroy @2000(h_event: CUevent);
        pass cuEventDestroy_v2 @4000(h_event: CUevent);
        pass cuEventElapsedTime @2000(p_milliseconds: *mut f32, h_start: CUevent, h_end: CUevent);
        pass cuEventElapsedTime_v2 @12080(p_milliseconds: *mut f32, h_start: CUevent, h_end: CUevent);
        pass cuEventQuery @2000(h_event: CUevent);
        pass cuEventRecord @2000(h_event: CUevent, h_stream: CUstream);
        pass cuEventRecordWithFlags @11010(h_event: CUevent, h_stream: CUstream, flags: c_uint);
        pass cuEventRecordWithFlags_ptsz @11010(h_event: CUevent, h_stream: CUstream, flags: c_uint);
        pass cuEventRecord_ptsz @7000(h_event: CUevent, h_stream: CUstream);
    }
    } };
}
