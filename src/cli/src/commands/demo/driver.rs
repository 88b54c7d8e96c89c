//! Calls the driver for the programs of the demo. Like any program, it opens `libcuda.so.1` and looks up the functions by name.
#![allow(unsafe_code, reason = "calls the driver API")]

use gpuslice_driver::functions;
use gpuslice_driver::types::{
    AllocationProperties, CUdevice, CUdeviceptr, CUfunction, CUmemGenericAllocationHandle, CUmemLocation,
    CUuuid, Status, c_int, c_uint, status,
};
use libloading::Library;
use std::ffi::CStr;
use std::ptr;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: c_uint = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: c_uint = 1;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
const LEAST: c_uint = 0;
/// Bytes of a device's name.
const NAME: usize = 128;

macro_rules! calls {
    ($($name:ident)*) => {
        /// The functions of the driver that the demo calls.
        #[allow(non_snake_case, reason = "the names are the driver's")]
        struct Calls {
            $($name: functions::$name,)*
        }

        impl Calls {
            fn find(library: &Library) -> Result<Self, String> {
                $(
                    let name = concat!(stringify!($name), "\0").as_bytes();
                    // SAFETY: `get` needs the symbol's type. `functions::$name` is that type, from the
                    // row of this name in the table.
                    let found = unsafe { library.get::<functions::$name>(name) };
                    #[allow(non_snake_case, reason = "the names are the driver's")]
                    let $name = *found.map_err(|error| error.to_string())?;
                )*
                Ok(Self { $($name,)* })
            }
        }
    };
}

calls! {
    cuInit cuDeviceGet cuDeviceGetName cuDeviceGetUuid_v2 cuDevicePrimaryCtxRetain
    cuDevicePrimaryCtxRelease_v2 cuCtxSetCurrent cuMemGetInfo_v2 cuMemAlloc_v2 cuMemFree_v2
    cuMemGetAllocationGranularity cuMemCreate cuMemRelease cuMemAllocAsync cuMemFreeAsync cuStreamSynchronize
    cuModuleLoadData cuModuleGetFunction cuLaunchKernel
}

/// A kernel that keeps a part of a real device busy for about half a millisecond. The simulated GPU
/// reads the duration from this name.
const KERNEL: &CStr = c"spin_500us";
/// Code of the kernel. Each step depends on the one before, so that no two run at the same time.
const CODE: &CStr = c"
.version 7.0
.target sm_75
.address_size 64
.visible .entry spin_500us(.param .u64 sink)
{
    .reg .pred %again, %never;
    .reg .b32 %left;
    .reg .b64 %mix, %sink;
    ld.param.u64 %sink, [sink];
    mov.u64 %mix, %clock64;
    mov.u32 %left, 50000;
STEP:
    mad.lo.u64 %mix, %mix, 6364136223846793005, 1442695040888963407;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %again, %left, 0;
    @%again bra STEP;
    // The comparison uses the result, so that the compiler keeps every step.
    setp.eq.u64 %never, %mix, %sink;
    @%never trap;
    ret;
}
";
/// Launches between two waits. They are 32 ms of work. So the device is idle only for a small part of the time if the
/// host launches the next batch late.
const BATCH: usize = 64;

/// A way to get device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemorySource {
    /// `cuMemAlloc`.
    Linear,
    /// `cuMemCreate`.
    Physical,
    /// `cuMemAllocAsync`.
    Ordered,
}

impl MemorySource {
    /// All ways to get device memory.
    pub(super) const ALL: [Self; 3] = [Self::Linear, Self::Physical, Self::Ordered];

    /// Returns the name of the driver's function.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Linear => "cuMemAlloc",
            Self::Physical => "cuMemCreate",
            Self::Ordered => "cuMemAllocAsync",
        }
    }
}

/// A piece of device memory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Block {
    Linear(CUdeviceptr),
    Physical(CUmemGenericAllocationHandle),
    Ordered(CUdeviceptr),
}

