//! Arrays and mipmapped arrays: their memory, and the memory that is mapped to them.
//!
//! The driver hands out levels and planes in calls that take no memory. Their handles are unknown here, and their end gives
//! nothing back. Memory that is mapped to sparse and deferred arrays was charged when it was made. A mapping keeps it alive until
//! a call that names the same part removes it, or the array ends.

use crate::hooks::hooked_call::HookedCall;
use crate::hooks::protocol::{Decision, Granted, around, charge, reserve};
use crate::memory::arrays::{ArrayPart, Descriptor, WantedArray};
use crate::memory::{physical, physical_uses};
use crate::process::Process;
use crate::slice::handle::Reservation;
use core::ffi::c_uint;
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUDA_ARRAY_DESCRIPTOR, CUarray, CUarrayMapInfo, Status, status};
use gpuslice_policy::sizes::array::ArrayShape;
use gpuslice_policy::sizes::blocks::taken;
use gpuslice_region::Device;

/// `CU_MEM_OPERATION_TYPE_MAP`.
const MAP: c_uint = 1;
/// `CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL`.
const MIP_TAIL: c_uint = 1;

/// `CUDA_ARRAY_DESCRIPTOR`, its format as a number.
#[repr(C)]
#[derive(Clone, Copy)]
struct Flat {
    width: usize,
    height: usize,
    format: c_uint,
    channels: c_uint,
}

const _: () = assert!(size_of::<Flat>() == size_of::<CUDA_ARRAY_DESCRIPTOR>());

