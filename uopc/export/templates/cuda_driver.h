/* The CUDA driver's functions, looked up while the program runs.
 *
 * libcuda.so.1 comes with the driver and not with the toolkit: a program that was linked against it
 * does not start where there is no driver, and links only where there is one, or a stub of it.
 * This one builds anywhere and says what is missing.  cuda.h is needed for its types only.
 *
 * Names carry the version that their arguments have (cuda.h maps cuMemAlloc to cuMemAlloc_v2).
 */
#ifndef UOPC_CUDA_DRIVER_H
#define UOPC_CUDA_DRIVER_H

#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#if CUDA_VERSION < 12000
#error "cuda.h of CUDA 12.0 or later is needed: it has tensor maps and clusters"
#endif

#define CUDA_DRIVER_FUNCTIONS(FUNCTION)                                                            \
    FUNCTION(Init, "cuInit", (unsigned))                                                           \
    FUNCTION(GetErrorName, "cuGetErrorName", (CUresult, const char **))                            \
    FUNCTION(GetErrorString, "cuGetErrorString", (CUresult, const char **))                        \
    FUNCTION(DeviceGetCount, "cuDeviceGetCount", (int *))                                          \
    FUNCTION(DeviceGet, "cuDeviceGet", (CUdevice *, int))                                          \
    FUNCTION(DeviceGetName, "cuDeviceGetName", (char *, int, CUdevice))                            \
    FUNCTION(DeviceGetAttribute, "cuDeviceGetAttribute", (int *, CUdevice_attribute, CUdevice))    \
    FUNCTION(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))          \
    FUNCTION(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                  \
    FUNCTION(CtxGetCurrent, "cuCtxGetCurrent", (CUcontext *))                                      \
    FUNCTION(CtxGetDevice, "cuCtxGetDevice", (CUdevice *))                                         \
    FUNCTION(CtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext))                                   \
    FUNCTION(CtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext *))                                   \
    FUNCTION(CtxSynchronize, "cuCtxSynchronize", (void))                                           \
    FUNCTION(ModuleLoadData, "cuModuleLoadData", (CUmodule *, const void *))                       \
    FUNCTION(ModuleUnload, "cuModuleUnload", (CUmodule))                                           \
    FUNCTION(ModuleGetFunction, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *))     \
    FUNCTION(ModuleGetGlobal, "cuModuleGetGlobal_v2",                                              \
             (CUdeviceptr *, size_t *, CUmodule, const char *))                                    \
    FUNCTION(FuncGetAttribute, "cuFuncGetAttribute", (int *, CUfunction_attribute, CUfunction))    \
    FUNCTION(FuncSetAttribute, "cuFuncSetAttribute", (CUfunction, CUfunction_attribute, int))      \
    FUNCTION(OccupancyMaxActiveClusters, "cuOccupancyMaxActiveClusters",                           \
             (int *, CUfunction, const CUlaunchConfig *))                                          \
    FUNCTION(TensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                       \
             (CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,          \
              const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,   \
              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill))                \
    FUNCTION(LaunchKernel, "cuLaunchKernel",                                                       \
             (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,    \
              CUstream, void **, void **))                                                         \
    FUNCTION(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t))                                   \
    FUNCTION(MemFree, "cuMemFree_v2", (CUdeviceptr))                                               \
    FUNCTION(MemHostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned))                          \
    FUNCTION(MemFreeHost, "cuMemFreeHost", (void *))                                               \
    FUNCTION(MemcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr, const void *, size_t))                   \
    FUNCTION(MemcpyDtoH, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t))                         \
    FUNCTION(MemsetD8, "cuMemsetD8_v2", (CUdeviceptr, unsigned char, size_t))                      \
    FUNCTION(StreamCreate, "cuStreamCreate", (CUstream *, unsigned))                               \
    FUNCTION(StreamSynchronize, "cuStreamSynchronize", (CUstream))                                 \
    FUNCTION(StreamDestroy, "cuStreamDestroy_v2", (CUstream))                                      \
    FUNCTION(EventCreate, "cuEventCreate", (CUevent *, unsigned))                                  \
    FUNCTION(EventRecord, "cuEventRecord", (CUevent, CUstream))                                    \
    FUNCTION(EventElapsedTime, "cuEventElapsedTime", (float *, CUevent, CUevent))                  \
    FUNCTION(EventDestroy, "cuEventDestroy_v2", (CUevent))

typedef struct {
#define FUNCTION(name, symbol, arguments) CUresult(CUDAAPI *name) arguments;
    CUDA_DRIVER_FUNCTIONS(FUNCTION)
#undef FUNCTION
} cuda_driver;

/* Look every function up.  Returns NULL, or what is missing: "libcuda.so.1" or a function. */
static const char *cuda_driver_open(cuda_driver *cuda)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *found;
    if (library == NULL)
        return "libcuda.so.1";
#define FUNCTION(name, symbol, arguments)                                                          \
    found = dlsym(library, symbol);                                                                \
    if (found == NULL)                                                                             \
        return symbol;                                                                             \
    memcpy(&cuda->name, &found, sizeof found); /* C has no cast from an object to a function */
    CUDA_DRIVER_FUNCTIONS(FUNCTION)
#undef FUNCTION
    return NULL; /* the library stays open as long as the program runs */
}

#endif