/// The first device of the process, with a context.
pub(super) struct Driver {
    calls: Calls,
    device: CUdevice,
    properties: AllocationProperties,
    granule: usize,
    /// Keeps the driver loaded, because `calls` points into it.
    _library: Library,
}

/// Turns a status into an error that names the call.
fn checked(call: &str, status: Status) -> Result<(), String> {
    if status == status::SUCCESS { Ok(()) } else { Err(format!("{call} returned {status}")) }
}

impl Driver {
    /// Opens the driver and makes a context on the first device.
    pub(super) fn open() -> Result<Self, String> {
        // SAFETY: `Library::new` runs the library's initialisers. Every CUDA program runs the driver's initialisers too.
        let library = unsafe { Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
        let calls = Calls::find(&library)?;
        // SAFETY: `cuInit` takes flags that must be 0, and they are 0.
        checked("cuInit", unsafe { (calls.cuInit)(0) })?;
        let mut device = 0;
        // SAFETY: the function needs an output that is valid for writes: `device` is on this stack.
        checked("cuDeviceGet", unsafe { (calls.cuDeviceGet)(&raw mut device, 0) })?;
        let mut context = ptr::null_mut();
        // SAFETY: the output is a variable of this function, and `device` came from `cuDeviceGet`.
        let retained = unsafe { (calls.cuDevicePrimaryCtxRetain)(&raw mut context, device) };
        checked("cuDevicePrimaryCtxRetain", retained)?;
        // SAFETY: `cuDevicePrimaryCtxRetain` has just returned this context.
        checked("cuCtxSetCurrent", unsafe { (calls.cuCtxSetCurrent)(context) })?;
        let properties = AllocationProperties {
            kind: PINNED,
            handle_types: 0,
            location: CUmemLocation { kind: ON_DEVICE, id: device },
            security: ptr::null_mut(),
            flags: [0; 8],
        };
        let mut granule: usize = 0;
        let wanted = ptr::from_ref(&properties).cast();
        // SAFETY: `wanted` points to properties in the driver's layout, and the output is a variable of this function.
        let status = unsafe { (calls.cuMemGetAllocationGranularity)(&raw mut granule, wanted, LEAST) };
        if status != status::SUCCESS {
            granule = 0;
        }
        Ok(Self { calls, device, properties, granule, _library: library })
    }

    /// Returns the device's name.
    pub(super) fn name(&self) -> Result<String, String> {
        let mut name = [0_u8; NAME];
        let length = c_int::try_from(NAME).unwrap_or(0);
        // SAFETY: `name` has room for `length` bytes.
        let status = unsafe { (self.calls.cuDeviceGetName)(name.as_mut_ptr().cast(), length, self.device) };
        checked("cuDeviceGetName", status)?;
        let name = CStr::from_bytes_until_nul(&name).map_err(|error| error.to_string())?;
        Ok(name.to_string_lossy().into_owned())
    }

    /// Returns the device's UUID.
    pub(super) fn uuid(&self) -> Result<[u8; 16], String> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: the function needs an output that is valid for writes: `uuid` is on this stack.
        checked("cuDeviceGetUuid", unsafe { (self.calls.cuDeviceGetUuid_v2)(&raw mut uuid, self.device) })?;
        Ok(uuid.bytes.map(|byte| byte.to_ne_bytes()[0]))
    }

