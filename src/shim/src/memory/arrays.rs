//! Arrays of this process, and the size of a new one.
//!
//! The driver reports a size only for an array that has no memory yet (deferred mapping). So the library first makes such a twin
//! of the wanted array, asks for its size and destroys it. It keeps the answers. Drivers before CUDA 11.6 give no size, and some
//! kinds of arrays have no such twin. Then the library uses an estimate, on the high side.

use super::physical::AllocationId;
use crate::driver_calls::capture_mode;
use crate::slice::device::SliceDevice;
use crate::slice::handle::{Reservation, Slice};
use core::ffi::{c_int, c_uint};
use core::mem::MaybeUninit;
use core::ptr;
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{
    CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUdevice, CUmipmappedArray, Status,
    status,
};
use gpuslice_policy::sizes::array::ArrayShape;
use gpuslice_region::Device;
use parking_lot::Mutex;
use std::collections::HashMap;

/// `CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED`.
const CAN_DEFER: c_uint = 121;
/// Largest number of answers that the library keeps. Programs use a few shapes. Beyond this number, the library asks again.
const MOST_ANSWERS: usize = 1024;

/// `CUDA_ARRAY3D_DESCRIPTOR`, with its format as a number.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: c_uint,
    pub(crate) channels: c_uint,
    pub(crate) flags: c_uint,
}

const _: () = assert!(size_of::<Descriptor>() == size_of::<CUDA_ARRAY3D_DESCRIPTOR>());

impl From<Descriptor> for ArrayShape {
    fn from(from: Descriptor) -> Self {
        let Descriptor { width, height, depth, format, channels, flags } = from;
        Self { width: width as u64, height: height as u64, depth: depth as u64, format, channels, flags }
    }
}

impl Descriptor {
    fn of(shape: ArrayShape) -> Option<Self> {
        let ArrayShape { width, height, depth, format, channels, flags } = shape;
        let (width, height, depth) =
            (width.try_into().ok()?, height.try_into().ok()?, depth.try_into().ok()?);
        Some(Self { width, height, depth, format, channels, flags })
    }
}

/// Array that a program wants to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WantedArray {
    /// Shape of the array.
    pub(crate) shape: ArrayShape,
    /// Number of levels, for a mipmapped array.
    pub(crate) levels: Option<c_uint>,
}

/// Part of an array to which memory is mapped, as numbers of the caller's request.
pub(crate) type ArrayPart = [u64; 5];

/// Array that this process made.
#[derive(Debug)]
pub(crate) struct Array {
    /// Context that the array ends with.
    context: usize,
    device: Device,
    /// Bytes that were charged; 0 for an array to which the program maps memory.
    bytes: u64,
    /// Memory that is mapped to the array.
    parts: HashMap<ArrayPart, AllocationId>,
}

/// Arrays of this process, by the driver's handle. Levels and planes of other arrays are not among them.
#[derive(Debug, Default)]
pub(crate) struct Arrays {
    live: Mutex<HashMap<u64, Array>>,
    answers: Mutex<HashMap<(CUdevice, WantedArray), u64>>,
}

impl Arrays {
    /// Returns the bytes that a new array takes on the device `place`, the device of the current context.
    pub(crate) fn requirement(&self, place: SliceDevice, wanted: WantedArray) -> u64 {
        if !wanted.shape.takes_memory() {
            return 0;
        }
        let question = (place.handle, wanted);
        if let Some(known) = self.answers.lock().get(&question) {
            return *known;
        }
        let Some(answer) = ask(place.handle, wanted) else {
            return wanted.shape.at_most(wanted.levels.unwrap_or(1));
        };
        let mut answers = self.answers.lock();
        if answers.len() >= MOST_ANSWERS {
            answers.clear();
        }
        answers.insert(question, answer);
        answer
    }

    /// Adds an array that the driver has made.
    pub(crate) fn add(&self, handle: u64, context: usize, device: Device, charged: Option<Reservation>) {
        let bytes = charged.as_ref().map_or(0, Reservation::bytes);
        self.live.lock().insert(handle, Array { context, device, bytes, parts: HashMap::new() });
        if let Some(charged) = charged {
            charged.keep();
        }
    }

    /// Takes out an array that is about to end; `None` for an array that this process did not make.
    pub(crate) fn take(&self, handle: u64) -> Option<Array> {
        self.live.lock().remove(&handle)
    }

    /// Takes out the arrays that end with a context.
    pub(crate) fn take_of(&self, context: usize) -> Vec<(u64, Array)> {
        self.live.lock().extract_if(|_, array| array.context == context).collect()
    }

    /// Puts back an array that the driver has not ended.
    pub(crate) fn put_back(&self, handle: u64, array: Array) {
        self.live.lock().insert(handle, array);
    }

