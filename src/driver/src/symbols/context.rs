//! Symbols that create, select and destroy contexts.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_context {
    ({ $next:ident $($files:ident)* } $then:tt $($rows:tt)*) => { $crate::$next! { { $($files)* } $then $($rows)*
    context_create: "A context takes device memory of its own, known only once it exists" {
        charge cuCtxCreate @2000(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) by context::create;
        charge cuCtxCreate_v2 @3020(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) by context::create;
        charge cuCtxCreate_v3 @11040(pctx: *mut CUcontext, params_array: *mut CUexecAffinityParam, num_params: c_int, flags: c_uint, dev: CUdevice) by context::create_v3;
        charge cuCtxCreate_v4 @12050(pctx: *mut CUcontext, ctx_create_params: *mut CUctxCreateParams, flags: c_uint, dev: CUdevice) by context::create_v4;
        charge cuDevicePrimaryCtxRetain @7000(pctx: *mut CUcontext, dev: CUdevice) by context::primary_retain;
        charge cuGLCtxCreate @2000(p_ctx: *mut CUcontext, flags: c_uint, device: CUdevice) by context::create;
        charge cuGLCtxCreate_v2 @3020(p_ctx: *mut CUcontext, flags: c_uint, device: CUdevice) by context::create;
        charge cuGreenCtxCreate @12040(ph_ctx: *mut CUgreenCtx, desc: CUdevResourceDesc, dev: CUdevice, flags: c_uint) by green::create;
        charge cuVDPAUCtxCreate @3010(p_ctx: *mut CUcontext, flags: c_uint, device: CUdevice, vdp_device: VdpDevice, vdp_get_proc_address: *mut VdpGetProcAddress) by context::create_vdpau;
        charge cuVDPAUCtxCreate_v2 @3020(p_ctx: *mut CUcontext, flags: c_uint, device: CUdevice, vdp_device: VdpDevice, vdp_get_proc_address: *mut VdpGetProcAddress) by context::create_vdpau;
    }
    context_current: "Decides which device a thread's next call is about" {
        watch cuCtxAttach @2000(pctx: *mut CUcontext, flags: c_uint);
        watch cuCtxFromGreenCtx @12040(p_context: *mut CUcontext, h_ctx: CUgreenCtx) by green::as_context;
        watch cuCtxPopCurrent @2000(pctx: *mut CUcontext);
        watch cuCtxPopCurrent_v2 @4000(pctx: *mut CUcontext);
        watch cuCtxPushCurrent @2000(ctx: CUcontext);
        watch cuCtxPushCurrent_v2 @4000(ctx: CUcontext);
        watch cuCtxSetCurrent @4000(ctx: CUcontext);
    }
    context_destroy: "All memory that lived in the context goes back when its last use ends" {
        release cuCtxDestroy @2000(ctx: CUcontext) by context::destroy;
        release cuCtxDestroy_v2 @4000(ctx: CUcontext) by context::destroy;
        release cuCtxDetach @2000(ctx: CUcontext) by context::detach;
        release cuDevicePrimaryCtxRelease @7000(dev: CUdevice) by context::primary_release;
        release cuDevicePrimaryCtxRelease_v2 @11000(dev: CUdevice) by context::primary_release;
        release cuDevicePrimaryCtxReset @7000(dev: CUdevice) by context::primary_reset;
        release cuDevicePrimaryCtxReset_v2 @11000(dev: CUdevice) by context::primary_reset;
        release cuGreenCtxDestroy @12040(h_ctx: CUgreenCtx) by green::destroy;
    }
    context_limit: "Heap, stack and printf buffer are backed by device memory" {
        charge cuCtxSetLimit @3010(limit: c_uint, value: usize) by limits::set;
    }
    context_query: "Reads or tunes a context; takes no memory and submits no work" {
        pass cuCtxGetApiVersion @3020(ctx: CUcontext, version: *mut c_uint);
        pass cuCtxGetCacheConfig @3020(pconfig: *mut CUfunc_cache);
        pass cuCtxGetCurrent @4000(pctx: *mut CUcontext);
        pass cuCtxGetDevResource @12040(h_ctx: CUcontext, resource: *mut CUdevResource, kind: c_uint);
        pass cuCtxGetDevice @2000(device: *mut CUdevice);
        pass cuCtxGetDevice_v2 @13000(device: *mut CUdevice, ctx: CUcontext);
        pass cuCtxGetExecAffinity @11040(p_exec_affinity: *mut CUexecAffinityParam, kind: c_uint);
        pass cuCtxGetFlags @7000(flags: *mut c_uint);
        pass cuCtxGetId @12000(ctx: CUcontext, ctx_id: *mut c_ulonglong);
        pass cuCtxGetLimit @3010(pvalue: *mut usize, limit: c_uint);
        pass cuCtxGetSharedMemConfig @4020(p_config: *mut CUsharedconfig);
        pass cuCtxGetStreamPriorityRange @5050(least_priority: *mut c_int, greatest_priority: *mut c_int);
        pass cuCtxResetPersistingL2Cache @11000();
        pass cuCtxSetCacheConfig @3020(config: c_uint);
        pass cuCtxSetFlags @12010(flags: c_uint);
        pass cuCtxSetSharedMemConfig @4020(config: c_uint);
        pass cuDevicePrimaryCtxGetState @7000(dev: CUdevice, flags: *mut c_uint, active: *mut c_int);
        pass cuDevicePrimaryCtxSetFlags @7000(dev: CUdevice, flags: c_uint);
        pass cuDevicePrimaryCtxSetFlags_v2 @11000(dev: CUdevice, flags: c_uint);
    }
    context_order: "Orders contexts by events; submits no work of its own" {
        pass cuCtxRecordEvent @12050(h_ctx: CUcontext, h_event: CUevent);
        pass cuCtxWaitEvent @12050(h_ctx: CUcontext, h_event: CUevent);
        pass cuGreenCtxRecordEvent @12040(h_ctx: CUgreenCtx, h_event: CUevent);
        pass cuGreenCtxWaitEvent @12040(h_ctx: CUgreenCtx, h_event: CUevent);
    }
    context_peer: "Opens or closes peer access; page tables only" {
        pass cuCtxDisablePeerAccess @4000(peer_context: CUcontext);
        pass cuCtxEnablePeerAccess @4000(peer_context: CUcontext, flags: c_uint);
    }
    sm_partition: "Describes a set of multiprocessors; takes no memory" {
        pass cuDevResourceGenerateDesc @12040(ph_desc: *mut CUdevResourceDesc, resources: *mut CUdevResource, nb_resources: c_uint);
        pass cuDevSmResourceSplit @13010(result: *mut CUdevResource, nb_groups: c_uint, input: *const CUdevResource, remainder: *mut CUdevResource, flags: c_uint, group_params: *mut CU_DEV_SM_RESOURCE_GROUP_PARAMS);
        pass cuDevSmResourceSplitByCount @12040(result: *mut CUdevResource, nb_groups: *mut c_uint, input: *const CUdevResource, remainder: *mut CUdevResource, flags: c_uint, min_count: c_uint);
        pass cuDeviceGetDevResource @12040(device: CUdevice, resource: *mut CUdevResource, kind: c_uint);
        pass cuGreenCtxGetDevResource @12040(h_ctx: CUgreenCtx, resource: *mut CUdevResource, kind: c_uint);
        pass cuGreenCtxGetId @12090(green_ctx: CUgreenCtx, green_ctx_id: *mut c_ulonglong);
    }
    } };
}