    /// Returns the free bytes and the total bytes that the driver reports to this program.
    pub(super) fn memory(&self) -> Result<(u64, u64), String> {
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: the function needs outputs that are valid for writes: `free` and `total` are on this stack.
        checked("cuMemGetInfo", unsafe { (self.calls.cuMemGetInfo_v2)(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Allocates `bytes` of device memory by the call that `source` names. Physical memory is rounded up to the granularity.
    pub(super) fn allocate(&self, source: MemorySource, bytes: u64) -> Result<Block, Status> {
        let size = usize::try_from(bytes).map_err(|_| status::INVALID_VALUE)?;
        let mut address: CUdeviceptr = 0;
        let (status, block) = match source {
            MemorySource::Linear => {
                // SAFETY: the function needs an output that is valid for writes: `address` is on this stack.
                let status = unsafe { (self.calls.cuMemAlloc_v2)(&raw mut address, size) };
                (status, Block::Linear(address))
            }
            MemorySource::Physical => {
                let granule =
                    Some(self.granule).filter(|granule| *granule > 0).ok_or(status::NOT_SUPPORTED)?;
                let properties = ptr::from_ref(&self.properties).cast();
                let mut handle: CUmemGenericAllocationHandle = 0;
                let size = size.next_multiple_of(granule);
                // SAFETY: `properties` is in the driver's layout, and the output is a variable of this function.
                let status = unsafe { (self.calls.cuMemCreate)(&raw mut handle, size, properties, 0) };
                (status, Block::Physical(handle))
            }
            MemorySource::Ordered => {
                // SAFETY: the function needs an output that is valid for writes, and a living stream: `address` is on this stack,
                // and null is the default stream.
                let status = unsafe { (self.calls.cuMemAllocAsync)(&raw mut address, size, ptr::null_mut()) };
                (status, Block::Ordered(address))
            }
        };
        if status == status::SUCCESS { Ok(block) } else { Err(status) }
    }

    /// Loads the kernel.
    pub(super) fn kernel(&self) -> Result<CUfunction, String> {
        let (mut module, mut kernel) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: `CODE` is text that ends with a zero, and the output is a variable of this function.
        let loaded = unsafe { (self.calls.cuModuleLoadData)(&raw mut module, CODE.as_ptr().cast()) };
        checked("cuModuleLoadData", loaded)?;
        // SAFETY: `cuModuleLoadData` has just returned `module`, and the output is a variable of this function.
        let found = unsafe { (self.calls.cuModuleGetFunction)(&raw mut kernel, module, KERNEL.as_ptr()) };
        checked("cuModuleGetFunction", found)?;
        Ok(kernel)
    }

    /// Launches one batch of kernels, which keeps the device busy for some milliseconds. Waits until the batch has ended.
    pub(super) fn compute(&self, kernel: CUfunction) -> Result<(), String> {
        let mut sink = 0_u64;
        let mut parameters = [(&raw mut sink).cast()];
        let stream = ptr::null_mut();
        for _ in 0..BATCH {
            let (parameters, extra) = (parameters.as_mut_ptr(), ptr::null_mut());
            // SAFETY: `cuLaunchKernel` needs a kernel of this context, and parameters that fit it. `kernel` has one parameter of
            // 64 bits, and `sink` lives until the call has read it.
            let status = unsafe {
                (self.calls.cuLaunchKernel)(kernel, 4, 1, 1, 64, 1, 1, 0, stream, parameters, extra)
            };
            checked("cuLaunchKernel", status)?;
        }
        // SAFETY: the function needs a living stream: null is the default one.
        checked("cuStreamSynchronize", unsafe { (self.calls.cuStreamSynchronize)(stream) })
    }

    /// Frees a piece of device memory.
    pub(super) fn free(&self, block: Block) -> Result<(), String> {
        match block {
            // SAFETY: `allocate` returned this address, and the caller frees it once.
            Block::Linear(address) => checked("cuMemFree", unsafe { (self.calls.cuMemFree_v2)(address) }),
            // SAFETY: `allocate` returned this handle, and the caller frees it once.
            Block::Physical(handle) => checked("cuMemRelease", unsafe { (self.calls.cuMemRelease)(handle) }),
            Block::Ordered(address) => {
                // SAFETY: `allocate` returned this address, and the caller frees it once. The stream is the default
                // one.
                let status = unsafe { (self.calls.cuMemFreeAsync)(address, ptr::null_mut()) };
                checked("cuMemFreeAsync", status)?;
                // SAFETY: the function needs a living stream: null is the default one. At this synchronisation, the driver's
                // memory pool gives freed memory back to the device.
                checked("cuStreamSynchronize", unsafe { (self.calls.cuStreamSynchronize)(ptr::null_mut()) })
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // SAFETY: `open` retained this device's primary context.
        unsafe { (self.calls.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}
