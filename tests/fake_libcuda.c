/* A driver made of host memory, as libcuda.so.1, for what an exported program asks of it.
 *
 * Every call that matters is a line of $FAKE_CUDA/log: its name and key=value words.  An address is
 * written as the number of its allocation and an offset: "2+256".  $FAKE_CUDA/parameters says how
 * many bytes each parameter of a kernel has: "name 8 8 4", a line each.  A launch writes what is in
 * each allocation to $FAKE_CUDA/before_N, and then puts $FAKE_CUDA/after_N there where that is.
 * Machine code is kept as $FAKE_CUDA/module_N.
 *
 * FAKE_CUDA_GPUS, _SM, _THREADS, _CLUSTERS: what the device has.  FAKE_CUDA_FAIL="NAME CODE": the
 * call of that name fails.  FAKE_CUDA_ASSERT=N: the next launch reports assert N and traps.
 */
#include <cuda.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { MOST = 64, ALIGNMENT = 256 };

static struct { unsigned char *at; size_t bytes; } memories[MOST];
static int memory_count, module_count, map_count, function_count, contexts, launches, trapped;
static struct { int module; char name[128]; } functions[MOST];
static struct { unsigned *report; } variable;

static FILE *open_in(const char *name, const char *mode)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("FAKE_CUDA"), name);
    return fopen(path, mode);
}

static void say(const char *format, ...)
{
    FILE *log = open_in("log", "a");
    va_list arguments;
    va_start(arguments, format);
    vfprintf(log, format, arguments);
    va_end(arguments);
    fclose(log);
}

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

/* What the call of this name returns. */
static CUresult status(const char *name)
{
    char failing[128] = "";
    int code = 0;
    const char *text = getenv("FAKE_CUDA_FAIL");
    if (text && sscanf(text, "%127s %d", failing, &code) == 2 && strcmp(failing, name) == 0)
        return (CUresult)code;
    return CUDA_SUCCESS;
}

static const char *place(uint64_t address)
{
    static char text[4][64];
    static int turn;
    char *to = text[turn++ % 4];
    for (int n = 0; n < memory_count; n++) {
        const uint64_t start = (uint64_t)(uintptr_t)memories[n].at;
        if (memories[n].at && address >= start && address < start + memories[n].bytes) {
            snprintf(to, sizeof text[0], "%d+%llu", n, (unsigned long long)(address - start));
            return to;
        }
    }
    snprintf(to, sizeof text[0], "%#llx", (unsigned long long)address);
    return to;
}

static void keep(const char *kind, int n, const void *content, size_t bytes)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%d", kind, n);
    FILE *to = open_in(name, "wb");
    fwrite(content, 1, bytes, to);
    fclose(to);
}

