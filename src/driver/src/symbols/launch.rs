//! Symbols that load and launch kernels.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_launch {
    ({ $next:ident $($files:ident)* } $then:tt $($rows:tt)*) => { $crate::$next! { { $($files)* } $then $($rows)*
    launch: "Submits a kernel" {
        gate cuLaunchCooperativeKernel @9000(f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: CUstream, kernel_params: *mut *mut c_void) by launch::cooperative;
        gate cuLaunchCooperativeKernelMultiDevice @9000(launch_params_list: *mut CUDA_LAUNCH_PARAMS, num_devices: c_uint, flags: c_uint) by launch::on_all_devices;
        gate cuLaunchCooperativeKernel_ptsz @9000(f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: CUstream, kernel_params: *mut *mut c_void) by launch::cooperative_per_thread;
        gate cuLaunchKernel @4000(f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: CUstream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) by launch::kernel;
        gate cuLaunchKernelEx @11060(config: *const CUlaunchConfig, f: CUfunction, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) by launch::configured;
        gate cuLaunchKernelEx_ptsz @11060(config: *const CUlaunchConfig, f: CUfunction, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) by launch::configured_per_thread;
        gate cuLaunchKernel_ptsz @7000(f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: CUstream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) by launch::kernel_per_thread;
    }
    launch_legacy: "Submits a kernel through the first interface" {
        gate cuLaunch @2000(f: CUfunction) by launch::single;
        gate cuLaunchGrid @2000(f: CUfunction, grid_width: c_int, grid_height: c_int) by launch::grid;
        gate cuLaunchGridAsync @2000(f: CUfunction, grid_width: c_int, grid_height: c_int, h_stream: CUstream) by launch::grid_async;
    }
    launch_state: "Stores parameters for a later launch" {
        pass cuFuncSetBlockShape @2000(hfunc: CUfunction, x: c_int, y: c_int, z: c_int);
        pass cuFuncSetSharedSize @2000(hfunc: CUfunction, bytes: c_uint);
        pass cuParamSetSize @2000(hfunc: CUfunction, numbytes: c_uint);
        pass cuParamSetTexRef @2000(hfunc: CUfunction, texunit: c_int, h_tex_ref: CUtexref);
        pass cuParamSetf @2000(hfunc: CUfunction, offset: c_int, value: f32);
        pass cuParamSeti @2000(hfunc: CUfunction, offset: c_int, value: c_uint);
        pass cuParamSetv @2000(hfunc: CUfunction, offset: c_int, ptr: *mut c_void, numbytes: c_uint);
    }
    host_callback: "Host work in stream order. Its time is kept out of that of kernels" {
        watch cuLaunchHostFunc @10000(h_stream: CUstream, function: CUhostFn, user_data: *mut c_void) by stream_waits::first_of_three;
        watch cuLaunchHostFunc_ptsz @10000(h_stream: CUstream, function: CUhostFn, user_data: *mut c_void) by stream_waits::first_of_three_per_thread;
        watch cuLaunchHostFunc_v2 @13010(h_stream: CUstream, function: CUhostFn, user_data: *mut c_void, sync_mode: c_uint) by stream_waits::first_of_four;
        watch cuLaunchHostFunc_v2_ptsz @13010(h_stream: CUstream, function: CUhostFn, user_data: *mut c_void, sync_mode: c_uint) by stream_waits::first_of_four_per_thread;
        watch cuStreamAddCallback @5000(h_stream: CUstream, callback: CUstreamCallback, user_data: *mut c_void, flags: c_uint) by stream_waits::first_of_four;
        watch cuStreamAddCallback_ptsz @7000(h_stream: CUstream, callback: CUstreamCallback, user_data: *mut c_void, flags: c_uint) by stream_waits::first_of_four_per_thread;
    }
    occupancy: "Pure calculation" {
        pass cuOccupancyAvailableDynamicSMemPerBlock @10020(dynamic_smem_size: *mut usize, func: CUfunction, num_blocks: c_int, block_size: c_int);
        pass cuOccupancyMaxActiveBlocksPerMultiprocessor @6050(num_blocks: *mut c_int, func: CUfunction, block_size: c_int, dynamic_s_mem_size: usize);
        pass cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags @7000(num_blocks: *mut c_int, func: CUfunction, block_size: c_int, dynamic_s_mem_size: usize, flags: c_uint);
        pass cuOccupancyMaxActiveClusters @11070(num_clusters: *mut c_int, func: CUfunction, config: *const CUlaunchConfig);
        pass cuOccupancyMaxPotentialBlockSize @6050(min_grid_size: *mut c_int, block_size: *mut c_int, func: CUfunction, block_size_to_dynamic_s_mem_size: CUoccupancyB2DSize, dynamic_s_mem_size: usize, block_size_limit: c_int);
        pass cuOccupancyMaxPotentialBlockSizeWithFlags @7000(min_grid_size: *mut c_int, block_size: *mut c_int, func: CUfunction, block_size_to_dynamic_s_mem_size: CUoccupancyB2DSize, dynamic_s_mem_size: usize, block_size_limit: c_int, flags: c_uint);
        pass cuOccupancyMaxPotentialClusterSize @11070(cluster_size: *mut c_int, func: CUfunction, config: *const CUlaunchConfig);
    }
    module_load: "Code and device variables take device memory" {
        charge cuLibraryLoadData @12000(library: *mut CUlibrary, code: *const c_void, jit_options: *mut CUjit_option, jit_options_values: *mut *mut c_void, num_jit_options: c_uint, library_options: *mut CUlibraryOption, library_option_values: *mut *mut c_void, num_library_options: c_uint) by library::load_data;
        charge cuLibraryLoadFromFile @12000(library: *mut CUlibrary, file_name: *const c_char, jit_options: *mut CUjit_option, jit_options_values: *mut *mut c_void, num_jit_options: c_uint, library_options: *mut CUlibraryOption, library_option_values: *mut *mut c_void, num_library_options: c_uint) by library::load_file;
        charge cuModuleLoad @2000(module: *mut CUmodule, fname: *const c_char) by module::load;
        charge cuModuleLoadData @2000(module: *mut CUmodule, image: *const c_void) by module::load_data;
        charge cuModuleLoadDataEx @2010(module: *mut CUmodule, image: *const c_void, num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void) by module::load_data_ex;
        charge cuModuleLoadFatBinary @2000(module: *mut CUmodule, fat_cubin: *const c_void) by module::load_data;
    }
    module_lazy: "May be the call that completes a deferred load" {
        watch cuFuncLoad @12040(function: CUfunction) by module::load_function;
        watch cuKernelGetFunction @12000(p_func: *mut CUfunction, kernel: CUkernel) by library_handles::kernel_function;
        watch cuLibraryEnumerateKernels @12040(kernels: *mut CUkernel, num_kernels: c_uint, lib: CUlibrary) by library_handles::kernels;
        watch cuLibraryGetGlobal @12000(dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) by library_handles::variable;
        watch cuLibraryGetKernel @12000(p_kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) by library_handles::kernel;
        watch cuLibraryGetManaged @12000(dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) by library_handles::variable;
        watch cuLibraryGetModule @12000(p_mod: *mut CUmodule, library: CUlibrary) by library_handles::get_module;
        watch cuLibraryGetUnifiedFunction @12000(fptr: *mut *mut c_void, library: CUlibrary, symbol: *const c_char) by library_handles::unified_function;
        watch cuModuleGetFunction @2000(hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char) by module::function;
        watch cuModuleGetGlobal @2000(dptr: *mut CUdeviceptr_v1, bytes: *mut c_uint, hmod: CUmodule, name: *const c_char) by module::variable_v1;
        watch cuModuleGetGlobal_v2 @3020(dptr: *mut CUdeviceptr, bytes: *mut usize, hmod: CUmodule, name: *const c_char) by module::variable;
    }
    module_unload: "Gives back code and device variables" {
        release cuLibraryUnload @12000(library: CUlibrary) by library::unload;
        release cuModuleUnload @2000(hmod: CUmodule) by module::unload;
    }
    module_query: "Names, handles and attributes" {
        pass cuFuncGetAttribute @2020(pi: *mut c_int, attrib: c_uint, hfunc: CUfunction);
        pass cuFuncGetModule @11000(hmod: *mut CUmodule, hfunc: CUfunction);
        pass cuFuncGetName @12030(name: *mut *const c_char, hfunc: CUfunction);
        pass cuFuncGetParamCount @13020(func: CUfunction, param_count: *mut usize);
        pass cuFuncGetParamInfo @12040(func: CUfunction, param_index: usize, param_offset: *mut usize, param_size: *mut usize);
        pass cuFuncIsLoaded @12040(state: *mut CUfunctionLoadingState, function: CUfunction);
        pass cuFuncSetAttribute @9000(hfunc: CUfunction, attrib: c_uint, value: c_int);
        pass cuFuncSetCacheConfig @3000(hfunc: CUfunction, config: c_uint);
        pass cuFuncSetSharedMemConfig @4020(hfunc: CUfunction, config: c_uint);
        pass cuKernelGetAttribute @12000(pi: *mut c_int, attrib: c_uint, kernel: CUkernel, dev: CUdevice);
        pass cuKernelGetLibrary @12050(p_lib: *mut CUlibrary, kernel: CUkernel);
        pass cuKernelGetName @12030(name: *mut *const c_char, hfunc: CUkernel);
        pass cuKernelGetParamCount @13020(kernel: CUkernel, param_count: *mut usize);
        pass cuKernelGetParamInfo @12040(kernel: CUkernel, param_index: usize, param_offset: *mut usize, param_size: *mut usize);
        pass cuKernelSetAttribute @12000(attrib: c_uint, val: c_int, kernel: CUkernel, dev: CUdevice);
        pass cuKernelSetCacheConfig @12000(kernel: CUkernel, config: c_uint, dev: CUdevice);
        pass cuLibraryGetKernelCount @12040(count: *mut c_uint, lib: CUlibrary);
        pass cuModuleEnumerateFunctions @12040(functions: *mut CUfunction, num_functions: c_uint, module: CUmodule);
        pass cuModuleGetFunctionCount @12040(count: *mut c_uint, module: CUmodule);
        pass cuModuleGetLoadingMode @11070(mode: *mut CUmoduleLoadingMode);
        pass cuModuleGetSurfRef @3000(p_surf_ref: *mut CUsurfref, hmod: CUmodule, name: *const c_char);
        pass cuModuleGetTexRef @2000(p_tex_ref: *mut CUtexref, hmod: CUmodule, name: *const c_char);
    }
    link: "Linking on the host" {
        pass cuLinkAddData @5050(state: CUlinkState, kind: c_uint, data: *mut c_void, size: usize, name: *const c_char, num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void);
        pass cuLinkAddData_v2 @6050(state: CUlinkState, kind: c_uint, data: *mut c_void, size: usize, name: *const c_char, num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void);
        pass cuLinkAddFile @5050(state: CUlinkState, kind: c_uint, path: *const c_char, num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void);
        pass cuLinkAddFile_v2 @6050(state: CUlinkState, kind: c_uint, path: *const c_char, num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void);
        pass cuLinkComplete @5050(state: CUlinkState, cubin_out: *mut *mut c_void, size_out: *mut usize);
        pass cuLinkCreate @5050(num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void, state_out: *mut CUlinkState);
        pass cuLinkCreate_v2 @6050(num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void, state_out: *mut CUlinkState);
        pass cuLinkDestroy @5050(state: CUlinkState);
    }
    } };
}
