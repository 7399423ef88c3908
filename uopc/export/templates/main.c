/* Runs @{name} on the first GPU: fills its arrays, launches it, checks what comes out, and times it.
 *
 *   main [LAUNCHES [FILE]]      @{launches} timed launches; FILE: @{name}_check.bin
 *
 * Exit code 0: the results are right (or there is nothing to compare them with, which is said);
 * 1: they are wrong; 2: a call failed, or the file is missing; 77: no GPU here can run it.
 *
@% if numbers.by %@
 * What must come out was computed when the kernel was exported, @{by_text}.
@% else %@
 * Nothing is compared: @{numbers.why_not}.
@% endif %@
 */
#include "@{name}.h"

#include "cuda_driver.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { RIGHT = 0, WRONG = 1, FAILED = 2, NO_GPU = 77 };
enum { TIMED = @{launches}, SHOWN = 5 };

/* What is in an array before a launch.  POISON: bytes of 0xff, a NaN in every float format. */
typedef enum { GENERATED, KEPT, ZEROS, POISON } start;

/* How a type's bits are read; exponent bits 0: a whole number. */
typedef struct {
    const char *name;
    unsigned bytes, exponent_bits, mantissa_bits;
    int is_signed, has_infinity;
} type;

@% for t in types %@
static const type @{t.name} = {"@{t.name}", @{t.bytes}, @{t.exponent}, @{t.mantissa}, @{t.signed}, @{t.infinity}};
@% endfor %@

@% for v in tables %@
/* bits of what generated elements of @{v.array} are chosen from */
static const uint@{v.bits}_t VALUES_@{v.array}[] = {
@% for row in v.rows %@
    @{row},
@% endfor %@
};
@% endfor %@

typedef struct {
    const char *name;
    const type *of;
    uint64_t slot;
    size_t elements;
    int is_scalar, is_compared;
    start begins;
    const void *values; /* NULL: fine floats */
    size_t value_count;
    size_t kept_at; /* in the file */
    /* what must come out: samples in the file; exact: the same bits, and the sum of all elements;
     * else |got - want| <= relative * |want| + absolute */
    size_t samples, samples_at;
    int exact;
    uint64_t checksum;
    double relative, absolute;
    /* while it runs */
    unsigned char *host;
    CUdeviceptr device;
} array;

static array arrays[] = {
@% for x in arrays %@
    {.name = "@{x.name}", .of = &@{x.dtype}, .slot = @{x.slot}, .elements = @{x.size},
     .is_scalar = @{1 if x.scalar else 0}, .begins = @{x.start}@{x.choices}@{x.kept}@{x.wanted}},
@% endfor %@
};
enum { ARRAY_COUNT = sizeof arrays / sizeof *arrays };
#define FILE_BYTES ((size_t)@{file_bytes})
@% if file_bytes %@
static unsigned char *file; /* FILE as it is: little-endian, like every machine with these GPUs */
@% else %@
static const unsigned char *file;
@% endif %@
static cuda_driver cuda;

/* ---- numbers: those that uopc made the results with */
#define SEED @{seed}u
#define STEP @{"0x%X"|format(step)}u
#define POSITIONS @{positions}u /* streams of sampled positions; those of arrays are their slots */
#define NAN_WORD @{"0x%X"|format(nan_word)}u
enum { EDGE = @{edge} };

/* the finaliser of SplitMix64 */
static uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * @{"0x%X"|format(multiply[0])}u;
    z = (z ^ (z >> 27)) * @{"0x%X"|format(multiply[1])}u;
    return z ^ (z >> 31);
}

static uint64_t random_bits(uint64_t stream, uint64_t i)
{
    return mixed(mixed(SEED * STEP + stream + 1) + (i + 1) * STEP);
}