EXPORT CUresult cuInit(unsigned flags) { (void)flags; return status("cuInit"); }
EXPORT CUresult cuGetErrorName(CUresult code, const char **name)
{
    static char text[32];
    snprintf(text, sizeof text, "FAKE_ERROR_%d", (int)code);
    *name = text;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorString(CUresult code, const char **text) { (void)code; *text = "as told"; return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetCount(int *count) { *count = number("FAKE_CUDA_GPUS", 1); return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGet(CUdevice *gpu, int n) { *gpu = n; return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetName(char *name, int room, CUdevice gpu) { (void)gpu; snprintf(name, (size_t)room, "a fake GPU"); return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what, CUdevice gpu)
{
    const int sm = number("FAKE_CUDA_SM", 90);
    (void)gpu;
    *value = what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? sm / 10 : sm % 10;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice gpu) { (void)gpu; *context = (CUcontext)&contexts; return CUDA_SUCCESS; }
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice gpu) { (void)gpu; return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetCurrent(CUcontext *context) { *context = contexts ? (CUcontext)&contexts : NULL; return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetDevice(CUdevice *gpu) { *gpu = 0; return CUDA_SUCCESS; }
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) { (void)context; contexts++; return CUDA_SUCCESS; }
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) { *context = NULL; contexts--; return CUDA_SUCCESS; }
EXPORT CUresult cuCtxSynchronize(void) { say("synchronize contexts=%d\n", contexts); return CUDA_SUCCESS; }

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    /* an ELF file ends with its tables of sections and of segments */
    const unsigned char *elf = image;
    uint64_t sections, segments;
    uint16_t section_bytes, section_count, segment_bytes, segment_count;
    memcpy(&segments, elf + 32, 8);
    memcpy(&sections, elf + 40, 8);
    memcpy(&segment_bytes, elf + 54, 2);
    memcpy(&segment_count, elf + 56, 2);
    memcpy(&section_bytes, elf + 58, 2);
    memcpy(&section_count, elf + 60, 2);
    segments += (uint64_t)segment_bytes * segment_count;
    sections += (uint64_t)section_bytes * section_count;
    keep("module", module_count, elf, sections > segments ? sections : segments);
    say("load module=%d\n", module_count);
    *module = (CUmodule)(uintptr_t)++module_count;
    return status("cuModuleLoadData");
}
EXPORT CUresult cuModuleUnload(CUmodule module) { say("unload module=%d\n", (int)(uintptr_t)module - 1); return CUDA_SUCCESS; }
EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    functions[function_count].module = (int)(uintptr_t)module - 1;
    snprintf(functions[function_count].name, sizeof functions[0].name, "%s", name);
    say("function module=%d name=%s\n", functions[function_count].module, name);
    *function = (CUfunction)(uintptr_t)++function_count;
    return status("cuModuleGetFunction");
}
static const char *name_of(CUfunction function) { return functions[(uintptr_t)function - 1].name; }
EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
    say("global module=%d name=%s\n", (int)(uintptr_t)module - 1, name);
    *address = (CUdeviceptr)(uintptr_t)&variable.report;
    *bytes = sizeof variable.report;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute what, CUfunction function)
{
    (void)function;
    *value = what == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? number("FAKE_CUDA_THREADS", 1024) : 0;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute what, int value)
{
    say("attribute function=%s id=%d value=%d\n", name_of(function), (int)what, value);
    return status("cuFuncSetAttribute");
}
EXPORT CUresult cuOccupancyMaxActiveClusters(int *room, CUfunction function, const CUlaunchConfig *c)
{
    const CUlaunchAttribute *a = c->attrs;
    say("clusters function=%s grid=%u,%u,%u block=%u,%u,%u shared=%u attributes=%u id=%d size=%u,%u,%u\n",
        name_of(function), c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY,
        c->blockDimZ, c->sharedMemBytes, c->numAttrs, (int)a->id, a->value.clusterDim.x,
        a->value.clusterDim.y, a->value.clusterDim.z);
    *room = number("FAKE_CUDA_CLUSTERS", 16);
    return CUDA_SUCCESS;
}
static void say_numbers(const char *name, const void *values, unsigned count, int wide)
{
    say(" %s=", name);
    for (unsigned n = 0; n < count; n++)
        say("%s%llu", n ? "," : "",
            wide ? (unsigned long long)((const cuuint64_t *)values)[n]
                 : (unsigned long long)((const cuuint32_t *)values)[n]);
}
EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *start,
    const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps,
    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
    CUtensorMapFloatOOBfill fill)
{
    uint64_t words[16] = {0};
    say("encode map=%d aligned=%d type=%d rank=%u start=%s", map_count, (uintptr_t)map % 64 == 0,
        (int)type, rank, place((uint64_t)(uintptr_t)start));
    say_numbers("sizes", sizes, rank, 1);
    say_numbers("strides", strides, rank - 1, 1);
    say_numbers("box", box, rank, 0);
    say_numbers("steps", steps, rank, 0);
    say(" interleave=%d swizzle=%d promotion=%d fill=%d\n", (int)interleave, (int)swizzle,
        (int)promotion, (int)fill);
    for (int n = 0; n < 16; n++)
        words[n] = UINT64_C(0xfa4e000000000000) + (uint64_t)map_count * 16 + (uint64_t)n;
    memcpy(map, words, sizeof words);
    map_count++;
    return status("cuTensorMapEncodeTiled");
}

