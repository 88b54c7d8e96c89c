//! Functions that make, select and end contexts.

use gpuslice_driver::types::*;

use super::Contexts;
use super::methods::methods;
use crate::call::DriverCall;
use crate::model::contexts::{LIMITS, limits_cost};
use crate::model::objects::{handle, pointer};
use crate::process::thread_state;
use crate::state::layout::MemoryKind;
use crate::status::{Outcome, statuses};

/// All flags of `cuCtxCreate`.
const CONTEXT_FLAGS: u32 = 0xff;

impl DriverCall {
    fn create(&self, to: *mut CUcontext, flags: u32, device: CUdevice, version: u32) -> Outcome {
        if to.is_null() || flags & !CONTEXT_FLAGS != 0 {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        let device = simulation.device(device)?;
        let mut objects = simulation.objects();
        let mut context = objects.make_context(simulation, device, flags, false)?;
        context.version = version;
        let made = objects.contexts.add(context);
        if let Err(why) = objects.load_libraries(simulation, made) {
            objects.end_context(simulation, made)?;
            return Err(why);
        }
        thread_state::push(made);
        self.write(to, pointer(made))
    }

    fn destroy(&self, context: CUcontext) -> Outcome {
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let context = handle(context);
        if objects.contexts.get(context).map_err(|_| status::INVALID_CONTEXT)?.primary {
            return Err(status::INVALID_CONTEXT);
        }
        objects.end_context(simulation, context)?;
        if thread_state::current() == context {
            thread_state::pop();
        }
        Ok(())
    }

    fn primary_release(&self, device: CUdevice) -> Outcome {
        let simulation = self.simulation()?;
        simulation.device(device)?;
        simulation.objects().release_primary(simulation, device)
    }

    fn primary_reset(&self, device: CUdevice) -> Outcome {
        let simulation = self.simulation()?;
        simulation.device(device)?;
        let mut objects = simulation.objects();
        let handle = objects.primary(device)?.handle;
        // Callers that have retained the context must still release it.
        let _ = objects.end_context(simulation, handle);
        Ok(())
    }

    fn primary_flags(&self, device: CUdevice, flags: u32) -> Outcome {
        let simulation = self.simulation()?;
        simulation.device(device)?;
        if flags & !CONTEXT_FLAGS != 0 {
            return Err(status::INVALID_VALUE);
        }
        let mut objects = simulation.objects();
        objects.primary(device)?.flags = flags;
        let handle = objects.primary(device)?.handle;
        if let Ok(context) = objects.contexts.get_mut(handle) {
            context.flags = flags;
        }
        Ok(())
    }

    fn pop(&self, to: *mut CUcontext) -> Outcome {
        if thread_state::current() == 0 {
            return Err(status::INVALID_CONTEXT);
        }
        self.offer(to, pointer(thread_state::pop()));
        Ok(())
    }

    fn push(&self, context: CUcontext) -> Outcome {
        self.simulation()?.objects().can_be_current(handle(context))?;
        if thread_state::push(handle(context)) { Ok(()) } else { Err(status::INVALID_VALUE) }
    }
}

impl Contexts for DriverCall {
    methods! { self;
        cuGLCtxCreate(p_ctx: *mut CUcontext, flags: c_uint, device: CUdevice) =>
            self.create(p_ctx, flags, device, 3010);
        cuGLCtxCreate_v2(p_ctx: *mut CUcontext, flags: c_uint, device: CUdevice) =>
            self.create(p_ctx, flags, device, 3020);
        cuVDPAUCtxCreate(p_ctx: *mut CUcontext, flags: c_uint, device: CUdevice, _vdp_device: VdpDevice,
            _vdp_get_proc_address: *mut VdpGetProcAddress) => self.create(p_ctx, flags, device, 3010);
        cuVDPAUCtxCreate_v2(p_ctx: *mut CUcontext, flags: c_uint, device: CUdevice, _vdp_device: VdpDevice,
            _vdp_get_proc_address: *mut VdpGetProcAddress) => self.create(p_ctx, flags, device, 3020);

        cuDeviceGetDevResource(device: CUdevice, resource: *mut CUdevResource, kind: c_uint) =>
            self.device_resource(device, resource, kind);
        cuCtxGetDevResource(h_ctx: CUcontext, resource: *mut CUdevResource, kind: c_uint) =>
            self.context_resource(h_ctx, resource, kind);
        cuGreenCtxGetDevResource(h_ctx: CUgreenCtx, resource: *mut CUdevResource, kind: c_uint) =>
            self.green_resource(h_ctx, resource, kind);
        cuDevSmResourceSplitByCount(result: *mut CUdevResource, nb_groups: *mut c_uint, input: *const CUdevResource,
            remainder: *mut CUdevResource, flags: c_uint, min_count: c_uint) =>
            self.split_by_count(result, nb_groups, input, remainder, flags, min_count);
        cuDevResourceGenerateDesc(ph_desc: *mut CUdevResourceDesc, resources: *mut CUdevResource,
            nb_resources: c_uint) => self.describe(ph_desc, resources, nb_resources);
        cuGreenCtxCreate(ph_ctx: *mut CUgreenCtx, desc: CUdevResourceDesc, dev: CUdevice, flags: c_uint) =>
            self.create_green(ph_ctx, desc, dev, flags);
        cuGreenCtxDestroy(h_ctx: CUgreenCtx) => self.destroy_green(h_ctx);
        cuCtxFromGreenCtx(p_context: *mut CUcontext, h_ctx: CUgreenCtx) => self.context_of_green(p_context, h_ctx);
        cuGreenCtxGetId(green_ctx: CUgreenCtx, green_ctx_id: *mut c_ulonglong) =>
            self.green_number(green_ctx, green_ctx_id);
    }

