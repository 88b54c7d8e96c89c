//! Functions of arrays and their views.

use gpuslice_driver::types::*;

use super::Arrays;
use super::methods::methods;
use crate::call::DriverCall;
use crate::model::arrays::{Shape, flag};
use crate::model::objects::{handle, pointer};
use crate::status::Outcome;

/// `CUDA_ARRAY_DESCRIPTOR`, with its format as a number.
#[repr(C)]
#[derive(Clone, Copy)]
struct Flat {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY_DESCRIPTOR` of the first generation: extents of 32 bits.
#[repr(C)]
#[derive(Clone, Copy)]
struct FirstFlat {
    width: u32,
    height: u32,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR` of the first generation.
#[repr(C)]
#[derive(Clone, Copy)]
struct First {
    width: u32,
    height: u32,
    depth: u32,
    format: u32,
    channels: u32,
    flags: u32,
}

const _: () = assert!(size_of::<Flat>() == size_of::<CUDA_ARRAY_DESCRIPTOR>());
const _: () = assert!(size_of::<Shape>() == size_of::<CUDA_ARRAY3D_DESCRIPTOR>());

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Requirements {
    size: usize,
    alignment: usize,
    reserved: [u32; 4],
}

/// Size of a tile of a sparse array, in bytes.
const TILE: u64 = 64 << 10;

const _: () = assert!(size_of::<CUDA_ARRAY_SPARSE_PROPERTIES>() == size_of::<[u32; 12]>());

impl DriverCall {
    fn create_array(&self, to: *mut CUarray, shape: Shape) -> Outcome {
        if to.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        objects.unsafe_call()?;
        let array = objects.make_array(simulation, shape)?;
        self.write(to, pointer(array))
    }

    /// Destroys an array, once all queued work has ended.
    pub(super) fn destroy_array(&self, array: u64) -> Outcome {
        let simulation = self.simulation()?;
        let context = simulation.objects().arrays.get(array)?.context;
        simulation.wait_for_context(context)?;
        simulation.objects().end_array(simulation, array)
    }

    /// Destroys a mipmapped array, once all queued work has ended.
    pub(super) fn destroy_mipmap(&self, mipmap: u64) -> Outcome {
        let simulation = self.simulation()?;
        let context = simulation.objects().arrays.mipmap(mipmap)?.context;
        simulation.wait_for_context(context)?;
        simulation.objects().end_mipmap(simulation, mipmap)
    }

    fn array_shape(&self, array: CUarray) -> Result<Shape, Status> {
        let objects = self.simulation()?.objects();
        Ok(objects.arrays.get(handle(array))?.shape)
    }

    fn mipmap_shape(&self, mipmap: CUmipmappedArray) -> Result<(Shape, u32), Status> {
        let objects = self.simulation()?.objects();
        objects.arrays.mipmap(handle(mipmap)).map(|mipmap| (mipmap.shape, mipmap.levels))
    }

    /// Writes the memory requirements of an array. As with the real driver, only an array with deferred mapping has any.
    fn requirements(&self, to: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, shape: Shape, levels: u32) -> Outcome {
        if shape.is_backed() {
            return Err(status::INVALID_VALUE);
        }
        let size = shape.size(levels).and_then(|size| size.checked_next_multiple_of(TILE));
        let size = size.ok_or(status::INVALID_VALUE)? as usize;
        self.write(to.cast(), Requirements { size, alignment: TILE as usize, reserved: [0; 4] })
    }

    /// Writes the properties of a sparse array. Its tiles have 256 by 256 bytes, and no two levels share a tile.
    fn sparse(&self, to: *mut CUDA_ARRAY_SPARSE_PROPERTIES, shape: Shape, levels: u32) -> Outcome {
        if shape.flags & flag::SPARSE == 0 {
            return Err(status::INVALID_VALUE);
        }
        self.write(to.cast::<[u32; 12]>(), [256, 256, 1, levels, 0, 0, 0, 0, 0, 0, 0, 0])
    }

