//! Symbols of arrays and their views.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_array {
    ({ $next:ident $($files:ident)* } $then:tt $($rows:tt)*) => { $crate::$next! { { $($files)* } $then $($rows)*
    alloc_array: "Device memory in a layout of the driver's: its own memory requirement is charged" {
        charge cuArray3DCreate @2000(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR_v1) by array::create_3d_v1;
        charge cuArray3DCreate_v2 @3020(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR) by array::create_3d;
        charge cuArrayCreate @2000(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY_DESCRIPTOR_v1) by array::create_v1;
        charge cuArrayCreate_v2 @3020(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY_DESCRIPTOR) by array::create;
        charge cuMipmappedArrayCreate @5000(p_handle: *mut CUmipmappedArray, p_mipmapped_array_desc: *const CUDA_ARRAY3D_DESCRIPTOR, num_mipmap_levels: c_uint) by array::create_mipmapped;
    }
    array_query: "Describes an array or hands out a part of it; no new memory" {
        pass cuArray3DGetDescriptor @2000(p_array_descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR_v1, h_array: CUarray);
        pass cuArray3DGetDescriptor_v2 @3020(p_array_descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, h_array: CUarray);
        pass cuArrayGetDescriptor @2000(p_array_descriptor: *mut CUDA_ARRAY_DESCRIPTOR_v1, h_array: CUarray);
        pass cuArrayGetDescriptor_v2 @3020(p_array_descriptor: *mut CUDA_ARRAY_DESCRIPTOR, h_array: CUarray);
        pass cuArrayGetMemoryRequirements @11060(memory_requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, array: CUarray, device: CUdevice);
        pass cuArrayGetPlane @11020(p_plane_array: *mut CUarray, h_array: CUarray, plane_idx: c_uint);
        pass cuArrayGetSparseProperties @11010(sparse_properties: *mut CUDA_ARRAY_SPARSE_PROPERTIES, array: CUarray);
        pass cuMipmappedArrayGetLevel @5000(p_level_array: *mut CUarray, h_mipmapped_array: CUmipmappedArray, level: c_uint);
        pass cuMipmappedArrayGetMemoryRequirements @11060(memory_requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, mipmap: CUmipmappedArray, device: CUdevice);
        pass cuMipmappedArrayGetSparseProperties @11010(sparse_properties: *mut CUDA_ARRAY_SPARSE_PROPERTIES, mipmap: CUmipmappedArray);
    }
    texture: "Views of memory that is counted already" {
        pass cuSurfObjectCreate @5000(p_surf_object: *mut CUsurfObject, p_res_desc: *const CUDA_RESOURCE_DESC);
        pass cuSurfObjectDestroy @5000(surf_object: CUsurfObject);
        pass cuSurfObjectGetResourceDesc @5000(p_res_desc: *mut CUDA_RESOURCE_DESC, surf_object: CUsurfObject);
        pass cuSurfRefGetArray @3000(ph_array: *mut CUarray, h_surf_ref: CUsurfref);
        pass cuSurfRefSetArray @3000(h_surf_ref: CUsurfref, h_array: CUarray, flags: c_uint);
        pass cuTensorMapEncodeIm2col @12000(tensor_map: *mut CUtensorMap, tensor_data_type: c_uint, tensor_rank: c_uint, global_address: *mut c_void, global_dim: *const u64, global_strides: *const u64, pixel_box_lower_corner: *const c_int, pixel_box_upper_corner: *const c_int, channels_per_pixel: c_uint, pixels_per_column: c_uint, element_strides: *const c_uint, interleave: c_uint, swizzle: c_uint, l2_promotion: c_uint, oob_fill: c_uint);
        pass cuTensorMapEncodeIm2colWide @12080(tensor_map: *mut CUtensorMap, tensor_data_type: c_uint, tensor_rank: c_uint, global_address: *mut c_void, global_dim: *const u64, global_strides: *const u64, pixel_box_lower_corner_width: c_int, pixel_box_upper_corner_width: c_int, channels_per_pixel: c_uint, pixels_per_column: c_uint, element_strides: *const c_uint, interleave: c_uint, mode: c_uint, swizzle: c_uint, l2_promotion: c_uint, oob_fill: c_uint);
        pass cuTensorMapEncodeTiled @12000(tensor_map: *mut CUtensorMap, tensor_data_type: c_uint, tensor_rank: c_uint, global_address: *mut c_void, global_dim: *const u64, global_strides: *const u64, box_dim: *const c_uint, element_strides: *const c_uint, interleave: c_uint, swizzle: c_uint, l2_promotion: c_uint, oob_fill: c_uint);
        pass cuTensorMapReplaceAddress @12000(tensor_map: *mut CUtensorMap, global_address: *mut c_void);
        pass cuTensorMapSetAllocationClass @13050(tensor_map: *mut CUtensorMap, alloc_class: c_uint, out_alloc_class: *mut c_uint);
        pass cuTexObjectCreate @5000(p_tex_object: *mut CUtexObject, p_res_desc: *const CUDA_RESOURCE_DESC, p_tex_desc: *const CUDA_TEXTURE_DESC, p_res_view_desc: *const CUDA_RESOURCE_VIEW_DESC);
        pass cuTexObjectDestroy @5000(tex_object: CUtexObject);
        pass cuTexObjectGetResourceDesc @5000(p_res_desc: *mut CUDA_RESOURCE_DESC, tex_object: CUtexObject);
        pass cuTexObjectGetResourceViewDesc @5000(p_res_view_desc: *mut CUDA_RESOURCE_VIEW_DESC, tex_object: CUtexObject);
        pass cuTexObjectGetTextureDesc @5000(p_tex_desc: *mut CUDA_TEXTURE_DESC, tex_object: CUtexObject);
        pass cuTexRefCreate @2000(p_tex_ref: *mut CUtexref);
        pass cuTexRefDestroy @2000(h_tex_ref: CUtexref);
        pass cuTexRefGetAddress @2000(pdptr: *mut CUdeviceptr_v1, h_tex_ref: CUtexref);
        pass cuTexRefGetAddressMode @2000(pam: *mut CUaddress_mode, h_tex_ref: CUtexref, dim: c_int);
        pass cuTexRefGetAddress_v2 @3020(pdptr: *mut CUdeviceptr, h_tex_ref: CUtexref);
        pass cuTexRefGetArray @2000(ph_array: *mut CUarray, h_tex_ref: CUtexref);
        pass cuTexRefGetBorderColor @8000(p_border_color: *mut f32, h_tex_ref: CUtexref);
        pass cuTexRefGetFilterMode @2000(pfm: *mut CUfilter_mode, h_tex_ref: CUtexref);
        pass cuTexRefGetFlags @2000(p_flags: *mut c_uint, h_tex_ref: CUtexref);
        pass cuTexRefGetFormat @2000(p_format: *mut CUarray_format, p_num_channels: *mut c_int, h_tex_ref: CUtexref);
        pass cuTexRefGetMaxAnisotropy @5000(pmax_aniso: *mut c_int, h_tex_ref: CUtexref);
        pass cuTexRefGetMipmapFilterMode @5000(pfm: *mut CUfilter_mode, h_tex_ref: CUtexref);
        pass cuTexRefGetMipmapLevelBias @5000(pbias: *mut f32, h_tex_ref: CUtexref);
        pass cuTexRefGetMipmapLevelClamp @5000(pmin_mipmap_level_clamp: *mut f32, pmax_mipmap_level_clamp: *mut f32, h_tex_ref: CUtexref);
        pass cuTexRefGetMipmappedArray @5000(ph_mipmapped_array: *mut CUmipmappedArray, h_tex_ref: CUtexref);
        pass cuTexRefSetAddress @2000(byte_offset: *mut c_uint, h_tex_ref: CUtexref, dptr: CUdeviceptr_v1, bytes: c_uint);
        pass cuTexRefSetAddress2D @2020(h_tex_ref: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR_v1, dptr: CUdeviceptr_v1, pitch: c_uint);
        pass cuTexRefSetAddress2D_v2 @3020(h_tex_ref: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR, dptr: CUdeviceptr, pitch: usize);
        pass cuTexRefSetAddress2D_v3 @4010(h_tex_ref: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR, dptr: CUdeviceptr, pitch: usize);
        pass cuTexRefSetAddressMode @2000(h_tex_ref: CUtexref, dim: c_int, am: c_uint);
        pass cuTexRefSetAddress_v2 @3020(byte_offset: *mut usize, h_tex_ref: CUtexref, dptr: CUdeviceptr, bytes: usize);
        pass cuTexRefSetArray @2000(h_tex_ref: CUtexref, h_array: CUarray, flags: c_uint);
        pass cuTexRefSetBorderColor @8000(h_tex_ref: CUtexref, p_border_color: *mut f32);
        pass cuTexRefSetFilterMode @2000(h_tex_ref: CUtexref, fm: c_uint);
        pass cuTexRefSetFlags @2000(h_tex_ref: CUtexref, flags: c_uint);
        pass cuTexRefSetFormat @2000(h_tex_ref: CUtexref, fmt: c_uint, num_packed_components: c_int);
        pass cuTexRefSetMaxAnisotropy @5000(h_tex_ref: CUtexref, max_aniso: c_uint);
        pass cuTexRefSetMipmapFilterMode @5000(h_tex_ref: CUtexref, fm: c_uint);
        pass cuTexRefSetMipmapLevelBias @5000(h_tex_ref: CUtexref, bias: f32);
        pass cuTexRefSetMipmapLevelClamp @5000(h_tex_ref: CUtexref, min_mipmap_level_clamp: f32, max_mipmap_level_clamp: f32);
        pass cuTexRefSetMipmappedArray @5000(h_tex_ref: CUtexref, h_mipmapped_array: CUmipmappedArray, flags: c_uint);
    }
    } };
}