    fn cuCtxCreate(&self, pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) -> Outcome {
        self.create(pctx, flags, dev, 3010)
    }

    fn cuCtxCreate_v2(&self, pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) -> Outcome {
        self.create(pctx, flags, dev, 3020)
    }

    fn cuCtxCreate_v3(
        &self,
        pctx: *mut CUcontext,
        params_array: *mut CUexecAffinityParam,
        num_params: c_int,
        flags: c_uint,
        dev: CUdevice,
    ) -> Outcome {
        if num_params != 0 && !params_array.is_null() {
            return Err(status::NOT_SUPPORTED);
        }
        self.create(pctx, flags, dev, 3020)
    }

    fn cuCtxCreate_v4(
        &self,
        pctx: *mut CUcontext,
        ctx_create_params: *mut CUctxCreateParams,
        flags: c_uint,
        dev: CUdevice,
    ) -> Outcome {
        if !ctx_create_params.is_null() && self.read(ctx_create_params)?.numExecAffinityParams != 0 {
            return Err(status::NOT_SUPPORTED);
        }
        self.create(pctx, flags, dev, 3020)
    }

    fn cuDevicePrimaryCtxRetain(&self, pctx: *mut CUcontext, dev: CUdevice) -> Outcome {
        let simulation = self.simulation()?;
        simulation.device(dev)?;
        if pctx.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let made = simulation.objects().retain_primary(simulation, dev)?;
        self.write(pctx, pointer(made))
    }

    fn cuDevicePrimaryCtxRelease(&self, dev: CUdevice) -> Outcome {
        self.primary_release(dev)
    }

    fn cuDevicePrimaryCtxRelease_v2(&self, dev: CUdevice) -> Outcome {
        self.primary_release(dev)
    }

    fn cuDevicePrimaryCtxReset(&self, dev: CUdevice) -> Outcome {
        self.primary_reset(dev)
    }

    fn cuDevicePrimaryCtxReset_v2(&self, dev: CUdevice) -> Outcome {
        self.primary_reset(dev)
    }