static void generate(const array *a)
{
    const size_t bytes = a->of->bytes;
    for (size_t i = 0; i < a->elements; i++) {
        const uint64_t bits = random_bits(a->slot, i);
        if (a->values != NULL) {
            const size_t chosen = (size_t)((bits >> 32) % a->value_count);
            memcpy(a->host + i * bytes, (const unsigned char *)a->values + chosen * bytes, bytes);
            continue;
        }
        const double whole = (double)((int64_t)(bits >> 40) - (1 << 23)) / (1 << 23);
        const float narrow = (float)whole;
        if (bytes == sizeof narrow)
            memcpy(a->host + i * bytes, &narrow, bytes);
        else
            memcpy(a->host + i * bytes, &whole, bytes);
    }
}

static uint64_t word(const type *t, const unsigned char *at)
{
    uint64_t bits = 0;
    memcpy(&bits, at, t->bytes); /* little-endian */
    return bits;
}

/* The value of a float's bits; NAN and INFINITY where they stand for these. */
static double value(const type *t, uint64_t bits)
{
    const unsigned m = t->mantissa_bits;
    const int exponents = 1 << t->exponent_bits, bias = exponents / 2 - 1;
    const int exponent = (int)(bits >> m) & (exponents - 1);
    const uint64_t fraction = bits & ((UINT64_C(1) << m) - 1);
    const double sign = bits >> (8 * t->bytes - 1) & 1 ? -1.0 : 1.0;
    if (t->has_infinity && exponent == exponents - 1)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    if (!t->has_infinity && exponent == exponents - 1 && fraction == (UINT64_C(1) << m) - 1)
        return (double)NAN;
    if (exponent == 0)
        return sign * ldexp((double)fraction, 1 - bias - (int)m);
    return sign * ldexp((double)(fraction | UINT64_C(1) << m), exponent - bias - (int)m);
}

static int is_float(const type *t)
{
    return t->exponent_bits != 0;
}

static int is_nan(const type *t, uint64_t bits)
{
    return is_float(t) && isnan(value(t, bits));
}

static uint64_t checksum(const array *a)
{
    uint64_t total = 0;
    for (size_t i = 0; i < a->elements; i++) {
        const uint64_t bits = word(a->of, a->host + i * a->of->bytes);
        total += mixed((is_nan(a->of, bits) ? NAN_WORD : bits) ^ mixed(i));
    }
    return total;
}

/* ---- comparing */
static size_t position(const array *a, size_t n)
{
    if (a->samples == a->elements || n < EDGE)
        return n;
    if (n < 2 * EDGE)
        return a->elements - 2 * EDGE + n;
    return (size_t)(random_bits(POSITIONS + a->slot, n - 2 * EDGE) % a->elements);
}

static int is_right(const array *a, uint64_t got, uint64_t want)
{
    if (got == want || (is_nan(a->of, got) && is_nan(a->of, want)))
        return 1;
    if (a->exact)
        return 0;
    const double g = value(a->of, got), w = value(a->of, want);
    return isfinite(w) && fabs(g - w) <= a->relative * fabs(w) + a->absolute;
}

static void show(const array *a, size_t i, uint64_t got, uint64_t want)
{
    const unsigned spare = 64 - 8 * a->of->bytes;
    if (is_float(a->of))
        printf("    %s[%zu] is %.17g, not %.17g\n", a->name, i, value(a->of, got), value(a->of, want));
    else if (a->of->is_signed)
        printf("    %s[%zu] is %lld, not %lld\n", a->name, i, (long long)(got << spare) >> spare,
               (long long)(want << spare) >> spare);
    else
        printf("    %s[%zu] is %llu, not %llu\n", a->name, i, (unsigned long long)got,
               (unsigned long long)want);
}