/// `CUDA_ARRAY_DESCRIPTOR_v1`: extents of 32 bits.
#[repr(C)]
#[derive(Clone, Copy)]
struct FirstFlat {
    width: c_uint,
    height: c_uint,
    format: c_uint,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR_v1`.
#[repr(C)]
#[derive(Clone, Copy)]
struct First {
    width: c_uint,
    height: c_uint,
    depth: c_uint,
    format: c_uint,
    channels: c_uint,
    flags: c_uint,
}

/// `CUarrayMapInfo`, its enumerations as numbers and its unions as words.
#[repr(C)]
#[derive(Clone, Copy)]
struct MapInfo {
    resource_kind: c_uint,
    resource: u64,
    part_kind: c_uint,
    part: [u64; 4],
    operation: c_uint,
    handle_kind: c_uint,
    handle: u64,
    offset: u64,
    device_mask: c_uint,
    flags: c_uint,
    reserved: [c_uint; 2],
}

const _: () = assert!(size_of::<MapInfo>() == size_of::<CUarrayMapInfo>());

impl From<Flat> for ArrayShape {
    fn from(Flat { width, height, format, channels }: Flat) -> Self {
        Self { width: width as u64, height: height as u64, depth: 0, format, channels, flags: 0 }
    }
}

impl From<FirstFlat> for ArrayShape {
    fn from(FirstFlat { width, height, format, channels }: FirstFlat) -> Self {
        Self { width: width.into(), height: height.into(), depth: 0, format, channels, flags: 0 }
    }
}

impl From<First> for ArrayShape {
    fn from(First { width, height, depth, format, channels, flags }: First) -> Self {
        Self { width: width.into(), height: height.into(), depth: depth.into(), format, channels, flags }
    }
}

/// `cuArrayCreate_v2`.
pub(crate) fn create(call: &HookedCall<real::cuArrayCreate_v2>) -> Status {
    let (output, wanted) = call.arguments();
    plain(
        // SAFETY: `read_in` requires null or readable bytes, and so does the driver. `Flat` has the same bytes, with an integer
        // for the enumeration.
        || unsafe { read_in(wanted.cast::<Flat>()) }.map(ArrayShape::from),
        || call.forward(),
        // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
        || unsafe { read_in(output) },
    )
}

/// `cuArrayCreate`, with 32 bits of extent.
pub(crate) fn create_v1(call: &HookedCall<real::cuArrayCreate>) -> Status {
    let (output, wanted) = call.arguments();
    plain(
        // SAFETY: `read_in` requires null or readable bytes, and so does the driver. `FirstFlat` is the type behind the opaque
        // one.
        || unsafe { read_in(wanted.cast::<FirstFlat>()) }.map(ArrayShape::from),
        || call.forward(),
        // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
        || unsafe { read_in(output) },
    )
}

/// `cuArray3DCreate_v2`.
pub(crate) fn create_3d(call: &HookedCall<real::cuArray3DCreate_v2>) -> Status {
    let (output, wanted) = call.arguments();
    plain(
        // SAFETY: `read_in` requires null or readable bytes, and so does the driver. `Descriptor` has the same bytes, with an
        // integer for the enumeration.
        || unsafe { read_in(wanted.cast::<Descriptor>()) }.map(ArrayShape::from),
        || call.forward(),
        // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
        || unsafe { read_in(output) },
    )
}

/// `cuArray3DCreate`, with 32 bits of extent.
pub(crate) fn create_3d_v1(call: &HookedCall<real::cuArray3DCreate>) -> Status {
    let (output, wanted) = call.arguments();
    plain(
        // SAFETY: `read_in` requires null or readable bytes, and so does the driver. `First` is the type behind the opaque one.
        || unsafe { read_in(wanted.cast::<First>()) }.map(ArrayShape::from),
        || call.forward(),
        // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
        || unsafe { read_in(output) },
    )
}

/// `cuMipmappedArrayCreate`: all levels at once.
pub(crate) fn create_mipmapped(call: &HookedCall<real::cuMipmappedArrayCreate>) -> Status {
    let (output, wanted, levels) = call.arguments();
    // SAFETY: `read_in` requires null or readable bytes, and so does the driver. `Descriptor` has the same bytes, with an integer
    // for the enumeration.
    let shape = || unsafe { read_in(wanted.cast::<Descriptor>()) }.map(ArrayShape::from);
    made(
        || Some(WantedArray { shape: shape()?, levels: Some(levels) }),
        || call.forward(),
        // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
        || unsafe { read_in(output) }.map(|handle| handle.addr() as u64),
    )
}

/// Makes an array without levels.
fn plain(
    shape: impl FnOnce() -> Option<ArrayShape>,
    call: impl FnMut() -> Status,
    handle: impl FnOnce() -> Option<CUarray>,
) -> Status {
    let wanted = || Some(WantedArray { shape: shape()?, levels: None });
    made(wanted, call, || handle().map(|handle| handle.addr() as u64))
}

/// State of a call that makes an array, between the reservation and the record.
struct Due {
    process: &'static Process,
    context: usize,
    device: Device,
    charged: Option<Reservation>,
}

impl Granted for Due {
    fn granted(&self) -> Option<(Device, u64)> {
        self.charged.as_ref()?.granted()
    }
}

fn made(
    wanted: impl FnOnce() -> Option<WantedArray>,
    call: impl FnMut() -> Status,
    handle: impl FnOnce() -> Option<u64>,
) -> Status {
    charge(
        |process| wanted().map_or(Decision::Forward, |wanted| decide(process, wanted)),
        call,
        |Due { process, context, device, charged }, code| {
            if code == status::SUCCESS
                && let Some(handle) = handle()
            {
                process.arrays.add(handle, context, device, charged);
            }
            code
        },
    )
}

/// Reserves on the device of the current context. Without a context, the driver answers alone.
fn decide(process: &'static Process, wanted: WantedArray) -> Decision<Due> {
    let place = process.place_of_current();
    let (Some(context), Some(place)) = (process.owner_of_current(), place) else { return Decision::Forward };
    let due = |charged| Due { process, context, device: place.device, charged };
    match process.arrays.requirement(place, wanted) {
        0 => Decision::Go(due(None)),
        bytes => reserve(process, place.device, taken(bytes)).map(|reservation| due(Some(reservation))),
    }
}

/// `cuArrayDestroy`.
pub(crate) fn destroy(call: &HookedCall<real::cuArrayDestroy>) -> Status {
    let (array,) = call.arguments();
    ended(array.addr() as u64, || call.forward())
}

/// `cuMipmappedArrayDestroy`.
pub(crate) fn destroy_mipmapped(call: &HookedCall<real::cuMipmappedArrayDestroy>) -> Status {
    let (mipmap,) = call.arguments();
    ended(mipmap.addr() as u64, || call.forward())
}

fn ended(handle: u64, call: impl FnOnce() -> Status) -> Status {
    around(
        |process| process.take_array(handle),
        call,
        |process, array, code| {
            let Some(array) = array else { return };
            if code == status::SUCCESS {
                array.end(process, |piece| physical_uses::unpin(process, piece));
            } else {
                process.arrays.put_back(handle, array);
            }
        },
    )
}

/// `cuMemMapArrayAsync` in both forms: an entry that unmaps memory takes effect in the order of a stream, and counts at once.
pub(crate) fn map(call: &HookedCall<real::cuMemMapArrayAsync>) -> Status {
    let (list, count, _) = call.arguments();
    around(
        // SAFETY: `pinned` requires null or `count` entries at `list`, and so does the driver.
        |process| unsafe { pinned(process, list, count) },
        || call.forward(),
        |process, changes, code| {
            for (array, part, piece) in changes {
                let gone =
                    if code == status::SUCCESS { process.set_array_part(array, part, piece) } else { piece };
                if let Some(piece) = gone {
                    physical_uses::unpin(process, piece);
                }
            }
        },
    )
}

/// Returns the parts that are about to change. Counts one use more of each piece of memory that is to be mapped.
///
/// # Safety
/// `list` is null or valid for reads of `count` entries.
unsafe fn pinned(
    process: &Process,
    list: *const CUarrayMapInfo,
    count: c_uint,
) -> Vec<(u64, ArrayPart, Option<physical::AllocationId>)> {
    if list.is_null() {
        return Vec::new();
    }
    let change = |index: c_uint| {
        let entry = list.cast::<MapInfo>().wrapping_add(index as usize);
        // SAFETY: by this function's contract the list has `count` entries, and `index` is below that number.
        let entry = unsafe { read_in(entry) }?;
        let piece = if entry.operation == MAP { physical_uses::pin(process, entry.handle) } else { None };
        Some((entry.resource, part_of(&entry), piece))
    };
    (0..count).filter_map(change).collect()
}

/// Returns the words that name a part of an array. Fewer words name a mip tail, and the others have no meaning then.
fn part_of(entry: &MapInfo) -> ArrayPart {
    let [first, second, third, fourth] = entry.part;
    match entry.part_kind {
        MIP_TAIL => [MIP_TAIL.into(), first & u64::from(c_uint::MAX), second, third, 0],
        kind => [kind.into(), first, second, third, fourth],
    }
}