    fn cuDevicePrimaryCtxGetState(&self, dev: CUdevice, flags: *mut c_uint, active: *mut c_int) -> Outcome {
        let simulation = self.simulation()?;
        simulation.device(dev)?;
        let mut objects = simulation.objects();
        let (made, set) = objects.primary(dev).map(|primary| (primary.handle, primary.flags))?;
        self.write(flags, set)?;
        self.write(active, c_int::from(objects.contexts.get(made).is_ok()))
    }

    fn cuDevicePrimaryCtxSetFlags(&self, dev: CUdevice, flags: c_uint) -> Outcome {
        let simulation = self.simulation()?;
        simulation.device(dev)?;
        let mut objects = simulation.objects();
        let made = objects.primary(dev)?.handle;
        if objects.contexts.get(made).is_ok() {
            return Err(statuses::PRIMARY_CONTEXT_ACTIVE);
        }
        drop(objects);
        self.primary_flags(dev, flags)
    }

    fn cuDevicePrimaryCtxSetFlags_v2(&self, dev: CUdevice, flags: c_uint) -> Outcome {
        self.primary_flags(dev, flags)
    }

    fn cuCtxDestroy(&self, ctx: CUcontext) -> Outcome {
        self.destroy(ctx)
    }

    fn cuCtxDestroy_v2(&self, ctx: CUcontext) -> Outcome {
        self.destroy(ctx)
    }

    fn cuCtxAttach(&self, pctx: *mut CUcontext, flags: c_uint) -> Outcome {
        if flags != 0 {
            return Err(status::INVALID_VALUE);
        }
        let mut objects = self.simulation()?.objects();
        let current = objects.current()?.0;
        let context = objects.contexts.get_mut(current)?;
        context.attached = context.attached.saturating_add(1);
        self.write(pctx, pointer(current))
    }

    fn cuCtxDetach(&self, ctx: CUcontext) -> Outcome {
        let mut objects = self.simulation()?.objects();
        let context = objects.contexts.get_mut(handle(ctx)).map_err(|_| status::INVALID_CONTEXT)?;
        context.attached = context.attached.saturating_sub(1);
        let last = context.attached == 0;
        drop(objects);
        if last { self.destroy(ctx) } else { Ok(()) }
    }

    fn cuCtxPopCurrent(&self, pctx: *mut CUcontext) -> Outcome {
        self.pop(pctx)
    }

    fn cuCtxPopCurrent_v2(&self, pctx: *mut CUcontext) -> Outcome {
        self.pop(pctx)
    }

    fn cuCtxPushCurrent(&self, ctx: CUcontext) -> Outcome {
        self.push(ctx)
    }

    fn cuCtxPushCurrent_v2(&self, ctx: CUcontext) -> Outcome {
        self.push(ctx)
    }

    fn cuCtxSetCurrent(&self, ctx: CUcontext) -> Outcome {
        let simulation = self.simulation()?;
        if !ctx.is_null() {
            simulation.objects().can_be_current(handle(ctx))?;
        }
        thread_state::replace(handle(ctx));
        Ok(())
    }

    fn cuCtxGetCurrent(&self, pctx: *mut CUcontext) -> Outcome {
        self.write(pctx, pointer(thread_state::current()))
    }

    fn cuCtxGetDevice(&self, device: *mut CUdevice) -> Outcome {
        self.cuCtxGetDevice_v2(device, core::ptr::null_mut())
    }

    fn cuCtxGetDevice_v2(&self, device: *mut CUdevice, ctx: CUcontext) -> Outcome {
        let simulation = self.simulation()?;
        let objects = simulation.objects();
        self.write(device, simulation.ordinal(objects.context(handle(ctx))?.1.device))
    }

    fn cuCtxGetApiVersion(&self, ctx: CUcontext, version: *mut c_uint) -> Outcome {
        let objects = self.simulation()?.objects();
        self.write(version, objects.context(handle(ctx))?.1.version)
    }

    fn cuCtxGetId(&self, ctx: CUcontext, ctx_id: *mut c_ulonglong) -> Outcome {
        let objects = self.simulation()?.objects();
        self.write(ctx_id, objects.context(handle(ctx))?.1.number)
    }

