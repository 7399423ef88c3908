/* @{name}: loads its machine code and launches it through the CUDA driver API; see @{name}.h.
 *
 * The machine code is compiled in: @{name}_cubin.h has the bytes of the .cubin file@{"s" if parts|length > 1 else ""} beside it, so that
 * the library is one object file and looks for nothing while it runs.
 */
#include "@{name}.h"

#include "cuda_driver.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef CUBINS /* `make from-source` names those that nvcc has made */
#define CUBINS "@{name}_cubin.h"
#endif
#include CUBINS

typedef struct {
    const char *name; /* of the kernel in the machine code */
    const void *cubin;
    unsigned grid[3], block[3];
    unsigned shared_bytes; /* dynamic, of a block */
    unsigned cluster;      /* so many blocks along x form a cluster */
} step;

static const step STEPS[] = {
@% for p in parts %@
    {"@{p.text.name}", @{p.stem}_cubin, {@{p.text.launch.grid|join(", ")}}, {@{p.text.launch.block|join(", ")}}, @{p.text.dynamic_shared_bytes}, @{p.text.launch.cluster}},
@% endfor %@
};
enum { STEP_COUNT = sizeof STEPS / sizeof *STEPS };

/* Shared memory and blocks of a cluster that a kernel has without asking (CUDA Programming Guide) */
enum { SHARED_FREE = 48 << 10, CLUSTER_FREE = 8 };

typedef struct {
    const char *name;
    size_t bytes;
    unsigned align; /* its address is a multiple of it */
    int written;
} array;

static const array ARRAYS[] = {
@% for x in arrays if not x.scalar %@
    {"@{x.name}", @{NAME}_@{x.name.upper()}_BYTES, @{x.align}, @{1 if x.written else 0}},
@% endfor %@
};
enum { ARRAY_COUNT = sizeof ARRAYS / sizeof *ARRAYS };

@% if maps %@
/* How tensor copies see an array: what cuTensorMapEncodeTiled takes, the innermost axis first. */
typedef struct {
    const char *array;
    CUtensorMapDataType type;
    cuuint32_t rank;
    cuuint64_t sizes[5], strides_bytes[5];
    cuuint32_t box[5], element_strides[5];
    CUtensorMapSwizzle swizzle;
} tensor_map;

static const tensor_map MAPS[] = {
@% for m in maps %@
    {"@{m.array}", @{m.type}, @{m.form.rank}, {@{m.form.sizes|join(", ")}}, {@{m.strides|join(", ")}},
     {@{m.form.box|join(", ")}}, {@{m.form.element_strides|join(", ")}}, @{m.swizzle}},
@% endfor %@
};

@% endif %@

@% if asserts %@
enum { REPORT_WORDS = 8 }; /* number of the assert + 1, block x, y, z, thread x, y, z */
@% for p in parts if p.text.asserts %@
static const char *const ASSERTS_@{loop.index0}[] = {
@% for message in p.text.asserts %@
    @{message|c_string},
@% endfor %@
};
@% endfor %@
static const char *const *const ASSERTS[] = {@{asserts|join(", ")}};

@% endif %@
struct @{name}_kernel {
    cuda_driver cuda;
    CUcontext context;
    CUmodule modules[STEP_COUNT];
    CUfunction functions[STEP_COUNT];
@% if workspace_bytes %@
    CUdeviceptr workspace;
@% endif %@
@% if asserts %@
    unsigned *reports[STEP_COUNT]; /* pinned memory of the host: it outlives a kernel that traps */
@% endif %@
};

/* ---- errors */
static _Thread_local char said[512];

static int fail(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(said, sizeof said, format, arguments);
    va_end(arguments);
    return code;
}

static int failed(const cuda_driver *cuda, CUresult status, const char *name, const char *what)
{
    const char *called = "an unknown error", *text = "";
    cuda->GetErrorName(status, &called);
    cuda->GetErrorString(status, &text);
    return fail((int)status, "%s: %s: %s (%s)", name, what, called, text);
}

const char *@{name}_error(void)
{
    return said;
}

/* ---- loading */
/* Does machine code for ARCH run on a GPU of this compute capability?  "sm_90a" runs on 9.0 alone,
 * any other on its own and later minor versions of the same major one. */