/* How many of an output's kept elements are wrong, and one more where the sum of all is. */
static size_t compare(const array *a)
{
    const size_t bytes = a->of->bytes;
    size_t wrong = 0;
    double worst = 0;
    for (size_t n = 0; n < a->samples; n++) {
        const size_t i = position(a, n);
        const uint64_t got = word(a->of, a->host + i * bytes);
        const uint64_t want = word(a->of, file + a->samples_at + n * bytes);
        if (is_float(a->of) && isfinite(value(a->of, want)))
            worst = fmax(worst, fabs(value(a->of, got) - value(a->of, want)));
        if (!is_right(a, got, want) && wrong++ < SHOWN)
            show(a, i, got, want);
    }
    const int differs = a->exact && checksum(a) != a->checksum;
    const size_t of = a->exact ? a->elements : a->samples;
    if (wrong)
        printf("%s: WRONG: %zu of %zu compared elements\n", a->name, wrong, a->samples);
    else if (differs)
        printf("%s: WRONG: elements between those that are kept differ\n", a->name);
    else if (a->exact)
        printf("%s: right: all %zu elements, bit for bit\n", a->name, of);
    else
        printf("%s: right: %zu of %zu elements compared, the largest difference is %.3g\n", a->name,
               of, a->elements, worst);
    return wrong + (size_t)differs;
}

/* ---- the GPU */
static void stop(int code)
{
    fflush(stdout);
    exit(code);
}

static void ask(CUresult status, const char *what)
{
    const char *name = "an unknown error", *text = "";
    if (status == CUDA_SUCCESS)
        return;
    cuda.GetErrorName(status, &name);
    cuda.GetErrorString(status, &text);
    fprintf(stderr, "%s: %s (%s)\n", what, name, text);
    stop(FAILED);
}

static void check(int code)
{
    if (code == 0)
        return;
    fprintf(stderr, "%s\n", @{name}_error());
    stop(code == @{NAME}_WRONG_GPU || code == @{NAME}_NO_DRIVER ? NO_GPU : FAILED);
}

/* Make a context of the first GPU current; ends the program where there is none. */
static CUdevice open_gpu(void)
{
    CUdevice gpu;
    CUcontext context;
    char name[128] = "";
    int count = 0;
    const char *missing = cuda_driver_open(&cuda);
    if (missing != NULL) {
        fprintf(stderr, "no GPU can be used: %s is missing. Install an NVIDIA driver.\n", missing);
        stop(NO_GPU);
    }
    if (cuda.Init(0) != CUDA_SUCCESS || cuda.DeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
        fprintf(stderr, "no GPU can be used: the driver shows none. Look at nvidia-smi.\n");
        stop(NO_GPU);
    }
    ask(cuda.DeviceGet(&gpu, 0), "the first GPU");
    ask(cuda.DeviceGetName(name, sizeof name, gpu), "its name");
    ask(cuda.DevicePrimaryCtxRetain(&context, gpu), "its context");
    ask(cuda.CtxPushCurrent(context), "its context");
    printf("%s\n", name);
    return gpu;
}

static void read_file(const char *path)
{
@% if file_bytes %@
    FILE *stream = fopen(path, "rb");
    file = malloc(FILE_BYTES + 1);
    if (stream == NULL || file == NULL || fread(file, 1, FILE_BYTES + 1, stream) != FILE_BYTES) {
        fprintf(stderr, "%s is not there, or not the %zu bytes that belong to this program\n", path,
                FILE_BYTES);
        stop(FAILED);
    }
    fclose(stream);
@% else %@
    (void)path;
@% endif %@
}

/* Memory for each array, on the host and on the GPU. */
static void make_arrays(void)
{
    for (int n = 0; n < ARRAY_COUNT; n++) {
        array *a = &arrays[n];
        const size_t bytes = a->elements * a->of->bytes;
        a->host = malloc(bytes + 1);
        if (a->host == NULL) {
            fprintf(stderr, "the host has no memory for the %zu bytes of %s\n", bytes, a->name);
            stop(FAILED);
        }
        if (!a->is_scalar && bytes != 0)
            ask(cuda.MemAlloc(&a->device, bytes), a->name);
    }
}

static void fill(const array *a)
{
    const size_t bytes = a->elements * a->of->bytes;
    if (a->begins == GENERATED)
        generate(a);
    else if (a->begins == KEPT)
        memcpy(a->host, file + a->kept_at, bytes);
    else
        memset(a->host, a->begins == ZEROS ? 0 : 0xff, bytes);
    if (a->device != 0)
        ask(cuda.MemcpyHtoD(a->device, a->host, bytes), a->name);
}

