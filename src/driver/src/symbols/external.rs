//! Symbols that share memory with other processes and interfaces.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_external {
    ({ $next:ident $($files:ident)* } $then:tt $($rows:tt)*) => { $crate::$next! { { $($files)* } $then $($rows)*
    external_memory: "Memory that another interface made: known, never charged" {
        watch cuDestroyExternalMemory @10000(ext_mem: CUexternalMemory) by sharing::external_destroy;
        watch cuExternalMemoryGetMappedBuffer @10000(dev_ptr: *mut CUdeviceptr, ext_mem: CUexternalMemory, buffer_desc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC);
        watch cuExternalMemoryGetMappedMipmappedArray @10000(mipmap: *mut CUmipmappedArray, ext_mem: CUexternalMemory, mipmap_desc: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC);
        watch cuImportExternalMemory @10000(ext_mem_out: *mut CUexternalMemory, mem_handle_desc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC) by sharing::external_import;
    }
    external_semaphore: "Synchronisation only" {
        pass cuDestroyExternalSemaphore @10000(ext_sem: CUexternalSemaphore);
        pass cuImportExternalSemaphore @10000(ext_sem_out: *mut CUexternalSemaphore, sem_handle_desc: *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC);
        pass cuSignalExternalSemaphoresAsync @10000(ext_sem_array: *const CUexternalSemaphore, params_array: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, num_ext_sems: c_uint, stream: CUstream);
        pass cuSignalExternalSemaphoresAsync_ptsz @10000(ext_sem_array: *const CUexternalSemaphore, params_array: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, num_ext_sems: c_uint, stream: CUstream);
        watch cuWaitExternalSemaphoresAsync @10000(ext_sem_array: *const CUexternalSemaphore, params_array: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, num_ext_sems: c_uint, stream: CUstream) by stream_waits::last_of_four;
        watch cuWaitExternalSemaphoresAsync_ptsz @10000(ext_sem_array: *const CUexternalSemaphore, params_array: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, num_ext_sems: c_uint, stream: CUstream) by stream_waits::last_of_four_per_thread;
    }
    ipc_memory: "Memory of another process: the exporter holds the charge" {
        watch cuIpcCloseMemHandle @4010(dptr: CUdeviceptr) by sharing::ipc_close;
        watch cuIpcGetMemHandle @4010(p_handle: *mut CUipcMemHandle, dptr: CUdeviceptr) by sharing::ipc_get;
        watch cuIpcOpenMemHandle @4010(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) by sharing::ipc_open;
        watch cuIpcOpenMemHandle_v2 @11000(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) by sharing::ipc_open;
    }
    ipc_event: "Events only" {
        pass cuIpcGetEventHandle @4010(p_handle: *mut CUipcEventHandle, event: CUevent);
        pass cuIpcOpenEventHandle @4010(ph_event: *mut CUevent, handle: CUipcEventHandle);
    }
    graphics: "Resources that a graphics interface owns" {
        pass cuEGLStreamConsumerAcquireFrame @7000(conn: *mut CUeglStreamConnection, p_cuda_resource: *mut CUgraphicsResource, p_stream: *mut CUstream, timeout: c_uint);
        pass cuEGLStreamConsumerConnect @7000(conn: *mut CUeglStreamConnection, stream: EGLStreamKHR);
        pass cuEGLStreamConsumerConnectWithFlags @8000(conn: *mut CUeglStreamConnection, stream: EGLStreamKHR, flags: c_uint);
        pass cuEGLStreamConsumerDisconnect @7000(conn: *mut CUeglStreamConnection);
        pass cuEGLStreamConsumerReleaseFrame @7000(conn: *mut CUeglStreamConnection, p_cuda_resource: CUgraphicsResource, p_stream: *mut CUstream);
        pass cuEGLStreamProducerConnect @7000(conn: *mut CUeglStreamConnection, stream: EGLStreamKHR, width: EGLint, height: EGLint);
        pass cuEGLStreamProducerDisconnect @7000(conn: *mut CUeglStreamConnection);
        pass cuEGLStreamProducerPresentFrame @7000(conn: *mut CUeglStreamConnection, eglframe: CUeglFrame, p_stream: *mut CUstream);
        pass cuEGLStreamProducerReturnFrame @7000(conn: *mut CUeglStreamConnection, eglframe: *mut CUeglFrame, p_stream: *mut CUstream);
        pass cuEventCreateFromEGLSync(ph_event: *mut CUevent, egl_sync: EGLSyncKHR, flags: c_uint);
        pass cuGLGetDevices @4010(p_cuda_device_count: *mut c_uint, p_cuda_devices: *mut CUdevice, cuda_device_count: c_uint, device_list: c_uint);
        pass cuGLGetDevices_v2 @6050(p_cuda_device_count: *mut c_uint, p_cuda_devices: *mut CUdevice, cuda_device_count: c_uint, device_list: c_uint);
        pass cuGLInit @2000();
        pass cuGLMapBufferObject @2000(dptr: *mut CUdeviceptr_v1, size: *mut c_uint, buffer: GLuint);
        pass cuGLMapBufferObjectAsync @2030(dptr: *mut CUdeviceptr_v1, size: *mut c_uint, buffer: GLuint, h_stream: CUstream);
        pass cuGLMapBufferObjectAsync_v2 @3020(dptr: *mut CUdeviceptr, size: *mut usize, buffer: GLuint, h_stream: CUstream);
        pass cuGLMapBufferObjectAsync_v2_ptsz @7000(dptr: *mut CUdeviceptr, size: *mut usize, buffer: GLuint, h_stream: CUstream);
        pass cuGLMapBufferObject_v2 @3020(dptr: *mut CUdeviceptr, size: *mut usize, buffer: GLuint);
        pass cuGLMapBufferObject_v2_ptds @7000(dptr: *mut CUdeviceptr, size: *mut usize, buffer: GLuint);
        pass cuGLRegisterBufferObject @2000(buffer: GLuint);
        pass cuGLSetBufferObjectMapFlags @2030(buffer: GLuint, flags: c_uint);
        pass cuGLUnmapBufferObject @2000(buffer: GLuint);
        pass cuGLUnmapBufferObjectAsync @2030(buffer: GLuint, h_stream: CUstream);
        pass cuGLUnregisterBufferObject @2000(buffer: GLuint);
        pass cuGraphicsEGLRegisterImage @7000(p_cuda_resource: *mut CUgraphicsResource, image: EGLImageKHR, flags: c_uint);
        pass cuGraphicsGLRegisterBuffer @3000(p_cuda_resource: *mut CUgraphicsResource, buffer: GLuint, flags: c_uint);
        pass cuGraphicsGLRegisterImage @3000(p_cuda_resource: *mut CUgraphicsResource, image: GLuint, target: GLenum, flags: c_uint);
        pass cuGraphicsMapResources @3000(count: c_uint, resources: *mut CUgraphicsResource, h_stream: CUstream);
        pass cuGraphicsMapResources_ptsz @7000(count: c_uint, resources: *mut CUgraphicsResource, h_stream: CUstream);
        pass cuGraphicsResourceGetMappedEglFrame @7000(egl_frame: *mut CUeglFrame, resource: CUgraphicsResource, index: c_uint, mip_level: c_uint);
        pass cuGraphicsResourceGetMappedMipmappedArray @5000(p_mipmapped_array: *mut CUmipmappedArray, resource: CUgraphicsResource);
        pass cuGraphicsResourceGetMappedPointer @3000(p_dev_ptr: *mut CUdeviceptr_v1, p_size: *mut c_uint, resource: CUgraphicsResource);
        pass cuGraphicsResourceGetMappedPointer_v2 @3020(p_dev_ptr: *mut CUdeviceptr, p_size: *mut usize, resource: CUgraphicsResource);
        pass cuGraphicsResourceSetMapFlags @3000(resource: CUgraphicsResource, flags: c_uint);
        pass cuGraphicsResourceSetMapFlags_v2 @6050(resource: CUgraphicsResource, flags: c_uint);
        pass cuGraphicsSubResourceGetMappedArray @3000(p_array: *mut CUarray, resource: CUgraphicsResource, array_index: c_uint, mip_level: c_uint);
        pass cuGraphicsUnmapResources @3000(count: c_uint, resources: *mut CUgraphicsResource, h_stream: CUstream);
        pass cuGraphicsUnmapResources_ptsz @7000(count: c_uint, resources: *mut CUgraphicsResource, h_stream: CUstream);
        pass cuGraphicsUnregisterResource @3000(resource: CUgraphicsResource);
        pass cuGraphicsVDPAURegisterOutputSurface @3010(p_cuda_resource: *mut CUgraphicsResource, vdp_surface: VdpOutputSurface, flags: c_uint);
        pass cuGraphicsVDPAURegisterVideoSurface @3010(p_cuda_resource: *mut CUgraphicsResource, vdp_surface: VdpVideoSurface, flags: c_uint);
        pass cuVDPAUGetDevice @3010(p_device: *mut CUdevice, vdp_device: VdpDevice, vdp_get_proc_address: *mut VdpGetProcAddress);
    }
    checkpoint: "Device memory leaves and comes back as a whole: the charge stays, so that the restore fits" {
        pass cuCheckpointOperationComplete @13040(handle: CUcheckpointOperationHandle);
        watch cuCheckpointProcessCheckpoint @12080(pid: c_int, args: *mut CUcheckpointCheckpointArgs);
        pass cuCheckpointProcessGetRestoreThreadId @12080(pid: c_int, tid: *mut c_int);
        pass cuCheckpointProcessGetState @12080(pid: c_int, state: *mut CUprocessState);
        watch cuCheckpointProcessLock @12080(pid: c_int, args: *mut CUcheckpointLockArgs);
        watch cuCheckpointProcessRestore @12080(pid: c_int, args: *mut CUcheckpointRestoreArgs);
        watch cuCheckpointProcessUnlock @12080(pid: c_int, args: *mut CUcheckpointUnlockArgs);
    }
    undeclared: "Exported by drivers but declared in no header: the arguments pass through as they are" {
        pass cuEGLApiInit();
        pass cuMemGetAttribute();
        pass cuMemGetAttribute_v2();
    }
    } };
}