static int runs_on(const char *arch, int major, int minor)
{
    char *suffix;
    const int sm = (int)strtol(arch + strlen("sm_"), &suffix, 10);
    if (*suffix == 'a')
        return sm == 10 * major + minor;
    return sm / 10 == major && sm % 10 <= minor;
}

static int check_gpu(const cuda_driver *cuda)
{
    CUdevice gpu;
    int major = 0, minor = 0;
    CUresult status = cuda->CtxGetDevice(&gpu);
    if (status == CUDA_SUCCESS)
        status = cuda->DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu);
    if (status == CUDA_SUCCESS)
        status = cuda->DeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu);
    if (status != CUDA_SUCCESS)
        return failed(cuda, status, "@{name}", "asking for the GPU");
    if (!runs_on(@{NAME}_ARCH, major, minor))
        return fail(@{NAME}_WRONG_GPU,
                    "@{name}: the machine code is for %s, this GPU is sm_%d%d. Export it with "
                    "--target for this GPU, or try make from-source ARCH=sm_%d%d.",
                    @{NAME}_ARCH, major, minor, major, minor);
    return 0;
}

@% if clusters %@
/* The blocks of a cluster run at once, on neighbouring SMs; more than 8 a kernel must ask for. */
static int check_clusters(const cuda_driver *cuda, CUfunction function, const step *s)
{
    CUlaunchAttribute size = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    CUlaunchConfig config = {.gridDimX = s->grid[0], .gridDimY = s->grid[1], .gridDimZ = s->grid[2],
                             .blockDimX = s->block[0], .blockDimY = s->block[1],
                             .blockDimZ = s->block[2], .sharedMemBytes = s->shared_bytes,
                             .attrs = &size, .numAttrs = 1};
    CUresult status = CUDA_SUCCESS;
    int room = 0;
    if (s->cluster > CLUSTER_FREE)
        status = cuda->FuncSetAttribute(
            function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    if (status != CUDA_SUCCESS)
        return failed(cuda, status, s->name, "asking for clusters of more than 8 blocks");
    size.value.clusterDim.x = s->cluster;
    size.value.clusterDim.y = 1;
    size.value.clusterDim.z = 1;
    status = cuda->OccupancyMaxActiveClusters(&room, function, &config);
    if (status != CUDA_SUCCESS)
        return failed(cuda, status, s->name, "asking for room for its clusters");
    if (room < 1)
        return fail(@{NAME}_WRONG_GPU, "%s: this GPU has no room for one of its clusters of %u blocks",
                    s->name, s->cluster);
    return 0;
}

@% endif %@

@% if asserts %@
/* Memory of the host where a failed assert leaves its number, and its address in the code. */
static int make_report(const cuda_driver *cuda, CUmodule module, const char *name, unsigned **report)
{
    CUdeviceptr variable = 0;
    size_t bytes = 0;
    CUresult status = cuda->MemHostAlloc((void **)report, REPORT_WORDS * sizeof **report,
                                         CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (status == CUDA_SUCCESS) {
        memset(*report, 0, REPORT_WORDS * sizeof **report);
        status = cuda->ModuleGetGlobal(&variable, &bytes, module, "@{report_variable}");
    }
    if (status == CUDA_SUCCESS)
        status = cuda->MemcpyHtoD(variable, report, sizeof *report);
    return status == CUDA_SUCCESS ? 0 : failed(cuda, status, name, "a place to report asserts");
}

@% endif %@
static int load_step(@{name}_kernel *k, int n)
{
    const cuda_driver *cuda = &k->cuda;
    const step *s = &STEPS[n];
    const unsigned threads = s->block[0] * s->block[1] * s->block[2];
    int allowed = 0;
    CUresult status = cuda->ModuleLoadData(&k->modules[n], s->cubin);
    if (status != CUDA_SUCCESS)
        return failed(cuda, status, s->name, "loading its machine code, made for " @{NAME}_ARCH);
    status = cuda->ModuleGetFunction(&k->functions[n], k->modules[n], s->name);
    if (status != CUDA_SUCCESS)
        return failed(cuda, status, s->name, "looking it up in its machine code");
    status = cuda->FuncGetAttribute(&allowed, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k->functions[n]);
    if (status != CUDA_SUCCESS)
        return failed(cuda, status, s->name, "asking how many threads its blocks may have");
    if (threads > (unsigned)allowed)
        return fail(@{NAME}_WRONG_GPU, "%s: its blocks have %u threads, this GPU allows %d", s->name,
                    threads, allowed);
    if (s->shared_bytes > SHARED_FREE) {
        status = cuda->FuncSetAttribute(k->functions[n],
                                        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                        (int)s->shared_bytes);
        if (status != CUDA_SUCCESS)
            return failed(cuda, status, s->name, "asking for its dynamic shared memory");
    }
@% if clusters %@
    if (s->cluster > 1) {
        const int code = check_clusters(cuda, k->functions[n], s);
        if (code != 0)
            return code;
    }
@% endif %@
@% if asserts %@
    if (ASSERTS[n] != NULL)
        return make_report(cuda, k->modules[n], s->name, &k->reports[n]);
@% endif %@
    return 0;
}

@% if workspace_bytes %@
static int make_workspace(@{name}_kernel *k)
{
    const cuda_driver *cuda = &k->cuda;
    CUresult status = cuda->MemAlloc(&k->workspace, @{NAME}_WORKSPACE_BYTES);
@% for p in partials if p.counter %@
    if (status == CUDA_SUCCESS) /* @{p.name} counts: zero before a launch, which leaves it zero */
        status = cuda->MemsetD8(k->workspace + @{p.offset_bytes}, 0, @{p.size * p.dtype.itemsize});
@% endfor %@
@% if clears_workspace %@
    if (status == CUDA_SUCCESS) /* before what other streams do next */
        status = cuda->CtxSynchronize();
@% endif %@
    return status == CUDA_SUCCESS ? 0 : failed(cuda, status, "@{name}", "making its workspace");
}

@% endif %@
int @{name}_init(@{name}_kernel **kernel)
{
    @{name}_kernel *k;
    const char *missing;
    CUresult status;
    int code;
    if (kernel == NULL)
        return fail(@{NAME}_ARGUMENT, "@{name}_init: NULL in place of a handle");
    *kernel = NULL;
    k = calloc(1, sizeof *k);
    if (k == NULL)
        return fail(@{NAME}_NO_MEMORY, "@{name}_init: the host has no memory");
    missing = cuda_driver_open(&k->cuda);
    if (missing != NULL) {
        free(k);
        return fail(@{NAME}_NO_DRIVER, "@{name}: there is no CUDA driver, or it is too old: %s is missing",
                    missing);
    }
    status = k->cuda.CtxGetCurrent(&k->context);
    if (status != CUDA_SUCCESS || k->context == NULL) {
        free(k);
        return fail(@{NAME}_NO_CONTEXT, "@{name}_init: no CUDA context is current. Call "
                                      "cuCtxSetCurrent, or cudaFree(0) of the runtime, before.");
    }
    code = check_gpu(&k->cuda);
    for (int n = 0; code == 0 && n < STEP_COUNT; n++)
        code = load_step(k, n);
@% if workspace_bytes %@
    if (code == 0)
        code = make_workspace(k);
@% endif %@
    if (code != 0) {
        char why[sizeof said];
        memcpy(why, said, sizeof why);
        @{name}_destroy(k);
        memcpy(said, why, sizeof said);
        return code;
    }
    *kernel = k;
    return 0;
}

int @{name}_destroy(@{name}_kernel *kernel)
{
    CUcontext before;
    CUresult status;
    if (kernel == NULL)
        return 0;
    const cuda_driver *cuda = &kernel->cuda;
    status = cuda->CtxPushCurrent(kernel->context);
    if (status == CUDA_SUCCESS) {
        status = cuda->CtxSynchronize();
        for (int n = 0; n < STEP_COUNT; n++) {
            if (kernel->modules[n] != NULL)
                cuda->ModuleUnload(kernel->modules[n]);
@% if asserts %@
            if (kernel->reports[n] != NULL)
                cuda->MemFreeHost(kernel->reports[n]);
@% endif %@
        }
@% if workspace_bytes %@
        if (kernel->workspace != 0)
            cuda->MemFree(kernel->workspace);
@% endif %@
        cuda->CtxPopCurrent(&before);
    }
    if (status != CUDA_SUCCESS) {
        const int code = failed(cuda, status, "@{name}_destroy", "waiting for the device");
        free(kernel);
        return code;
    }
    free(kernel);
    return 0;
}

@% if asserts %@
const char *@{name}_failed_assert(const @{name}_kernel *kernel)
{
    static _Thread_local char text[512];
    for (int n = 0; kernel != NULL && n < STEP_COUNT; n++) {
        const volatile unsigned *r = kernel->reports[n];
        if (r == NULL || r[0] == 0)
            continue;
        snprintf(text, sizeof text,
                 "%s: assert failed: %s, in block (%u, %u, %u), thread (%u, %u, %u)", STEPS[n].name,
                 ASSERTS[n][r[0] - 1], r[1], r[2], r[3], r[4], r[5], r[6]);
        return text;
    }
    return NULL;
}

@% endif %@
/* ---- launching */
static int check_arrays(const CUdeviceptr *start)
{
    for (int n = 0; n < ARRAY_COUNT; n++) {
        const array *a = &ARRAYS[n];
        if (a->bytes != 0 && start[n] == 0)
            return fail(@{NAME}_ARGUMENT, "@{name}_launch: %s is NULL", a->name);
        if (a->bytes != 0 && start[n] % a->align != 0)
            return fail(@{NAME}_ARGUMENT, "@{name}_launch: the address of %s is no multiple of %u",
                        a->name, a->align);
        for (int m = 0; m < n; m++)
            if ((a->written || ARRAYS[m].written) && start[n] < start[m] + ARRAYS[m].bytes &&
                start[m] < start[n] + a->bytes)
                return fail(@{NAME}_ARGUMENT,
                            "@{name}_launch: %s and %s overlap, and the kernel writes one of them",
                            ARRAYS[m].name, a->name);
    }
    return 0;
}

@% if maps %@
static int encode(const @{name}_kernel *k, CUtensorMap *map, int n, CUdeviceptr start)
{
    const tensor_map *m = &MAPS[n];
    const CUresult status = k->cuda.TensorMapEncodeTiled(
        map, m->type, m->rank, (void *)(uintptr_t)start, m->sizes, m->strides_bytes, m->box,
        m->element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, m->swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return status == CUDA_SUCCESS ? 0 : failed(&k->cuda, status, m->array, "its tensor map");
}

@% endif %@

@% if not all_empty %@
static int start_step(const @{name}_kernel *k, int n, CUstream stream, void **arguments)
{
    const step *s = &STEPS[n];
    const CUresult status = k->cuda.LaunchKernel(
        k->functions[n], s->grid[0], s->grid[1], s->grid[2], s->block[0], s->block[1], s->block[2],
        s->shared_bytes, stream, arguments, NULL);
    return status == CUDA_SUCCESS ? 0 : failed(&k->cuda, status, s->name, "launching it");
}

@% endif %@
static int start_all(const @{name}_kernel *k, CUstream stream@{parameters})
{
@% if maps %@
    CUtensorMap map[@{maps|length}];
@% endif %@
@% for p in partials %@
    CUdeviceptr @{p.name} = k->workspace + @{p.offset_bytes}; /* @{p.dtype}[@{p.size}]@{", counts" if p.counter else ""} */
@% endfor %@
    int code = 0;
@% for x in unused %@
    (void)@{x}; /* of a size that leaves nothing to do */
@% endfor %@
@% for m in maps %@
    if (code == 0)
        code = encode(k, &map[@{loop.index0}], @{loop.index0}, @{m.array});
@% endfor %@
@% for p in parts if not p.empty %@
    if (code == 0) {
        void *arguments[] = {@{p.arguments}};
        code = start_step(k, @{p.number}, stream, arguments);
    }
@% endfor %@
    return code;
}

int @{name}_launch(@{name}_kernel *kernel, CUstream stream@{parameters})
{
    const CUdeviceptr start[] = {@{array_names}};
    CUcontext before;
    CUresult status;
    int code;
    if (kernel == NULL)
        return fail(@{NAME}_ARGUMENT, "@{name}_launch: NULL in place of a handle");
    code = check_arrays(start);
    if (code != 0)
        return code;
    status = kernel->cuda.CtxPushCurrent(kernel->context); /* the thread may be at another GPU */
    if (status != CUDA_SUCCESS)
        return failed(&kernel->cuda, status, "@{name}_launch", "making its context current");
    code = start_all(kernel, stream@{names});
    kernel->cuda.CtxPopCurrent(&before);
    return code;
}
