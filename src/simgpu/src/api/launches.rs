//! Functions that launch kernels.

use gpuslice_driver::types::*;

use super::Launches;
use super::methods::methods;
use super::submit::StreamArgument;
use crate::call::DriverCall;
use crate::hardware::attributes;
use crate::model::objects::{handle, pointer};

impl Launches for DriverCall {
    methods! { self;
        cuLaunchKernel(f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint,
            block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint,
            h_stream: CUstream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) =>
            self.launch_on(StreamArgument::legacy(h_stream), f, ([grid_dim_x, grid_dim_y, grid_dim_z],
                [block_dim_x, block_dim_y, block_dim_z], shared_mem_bytes), kernel_params, extra);
        cuLaunchKernel_ptsz(f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint,
            block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint,
            h_stream: CUstream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) =>
            self.launch_on(StreamArgument::per_thread(h_stream), f, ([grid_dim_x, grid_dim_y, grid_dim_z],
                [block_dim_x, block_dim_y, block_dim_z], shared_mem_bytes), kernel_params, extra);
        cuLaunchCooperativeKernel(f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint,
            block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint,
            h_stream: CUstream, kernel_params: *mut *mut c_void) =>
            self.launch_on(StreamArgument::legacy(h_stream), f, ([grid_dim_x, grid_dim_y, grid_dim_z],
                [block_dim_x, block_dim_y, block_dim_z], shared_mem_bytes), kernel_params, core::ptr::null_mut());
        cuLaunchCooperativeKernel_ptsz(f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint,
            block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint,
            h_stream: CUstream, kernel_params: *mut *mut c_void) =>
            self.launch_on(StreamArgument::per_thread(h_stream), f, ([grid_dim_x, grid_dim_y, grid_dim_z],
                [block_dim_x, block_dim_y, block_dim_z], shared_mem_bytes), kernel_params, core::ptr::null_mut());
        cuLaunchKernelEx(config: *const CUlaunchConfig, f: CUfunction, kernel_params: *mut *mut c_void,
            extra: *mut *mut c_void) => self.launch_config(config, f, kernel_params, extra, false);
        cuLaunchKernelEx_ptsz(config: *const CUlaunchConfig, f: CUfunction, kernel_params: *mut *mut c_void,
            extra: *mut *mut c_void) => self.launch_config(config, f, kernel_params, extra, true);
        cuLaunchCooperativeKernelMultiDevice(launch_params_list: *mut CUDA_LAUNCH_PARAMS, num_devices: c_uint,
            _flags: c_uint) => self.launch_multi(launch_params_list, num_devices);
        cuLaunch(f: CUfunction) => self.launch_classic(f, 1, 1, core::ptr::null_mut());
        cuLaunchGrid(f: CUfunction, grid_width: c_int, grid_height: c_int) =>
            self.launch_classic(f, grid_width, grid_height, core::ptr::null_mut());
        cuLaunchGridAsync(f: CUfunction, grid_width: c_int, grid_height: c_int, h_stream: CUstream) =>
            self.launch_classic(f, grid_width, grid_height, h_stream);

        cuFuncSetBlockShape(hfunc: CUfunction, x: c_int, y: c_int, z: c_int) => {
            let mut objects = self.simulation()?.objects();
            let size = |value: c_int| u32::try_from(value).map_err(|_| status::INVALID_VALUE);
            objects.code.functions.get_mut(handle(hfunc))?.block = [size(x)?, size(y)?, size(z)?];
            Ok(())
        };
        cuFuncSetSharedSize(hfunc: CUfunction, bytes: c_uint) => {
            self.simulation()?.objects().code.functions.get_mut(handle(hfunc))?.shared = bytes;
            Ok(())
        };
        cuParamSetSize(hfunc: CUfunction, _numbytes: c_uint) => self.set_parameter(hfunc);
        cuParamSetf(hfunc: CUfunction, _offset: c_int, _value: f32) => self.set_parameter(hfunc);
        cuParamSeti(hfunc: CUfunction, _offset: c_int, _value: c_uint) => self.set_parameter(hfunc);
        cuParamSetv(hfunc: CUfunction, _offset: c_int, _ptr: *mut c_void, _numbytes: c_uint) =>
            self.set_parameter(hfunc);

        cuLaunchHostFunc(h_stream: CUstream, function: CUhostFn, user_data: *mut c_void) =>
            self.host_function(StreamArgument::legacy(h_stream), function, user_data);
        cuLaunchHostFunc_ptsz(h_stream: CUstream, function: CUhostFn, user_data: *mut c_void) =>
            self.host_function(StreamArgument::per_thread(h_stream), function, user_data);
        cuLaunchHostFunc_v2(h_stream: CUstream, function: CUhostFn, user_data: *mut c_void, _sync_mode: c_uint) =>
            self.host_function(StreamArgument::legacy(h_stream), function, user_data);
        cuLaunchHostFunc_v2_ptsz(h_stream: CUstream, function: CUhostFn, user_data: *mut c_void, _sync_mode: c_uint) =>
            self.host_function(StreamArgument::per_thread(h_stream), function, user_data);
        cuStreamAddCallback(h_stream: CUstream, callback: CUstreamCallback, user_data: *mut c_void, flags: c_uint) =>
            self.callback(StreamArgument::legacy(h_stream), callback, user_data, flags);
        cuStreamAddCallback_ptsz(h_stream: CUstream, callback: CUstreamCallback, user_data: *mut c_void,
            flags: c_uint) => self.callback(StreamArgument::per_thread(h_stream), callback, user_data, flags);

        cuOccupancyMaxActiveBlocksPerMultiprocessor(num_blocks: *mut c_int, func: CUfunction, block_size: c_int,
            dynamic_s_mem_size: usize) =>
            self.write(num_blocks, self.resident(func, block_size, dynamic_s_mem_size)? as c_int);
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(num_blocks: *mut c_int, func: CUfunction,
            block_size: c_int, dynamic_s_mem_size: usize, _flags: c_uint) =>
            self.write(num_blocks, self.resident(func, block_size, dynamic_s_mem_size)? as c_int);
        cuOccupancyMaxPotentialBlockSize(min_grid_size: *mut c_int, block_size: *mut c_int, func: CUfunction,
            _block_size_to_dynamic_s_mem_size: CUoccupancyB2DSize, dynamic_s_mem_size: usize,
            block_size_limit: c_int) =>
            self.best_block(min_grid_size, block_size, func, dynamic_s_mem_size, block_size_limit);
        cuOccupancyMaxPotentialBlockSizeWithFlags(min_grid_size: *mut c_int, block_size: *mut c_int, func: CUfunction,
            _block_size_to_dynamic_s_mem_size: CUoccupancyB2DSize, dynamic_s_mem_size: usize,
            block_size_limit: c_int, _flags: c_uint) =>
            self.best_block(min_grid_size, block_size, func, dynamic_s_mem_size, block_size_limit);
        cuOccupancyAvailableDynamicSMemPerBlock(dynamic_smem_size: *mut usize, func: CUfunction, num_blocks: c_int,
            block_size: c_int) => {
            self.resident(func, block_size, 0)?;
            let blocks = u32::try_from(num_blocks).ok().filter(|blocks| *blocks > 0).ok_or(status::INVALID_VALUE)?;
            let each = (attributes::SHARED_PER_PROCESSOR / blocks).saturating_sub(1024);
            self.write(dynamic_smem_size, each.min(attributes::SHARED_OPT_IN) as usize)
        };
        cuOccupancyMaxPotentialClusterSize(cluster_size: *mut c_int, func: CUfunction,
            config: *const CUlaunchConfig) =>
            self.write(cluster_size, self.potential_cluster(func, config)? as c_int);
        cuOccupancyMaxActiveClusters(num_clusters: *mut c_int, func: CUfunction, config: *const CUlaunchConfig) =>
            self.write(num_clusters, self.active_clusters(func, config)? as c_int);

        cuModuleLoad(module: *mut CUmodule, fname: *const c_char) => {
            let image = self.image_file(fname)?;
            self.load_module(module, image)
        };
        cuModuleLoadData(module: *mut CUmodule, image: *const c_void) => {
            let image = self.image(image)?;
            self.load_module(module, image)
        };
        cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, _num_options: c_uint,
            _options: *mut CUjit_option, _option_values: *mut *mut c_void) => {
            let image = self.image(image)?;
            self.load_module(module, image)
        };
        cuModuleLoadFatBinary(module: *mut CUmodule, fat_cubin: *const c_void) => {
            let image = self.image(fat_cubin)?;
            self.load_module(module, image)
        };
        cuModuleUnload(hmod: CUmodule) => {
            let simulation = self.simulation()?;
            let mut objects = simulation.objects();
            objects.current()?;
            objects.unload(simulation, handle(hmod))
        };
        cuModuleGetFunction(hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char) => {
            let simulation = self.simulation()?;
            let name = self.text(name)?.to_string_lossy();
            simulation.make_way_for_code(|objects| objects.context_awaiting(handle(hmod)));
            let function = simulation.objects().function(simulation, handle(hmod), &name)?;
            self.write(hfunc, pointer(function))
        };
        cuModuleGetGlobal(dptr: *mut CUdeviceptr_v1, bytes: *mut c_uint, hmod: CUmodule, name: *const c_char) => {
            let _ = (dptr, bytes, hmod, self.text(name)?);
            Err(status::NOT_SUPPORTED)
        };
        cuModuleGetGlobal_v2(dptr: *mut CUdeviceptr, bytes: *mut usize, hmod: CUmodule, name: *const c_char) =>
            self.module_variable(dptr, bytes, handle(hmod), name);
        cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule) =>
            self.write(count, self.simulation()?.objects().function_names(handle(module))?.len() as c_uint);
        cuModuleEnumerateFunctions(functions: *mut CUfunction, num_functions: c_uint, module: CUmodule) => {
            let simulation = self.simulation()?;
            let names = simulation.objects().function_names(handle(module))?;
            for (index, name) in names.iter().take(num_functions as usize).enumerate() {
                let function = simulation.objects().partial(simulation, handle(module), name)?;
                self.write_at(functions, index, pointer(function))?;
            }
            Ok(())
        };
        cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) => {
            let lazy = self.simulation()?.config.lazy;
            self.write(mode.cast::<c_uint>(), if lazy { 2 } else { 1 })
        };

        cuLibraryLoadData(library: *mut CUlibrary, code: *const c_void, _jit_options: *mut CUjit_option,
            _jit_options_values: *mut *mut c_void, _num_jit_options: c_uint, _library_options: *mut CUlibraryOption,
            _library_option_values: *mut *mut c_void, _num_library_options: c_uint) => {
            let image = self.image(code)?;
            self.load_library(library, image)
        };
        cuLibraryLoadFromFile(library: *mut CUlibrary, file_name: *const c_char, _jit_options: *mut CUjit_option,
            _jit_options_values: *mut *mut c_void, _num_jit_options: c_uint, _library_options: *mut CUlibraryOption,
            _library_option_values: *mut *mut c_void, _num_library_options: c_uint) => {
            let image = self.image_file(file_name)?;
            self.load_library(library, image)
        };
        cuLibraryUnload(library: CUlibrary) => {
            let simulation = self.simulation()?;
            simulation.objects().end_library(simulation, handle(library))
        };
        cuLibraryGetModule(p_mod: *mut CUmodule, library: CUlibrary) => {
            let simulation = self.simulation()?;
            let module = simulation.objects().library_module(simulation, handle(library))?;
            self.write(p_mod, pointer(module))
        };
        cuLibraryGetKernel(p_kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) => {
            let name = self.text(name)?.to_string_lossy();
            let kernel = self.simulation()?.objects().kernel(handle(library), &name)?;
            self.write(p_kernel, pointer(kernel))
        };
        cuLibraryGetKernelCount(count: *mut c_uint, lib: CUlibrary) =>
            self.write(count, self.simulation()?.objects().kernel_names(handle(lib))?.len() as c_uint);
        cuLibraryEnumerateKernels(kernels: *mut CUkernel, num_kernels: c_uint, lib: CUlibrary) => {
            let mut objects = self.simulation()?.objects();
            let names = objects.kernel_names(handle(lib))?;
            for (index, name) in names.iter().take(num_kernels as usize).enumerate() {
                let kernel = objects.kernel(handle(lib), name)?;
                self.write_at(kernels, index, pointer(kernel))?;
            }
            Ok(())
        };
        cuLibraryGetGlobal(dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) =>
            self.library_variable(dptr, bytes, library, name);
        cuLibraryGetManaged(dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) =>
            self.library_variable(dptr, bytes, library, name);
        cuKernelGetFunction(p_func: *mut CUfunction, kernel: CUkernel) => {
            let function = self.ready(handle(kernel))?;
            self.write(p_func, pointer(function))
        };
        cuKernelGetLibrary(p_lib: *mut CUlibrary, kernel: CUkernel) =>
            self.write(p_lib, pointer(self.simulation()?.objects().code.kernels.get(handle(kernel))?.library));
        cuKernelGetName(name: *mut *const c_char, hfunc: CUkernel) => {
            let objects = self.simulation()?.objects();
            self.write(name, objects.code.kernels.get(handle(hfunc))?.name.as_ptr())
        };
        cuKernelGetAttribute(pi: *mut c_int, attrib: c_uint, kernel: CUkernel, _dev: CUdevice) => {
            let settings = self.simulation()?.objects().code.kernels.get(handle(kernel))?.settings;
            self.write(pi, settings.get(attrib)?)
        };
        cuKernelSetAttribute(attrib: c_uint, val: c_int, kernel: CUkernel, _dev: CUdevice) => {
            let mut objects = self.simulation()?.objects();
            objects.code.kernels.get_mut(handle(kernel))?.settings.set(attrib, val)
        };
        cuKernelSetCacheConfig(kernel: CUkernel, _config: c_uint, _dev: CUdevice) =>
            self.simulation()?.objects().code.kernels.get(handle(kernel)).map(|_| ());

        cuFuncGetAttribute(pi: *mut c_int, attrib: c_uint, hfunc: CUfunction) => {
            let function = self.ready(handle(hfunc))?;
            let objects = self.simulation()?.objects();
            self.write(pi, objects.code.functions.get(function)?.settings.get(attrib)?)
        };
        cuFuncSetAttribute(hfunc: CUfunction, attrib: c_uint, value: c_int) => {
            let function = self.ready(handle(hfunc))?;
            let mut objects = self.simulation()?.objects();
            objects.code.functions.get_mut(function)?.settings.set(attrib, value)
        };
        cuFuncSetCacheConfig(hfunc: CUfunction, _config: c_uint) => self.set_parameter(hfunc);
        cuFuncSetSharedMemConfig(hfunc: CUfunction, _config: c_uint) => self.set_parameter(hfunc);
        cuFuncGetModule(hmod: *mut CUmodule, hfunc: CUfunction) =>
            self.write(hmod, pointer(self.simulation()?.objects().code.functions.get(handle(hfunc))?.module));
        cuFuncGetName(name: *mut *const c_char, hfunc: CUfunction) => {
            let objects = self.simulation()?.objects();
            self.write(name, objects.code.functions.get(handle(hfunc))?.name.as_ptr())
        };
        cuFuncIsLoaded(state: *mut CUfunctionLoadingState, function: CUfunction) => {
            let is_loaded = self.simulation()?.objects().is_loaded(handle(function))?;
            self.write(state.cast::<c_uint>(), c_uint::from(is_loaded))
        };
        cuFuncLoad(function: CUfunction) => self.ready(handle(function)).map(drop);

        cuLinkCreate(_num_options: c_uint, _options: *mut CUjit_option, _option_values: *mut *mut c_void,
            state_out: *mut CUlinkState) => self.create_linker(state_out);
        cuLinkCreate_v2(_num_options: c_uint, _options: *mut CUjit_option, _option_values: *mut *mut c_void,
            state_out: *mut CUlinkState) => self.create_linker(state_out);
        cuLinkAddData(state: CUlinkState, _kind: c_uint, data: *mut c_void, size: usize, _name: *const c_char,
            _num_options: c_uint, _options: *mut CUjit_option, _option_values: *mut *mut c_void) =>
            self.add_to_linker(state, data, size);
        cuLinkAddData_v2(state: CUlinkState, _kind: c_uint, data: *mut c_void, size: usize, _name: *const c_char,
            _num_options: c_uint, _options: *mut CUjit_option, _option_values: *mut *mut c_void) =>
            self.add_to_linker(state, data, size);
        cuLinkComplete(state: CUlinkState, cubin_out: *mut *mut c_void, size_out: *mut usize) => {
            let objects = self.simulation()?.objects();
            let made = objects.linkers.get(handle(state))?;
            self.write(cubin_out, made.as_ptr().cast_mut().cast())?;
            self.offer(size_out, made.len());
            Ok(())
        };
        cuLinkDestroy(state: CUlinkState) => self.simulation()?.objects().linkers.remove(handle(state)).map(|_| ());
    }
}