static void swap_memories(void)
{
    for (int n = 0; n < memory_count; n++) {
        char name[64];
        if (!memories[n].at)
            continue;
        keep("before", n, memories[n].at, memories[n].bytes);
        snprintf(name, sizeof name, "after_%d", n);
        FILE *after = open_in(name, "rb");
        if (after == NULL)
            continue;
        if (fread(memories[n].at, 1, memories[n].bytes, after) != memories[n].bytes)
            say("short file=%s\n", name);
        fclose(after);
    }
}
EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared, CUstream stream, void **parameters, void **extra)
{
    FILE *sizes = open_in("parameters", "r");
    char line[1024];
    say("launch function=%s module=%d grid=%u,%u,%u block=%u,%u,%u shared=%u stream=%d extra=%d contexts=%d arguments=",
        name_of(function), functions[(uintptr_t)function - 1].module, gx, gy, gz, bx, by, bz, shared,
        stream != NULL, extra != NULL, contexts);
    while (fgets(line, sizeof line, sizes)) {
        char *word = strtok(line, " \n");
        if (strcmp(word, name_of(function)) != 0)
            continue;
        for (int n = 0; (word = strtok(NULL, " \n")) != NULL; n++) {
            const int bytes = atoi(word);
            const unsigned char *at = parameters[n];
            uint64_t address = 0;
            if (bytes == 8)
                memcpy(&address, at, 8);
            say("%s", n ? "," : "");
            if (bytes == 8 && strchr(place(address), '+')) {
                say("%s", place(address));
                continue;
            }
            if (bytes == 128)
                say("%s", (uintptr_t)at % 64 == 0 ? "aligned:" : "misaligned:");
            for (int b = 0; b < bytes; b++)
                say("%02x", at[b]);
        }
    }
    fclose(sizes);
    say("\n");
    swap_memories();
    launches++;
    if (getenv("FAKE_CUDA_ASSERT") && variable.report) {
        const unsigned words[7] = {(unsigned)number("FAKE_CUDA_ASSERT", 0) + 1, 1, 2, 3, 4, 5, 6};
        memcpy(variable.report, words, sizeof words);
        trapped = 1;
    }
    return status("cuLaunchKernel");
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    const size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memories[memory_count].at = aligned_alloc(ALIGNMENT, rounded);
    memories[memory_count].bytes = bytes;
    memset(memories[memory_count].at, 0x5a, rounded);
    say("alloc memory=%d bytes=%zu\n", memory_count, bytes);
    *address = (CUdeviceptr)(uintptr_t)memories[memory_count++].at;
    return status("cuMemAlloc");
}
EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    say("free memory=%s\n", place(address));
    for (int n = 0; n < memory_count; n++)
        if (memories[n].at == (void *)(uintptr_t)address) {
            free(memories[n].at);
            memories[n].at = NULL;
        }
    return CUDA_SUCCESS;
}
EXPORT CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    say("host bytes=%zu flags=%u\n", bytes, flags);
    *address = malloc(bytes);
    memset(*address, 0x5a, bytes);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuMemFreeHost(void *address) { say("freehost\n"); free(address); return CUDA_SUCCESS; }
EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) { memcpy((void *)(uintptr_t)to, from, bytes); return CUDA_SUCCESS; }
EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) { memcpy(to, (void *)(uintptr_t)from, bytes); return CUDA_SUCCESS; }
EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes)
{
    say("memset memory=%s value=%u bytes=%zu\n", place(to), value, bytes);
    memset((void *)(uintptr_t)to, value, bytes);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) { (void)flags; *stream = (CUstream)&launches; return CUDA_SUCCESS; }
EXPORT CUresult cuStreamSynchronize(CUstream stream) { (void)stream; return trapped ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS; }
EXPORT CUresult cuStreamDestroy_v2(CUstream stream) { (void)stream; return CUDA_SUCCESS; }
EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) { (void)flags; *event = (CUevent)&launches; return CUDA_SUCCESS; }
EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) { (void)event; (void)stream; return CUDA_SUCCESS; }
#undef cuEventElapsedTime
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) { (void)start; (void)end; *ms = 0.125f; return CUDA_SUCCESS; }
EXPORT CUresult cuEventDestroy_v2(CUevent event) { (void)event; return CUDA_SUCCESS; }