    fn create_view(&self, to: *mut u64) -> Outcome {
        let mut objects = self.simulation()?.objects();
        objects.current()?;
        let view = objects.textures.add(());
        self.write(to, view)
    }
}

fn first_flat(shape: Shape) -> Result<FirstFlat, Status> {
    let narrow = |extent: usize| u32::try_from(extent).map_err(|_| status::INVALID_VALUE);
    let (width, height) = (narrow(shape.width)?, narrow(shape.height)?);
    Ok(FirstFlat { width, height, format: shape.format, channels: shape.channels })
}

impl Arrays for DriverCall {
    methods! { self;
        cuArrayCreate_v2(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY_DESCRIPTOR) => {
            let flat: Flat = self.read(p_allocate_array.cast())?;
            let Flat { width, height, format, channels } = flat;
            self.create_array(p_handle, Shape { width, height, depth: 0, format, channels, flags: 0 })
        };
        cuArray3DCreate_v2(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR) =>
            self.create_array(p_handle, self.read(p_allocate_array.cast())?);
        cuArrayCreate(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY_DESCRIPTOR_v1) => {
            let flat: FirstFlat = self.read(p_allocate_array.cast())?;
            let (width, height) = (flat.width as usize, flat.height as usize);
            let (format, channels) = (flat.format, flat.channels);
            self.create_array(p_handle, Shape { width, height, depth: 0, format, channels, flags: 0 })
        };
        cuArray3DCreate(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR_v1) => {
            let first: First = self.read(p_allocate_array.cast())?;
            let (width, height, depth) = (first.width as usize, first.height as usize, first.depth as usize);
            let (format, channels, flags) = (first.format, first.channels, first.flags);
            self.create_array(p_handle, Shape { width, height, depth, format, channels, flags })
        };
        cuMipmappedArrayCreate(p_handle: *mut CUmipmappedArray, p_mipmapped_array_desc: *const CUDA_ARRAY3D_DESCRIPTOR,
            num_mipmap_levels: c_uint) => {
            if p_handle.is_null() {
                return Err(status::INVALID_VALUE);
            }
            let shape: Shape = self.read(p_mipmapped_array_desc.cast())?;
            let simulation = self.simulation()?;
            let mipmap = simulation.objects().make_mipmap(simulation, shape, num_mipmap_levels)?;
            self.write(p_handle, pointer(mipmap))
        };
        cuMipmappedArrayGetLevel(p_level_array: *mut CUarray, h_mipmapped_array: CUmipmappedArray, level: c_uint) => {
            let array = self.simulation()?.objects().mip_level(handle(h_mipmapped_array), level)?;
            self.write(p_level_array, pointer(array))
        };
        cuArray3DGetDescriptor_v2(p_array_descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, h_array: CUarray) =>
            self.write(p_array_descriptor.cast(), self.array_shape(h_array)?);
        cuArrayGetDescriptor_v2(p_array_descriptor: *mut CUDA_ARRAY_DESCRIPTOR, h_array: CUarray) => {
            let Shape { width, height, format, channels, .. } = self.array_shape(h_array)?;
            self.write(p_array_descriptor.cast(), Flat { width, height, format, channels })
        };
        cuArrayGetDescriptor(p_array_descriptor: *mut CUDA_ARRAY_DESCRIPTOR_v1, h_array: CUarray) =>
            self.write(p_array_descriptor.cast(), first_flat(self.array_shape(h_array)?)?);
        cuArray3DGetDescriptor(p_array_descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR_v1, h_array: CUarray) => {
            let shape = self.array_shape(h_array)?;
            let FirstFlat { width, height, format, channels } = first_flat(shape)?;
            let depth = u32::try_from(shape.depth).map_err(|_| status::INVALID_VALUE)?;
            let flags = shape.flags;
            self.write(p_array_descriptor.cast(), First { width, height, depth, format, channels, flags })
        };
        cuArrayGetMemoryRequirements(memory_requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, array: CUarray,
            _device: CUdevice) => self.requirements(memory_requirements, self.array_shape(array)?, 1);
        cuMipmappedArrayGetMemoryRequirements(memory_requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
            mipmap: CUmipmappedArray, _device: CUdevice) => {
            let (shape, levels) = self.mipmap_shape(mipmap)?;
            self.requirements(memory_requirements, shape, levels)
        };
        cuArrayGetSparseProperties(sparse_properties: *mut CUDA_ARRAY_SPARSE_PROPERTIES, array: CUarray) =>
            self.sparse(sparse_properties, self.array_shape(array)?, 1);
        cuMipmappedArrayGetSparseProperties(sparse_properties: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
            mipmap: CUmipmappedArray) => {
            let (shape, levels) = self.mipmap_shape(mipmap)?;
            self.sparse(sparse_properties, shape, levels)
        };
        cuTexObjectCreate(p_tex_object: *mut CUtexObject, _p_res_desc: *const CUDA_RESOURCE_DESC,
            _p_tex_desc: *const CUDA_TEXTURE_DESC, _p_res_view_desc: *const CUDA_RESOURCE_VIEW_DESC) =>
            self.create_view(p_tex_object);
        cuTexObjectDestroy(tex_object: CUtexObject) => self.simulation()?.objects().textures.remove(tex_object);
        cuSurfObjectCreate(p_surf_object: *mut CUsurfObject, _p_res_desc: *const CUDA_RESOURCE_DESC) =>
            self.create_view(p_surf_object);
        cuSurfObjectDestroy(surf_object: CUsurfObject) => self.simulation()?.objects().textures.remove(surf_object);
        cuTensorMapEncodeTiled(tensor_map: *mut CUtensorMap, _tensor_data_type: c_uint, tensor_rank: c_uint,
            _global_address: *mut c_void, _global_dim: *const u64, _global_strides: *const u64,
            _box_dim: *const c_uint, _element_strides: *const c_uint, _interleave: c_uint, _swizzle: c_uint,
            _l2_promotion: c_uint, _oob_fill: c_uint) => {
            if !(1..=5).contains(&tensor_rank) {
                return Err(status::INVALID_VALUE);
            }
            self.write(tensor_map.cast::<[u8; 128]>(), [0; 128])
        };
    }
}