    fn cuCtxGetFlags(&self, flags: *mut c_uint) -> Outcome {
        let objects = self.simulation()?.objects();
        self.write(flags, objects.current()?.1.flags)
    }

    fn cuCtxSetFlags(&self, flags: c_uint) -> Outcome {
        let mut objects = self.simulation()?.objects();
        let current = objects.current()?.0;
        objects.contexts.get_mut(current)?.flags = flags;
        Ok(())
    }

    fn cuCtxGetLimit(&self, pvalue: *mut usize, limit: c_uint) -> Outcome {
        let objects = self.simulation()?.objects();
        let limits = objects.current()?.1.limits;
        let value = limits.get(limit as usize).copied().ok_or(status::INVALID_VALUE)?;
        self.write(pvalue, value as usize)
    }

    fn cuCtxSetLimit(&self, limit: c_uint, value: usize) -> Outcome {
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let (current, context) = objects.current()?;
        let device = context.device;
        let (mut limits, charged) = (context.limits, context.charged);
        if limit as usize >= LIMITS {
            return Err(status::INVALID_VALUE);
        }
        if let Some(place) = limits.get_mut(limit as usize) {
            *place = value as u64;
        }
        let wanted = simulation.settings.context_bytes.saturating_add(limits_cost(&limits));
        if wanted > charged {
            simulation.grow(device, MemoryKind::Context, wanted - charged)?;
        } else {
            simulation.shrink(device, MemoryKind::Context, charged - wanted);
        }
        let context = objects.contexts.get_mut(current)?;
        (context.limits, context.charged) = (limits, wanted);
        Ok(())
    }

    fn cuCtxGetStreamPriorityRange(
        &self,
        least_priority: *mut c_int,
        greatest_priority: *mut c_int,
    ) -> Outcome {
        self.simulation()?.objects().current()?;
        self.offer(least_priority, 0);
        self.offer(greatest_priority, -5);
        Ok(())
    }

    fn cuCtxGetCacheConfig(&self, pconfig: *mut CUfunc_cache) -> Outcome {
        let objects = self.simulation()?.objects();
        self.write(pconfig.cast::<c_uint>(), objects.current()?.1.cache)
    }

    fn cuCtxSetCacheConfig(&self, config: c_uint) -> Outcome {
        let mut objects = self.simulation()?.objects();
        let current = objects.current()?.0;
        objects.contexts.get_mut(current)?.cache = config;
        Ok(())
    }

    fn cuCtxGetSharedMemConfig(&self, p_config: *mut CUsharedconfig) -> Outcome {
        let objects = self.simulation()?.objects();
        self.write(p_config.cast::<c_uint>(), objects.current()?.1.banks)
    }

    fn cuCtxSetSharedMemConfig(&self, config: c_uint) -> Outcome {
        let mut objects = self.simulation()?.objects();
        let current = objects.current()?.0;
        objects.contexts.get_mut(current)?.banks = config;
        Ok(())
    }

    fn cuCtxResetPersistingL2Cache(&self) -> Outcome {
        self.simulation()?.objects().current()?;
        Ok(())
    }

    fn cuCtxEnablePeerAccess(&self, peer_context: CUcontext, flags: c_uint) -> Outcome {
        if flags != 0 {
            return Err(status::INVALID_VALUE);
        }
        let mut objects = self.simulation()?.objects();
        let pair = (objects.current()?.0, objects.context(handle(peer_context))?.0);
        if objects.peers.insert(pair) { Ok(()) } else { Err(statuses::PEER_ACCESS_ALREADY_ENABLED) }
    }

    fn cuCtxDisablePeerAccess(&self, peer_context: CUcontext) -> Outcome {
        let mut objects = self.simulation()?.objects();
        let pair = (objects.current()?.0, handle(peer_context));
        if objects.peers.remove(&pair) { Ok(()) } else { Err(statuses::PEER_ACCESS_NOT_ENABLED) }
    }
}