static int launch(@{name}_kernel *kernel, CUstream stream)
{
    return @{name}_launch(kernel, stream@{main_call});
}

static void finish(@{name}_kernel *kernel, CUstream stream)
{
    const CUresult status = cuda.StreamSynchronize(stream);
@% if asserts %@
    const char *assert = @{name}_failed_assert(kernel);
    if (assert != NULL)
        fprintf(stderr, "%s\n", assert);
@% else %@
    (void)kernel;
@% endif %@
    ask(status, "waiting for @{name}");
}

/* One launch on fresh arrays.  Returns how many elements are wrong. */
static size_t run_and_compare(@{name}_kernel *kernel, CUstream stream)
{
    size_t wrong = 0;
    for (int n = 0; n < ARRAY_COUNT; n++)
        fill(&arrays[n]);
    check(launch(kernel, stream));
    finish(kernel, stream);
    for (int n = 0; n < ARRAY_COUNT; n++) {
        array *a = &arrays[n];
        if (!a->is_compared)
            continue;
        if (a->device != 0)
            ask(cuda.MemcpyDtoH(a->host, a->device, a->elements * a->of->bytes), a->name);
        wrong += compare(a);
    }
    return wrong;
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Each launch between two events, one after the other: what it reads may be in the caches. */
static void time_launches(@{name}_kernel *kernel, CUstream stream, int count)
{
    CUevent *events = calloc((size_t)count + 1, sizeof *events);
    float *ms = calloc((size_t)count, sizeof *ms);
    if (events == NULL || ms == NULL)
        ask(CUDA_ERROR_OUT_OF_MEMORY, "events on the host");
    for (int n = 0; n <= count; n++)
        ask(cuda.EventCreate(&events[n], CU_EVENT_DEFAULT), "an event");
    for (int n = 0; n <= count; n++) {
        ask(cuda.EventRecord(events[n], stream), "an event");
        if (n < count)
            check(launch(kernel, stream));
    }
    finish(kernel, stream);
    for (int n = 0; n < count; n++)
        ask(cuda.EventElapsedTime(&ms[n], events[n], events[n + 1]), "a time");
    qsort(ms, (size_t)count, sizeof *ms, by_size);
    printf("time: median %.2f us, %.2f to %.2f, of %d launches\n", 1e3 * ms[count / 2], 1e3 * ms[0],
           1e3 * ms[count - 1], count);
    for (int n = 0; n <= count; n++)
        cuda.EventDestroy(events[n]);
    free(events);
    free(ms);
}

int main(int argc, char **argv)
{
    const int timed = argc > 1 ? atoi(argv[1]) : TIMED;
    @{name}_kernel *kernel;
    CUstream stream;
    size_t wrong;
    if (timed < 1 || argc > 3) {
        fprintf(stderr, "use: %s [LAUNCHES [FILE]], at least one launch\n", argv[0]);
        return FAILED;
    }
    const CUdevice gpu = open_gpu();
    read_file(argc > 2 ? argv[2] : "@{name}_check.bin");
    check(@{name}_init(&kernel));
    ask(cuda.StreamCreate(&stream, CU_STREAM_DEFAULT), "a stream");
    make_arrays();
    wrong = run_and_compare(kernel, stream);
    time_launches(kernel, stream, timed);
    wrong += run_and_compare(kernel, stream); /* many launches have left nothing behind */
@% if not numbers.by %@
    printf("not compared: @{numbers.why_not}\n");
@% endif %@
    for (int n = 0; n < ARRAY_COUNT; n++) {
        if (arrays[n].device != 0)
            cuda.MemFree(arrays[n].device);
        free(arrays[n].host);
    }
    check(@{name}_destroy(kernel));
    cuda.StreamDestroy(stream);
    cuda.DevicePrimaryCtxRelease(gpu);
    return wrong ? WRONG : RIGHT;
}