    /// Changes a part of an array, as [`Array::set_part`] does. Returns `None` for an array that is not in the table.
    pub(super) fn set_part(
        &self,
        handle: u64,
        part: ArrayPart,
        piece: Option<AllocationId>,
    ) -> Option<Option<AllocationId>> {
        Some(self.live.lock().get_mut(&handle)?.set_part(part, piece))
    }
}

impl Array {
    /// Notes that `piece` was mapped to a part, or that the part's memory was taken away. Returns the piece that was mapped there
    /// before.
    pub(super) fn set_part(&mut self, part: ArrayPart, piece: Option<AllocationId>) -> Option<AllocationId> {
        match piece {
            Some(piece) => self.parts.insert(part, piece),
            None => self.parts.remove(&part),
        }
    }

    /// Gives back the charge of an array that has ended. `unpin` ends the mapping of each piece of memory that was mapped to it.
    pub(crate) fn end(self, slice: &Slice, unpin: impl Fn(AllocationId)) {
        if self.bytes > 0 {
            slice.refund(self.device, self.bytes);
        }
        self.parts.into_values().for_each(unpin);
    }
}

/// Asks the driver for the size of an array. Returns `None` if the driver gives no size.
fn ask(device: CUdevice, wanted: WantedArray) -> Option<u64> {
    if !can_defer(device) {
        return None;
    }
    let twin = Descriptor::of(wanted.shape.deferred())?;
    let twin = (&raw const twin).cast::<CUDA_ARRAY3D_DESCRIPTOR>();
    let size = capture_mode::with_relaxed_capture_mode(|| match wanted.levels {
        None => size_of_array(device, twin),
        Some(levels) => size_of_mipmap(device, twin, levels),
    });
    // Zero is no answer, because every array takes memory.
    size.filter(|bytes| *bytes > 0)
}

fn can_defer(device: CUdevice) -> bool {
    let mut can: c_int = 0;
    let function = slot::real::<real::cuDeviceGetAttribute>(Symbol::cuDeviceGetAttribute);
    // SAFETY: `function` requires an output that is valid for writes: the local `can`. The driver checks the rest.
    let code = function.map(|function| unsafe { function(&raw mut can, CAN_DEFER, device) });
    code == Some(status::SUCCESS) && can != 0
}

fn size_of_array(device: CUdevice, twin: *const CUDA_ARRAY3D_DESCRIPTOR) -> Option<u64> {
    let tell = slot::real::<real::cuArrayGetMemoryRequirements>(Symbol::cuArrayGetMemoryRequirements)?;
    let make = slot::real::<real::cuArray3DCreate_v2>(Symbol::cuArray3DCreate_v2)?;
    let end = slot::real::<real::cuArrayDestroy>(Symbol::cuArrayDestroy)?;
    let mut array: CUarray = ptr::null_mut();
    // SAFETY: `make` requires a readable descriptor and a writable output: the descriptor of `ask` and the local `array`.
    if unsafe { make(&raw mut array, twin) } != status::SUCCESS {
        return None;
    }
    // SAFETY: `tell` requires a writable output, which `told` passes, and a live array: the one just made.
    let size = told(|output| unsafe { tell(output, array, device) });
    // SAFETY: `end` requires a live array: the one just made, which nothing else has seen.
    unsafe { end(array) };
    size
}

fn size_of_mipmap(device: CUdevice, twin: *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) -> Option<u64> {
    let tell = slot::real::<real::cuMipmappedArrayGetMemoryRequirements>(
        Symbol::cuMipmappedArrayGetMemoryRequirements,
    )?;
    let make = slot::real::<real::cuMipmappedArrayCreate>(Symbol::cuMipmappedArrayCreate)?;
    let end = slot::real::<real::cuMipmappedArrayDestroy>(Symbol::cuMipmappedArrayDestroy)?;
    let mut mipmap: CUmipmappedArray = ptr::null_mut();
    // SAFETY: `make` requires a readable descriptor and a writable output: the descriptor of `ask` and the local `mipmap`.
    if unsafe { make(&raw mut mipmap, twin, levels) } != status::SUCCESS {
        return None;
    }
    // SAFETY: `tell` requires a writable output, which `told` passes, and a live array: the one just made.
    let size = told(|output| unsafe { tell(output, mipmap, device) });
    // SAFETY: `end` requires a live array: the one just made, which nothing else has seen.
    unsafe { end(mipmap) };
    size
}

fn told(tell: impl FnOnce(*mut CUDA_ARRAY_MEMORY_REQUIREMENTS) -> Status) -> Option<u64> {
    let mut told = MaybeUninit::<CUDA_ARRAY_MEMORY_REQUIREMENTS>::zeroed();
    let code = tell(told.as_mut_ptr());
    // SAFETY: `assume_init` requires initialised bytes. They are zeroed first, and the type is plain data.
    (code == status::SUCCESS).then(|| unsafe { told.assume_init() }.size as u64)
}
