//! Functions that divide multiprocessors into groups, and make green contexts of the groups.

use gpuslice_driver::types::*;

use crate::call::DriverCall;
use crate::hardware::attributes::PROCESSORS;
use crate::model::green_contexts::{PARTITION, split};
use crate::model::objects::{handle, pointer};
use crate::status::{Outcome, statuses};

/// `CU_DEV_RESOURCE_TYPE_SM`.
const PROCESSORS_KIND: c_uint = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM`.
const DEFAULT_STREAM: c_uint = 1;

/// `CUdevResource` of multiprocessors, with its enumeration as a number and its union as words.
#[repr(C)]
#[derive(Clone, Copy)]
struct Resource {
    kind: c_uint,
    padding: [c_uint; 23],
    processors: c_uint,
    smallest: c_uint,
    alignment: c_uint,
    rest: [c_uint; 9],
}

const _: () = assert!(size_of::<Resource>() == size_of::<CUdevResource>());

impl Resource {
    fn of(processors: u32) -> Self {
        let (smallest, alignment) = (PARTITION, PARTITION);
        Self { kind: PROCESSORS_KIND, padding: [0; 23], processors, smallest, alignment, rest: [0; 9] }
    }
}

impl DriverCall {
    fn resource(&self, to: *mut CUdevResource, kind: c_uint, processors: u32) -> Outcome {
        if kind != PROCESSORS_KIND {
            return Err(statuses::INVALID_RESOURCE_TYPE);
        }
        self.write(to.cast(), Resource::of(processors))
    }

    pub(super) fn device_resource(&self, device: CUdevice, to: *mut CUdevResource, kind: c_uint) -> Outcome {
        self.simulation()?.device(device)?;
        self.resource(to, kind, PROCESSORS)
    }

    pub(super) fn context_resource(
        &self,
        context: CUcontext,
        to: *mut CUdevResource,
        kind: c_uint,
    ) -> Outcome {
        let processors = self.simulation()?.objects().processors(handle(context))?;
        self.resource(to, kind, processors)
    }

    pub(super) fn green_resource(&self, green: CUgreenCtx, to: *mut CUdevResource, kind: c_uint) -> Outcome {
        let objects = self.simulation()?.objects();
        let green = objects.greens.greens.get(handle(green)).map_err(|_| status::INVALID_CONTEXT)?;
        self.resource(to, kind, green.processors)
    }

    pub(super) fn split_by_count(
        &self,
        result: *mut CUdevResource,
        groups: *mut c_uint,
        input: *const CUdevResource,
        remainder: *mut CUdevResource,
        flags: c_uint,
        least: c_uint,
    ) -> Outcome {
        let input = self.read(input.cast::<Resource>())?;
        if input.kind != PROCESSORS_KIND {
            return Err(statuses::INVALID_RESOURCE_TYPE);
        }
        let wanted = if result.is_null() { c_uint::MAX } else { self.read(groups)? };
        let (count, each) = split(input.processors, wanted, least, flags)?;
        self.write(groups, count)?;
        if result.is_null() {
            return Ok(());
        }
        for index in 0..count as usize {
            self.write_at(result.cast(), index, Resource::of(each))?;
        }
        self.offer(remainder.cast(), Resource::of(input.processors - count * each));
        Ok(())
    }

    pub(super) fn describe(
        &self,
        to: *mut CUdevResourceDesc,
        resources: *mut CUdevResource,
        count: c_uint,
    ) -> Outcome {
        let mut processors = 0;
        for index in 0..count as usize {
            let resource = self.read_at(resources.cast::<Resource>(), index)?;
            if resource.kind != PROCESSORS_KIND {
                return Err(statuses::INVALID_RESOURCE_TYPE);
            }
            processors += resource.processors;
        }
        if processors == 0 {
            return Err(status::INVALID_VALUE);
        }
        let made = self.simulation()?.objects().greens.descriptors.add(processors);
        self.write(to, pointer(made))
    }

    pub(super) fn create_green(
        &self,
        to: *mut CUgreenCtx,
        descriptor: CUdevResourceDesc,
        device: CUdevice,
        flags: c_uint,
    ) -> Outcome {
        if to.is_null() || flags & !DEFAULT_STREAM != 0 {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let processors = objects.described(handle(descriptor))?;
        objects.retain_primary(simulation, device)?;
        match objects.make_green(simulation, device, processors) {
            Ok(green) => self.write(to, pointer(green)),
            Err(why) => {
                objects.release_primary(simulation, device)?;
                Err(why)
            }
        }
    }

    pub(super) fn destroy_green(&self, green: CUgreenCtx) -> Outcome {
        let simulation = self.simulation()?;
        simulation.objects().end_green(simulation, handle(green))
    }

    pub(super) fn context_of_green(&self, to: *mut CUcontext, green: CUgreenCtx) -> Outcome {
        if to.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let view = self.simulation()?.objects().green_view(handle(green))?;
        self.write(to, pointer(view))
    }

    pub(super) fn green_number(&self, green: CUgreenCtx, to: *mut c_ulonglong) -> Outcome {
        let objects = self.simulation()?.objects();
        let green = objects.greens.greens.get(handle(green)).map_err(|_| status::INVALID_CONTEXT)?;
        self.write(to, green.number)
    }

    /// Makes a stream of a green context, whichever context is current.
    pub(super) fn green_stream(
        &self,
        to: *mut CUstream,
        green: CUgreenCtx,
        flags: c_uint,
        priority: c_int,
    ) -> Outcome {
        if to.is_null() || flags != crate::model::streams::NON_BLOCKING {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let green = handle(green);
        let context = objects.greens.greens.get(green).map_err(|_| status::INVALID_CONTEXT)?.context;
        let stream = objects.make_stream(simulation, context, flags, priority.clamp(-5, 0))?;
        objects.streams.streams.get_mut(stream)?.green = Some(green);
        self.write(to, pointer(stream))
    }
}
