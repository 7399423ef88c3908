/* @{name}: @{what}
 *
 * Made by uopc @{version}: @{command}
 * Machine code for @{target}, @{steps_text}.
 *
 * Parameters, in slot order, are arrays in device memory, dense and in C order@{", or scalars" if scalars else ""}:
@% for x in arrays %@
 *   @{x.name.ljust(4)} @{x.does.ljust(16)} @{x.described}
@% endfor %@
 *
 * Use:
 *   @{name}_kernel *kernel;
 *   if (@{name}_init(&kernel)) puts(@{name}_error());     once, with a CUDA context current
 *   if (@{name}_launch(kernel, stream@{call})) puts(@{name}_error());
 *   @{name}_destroy(kernel);
 */
#ifndef @{NAME}_H
#define @{NAME}_H

#include <cuda.h> /* CUstream, CUdeviceptr; a cudaStream_t is a CUstream */
#include <stddef.h>
#include <stdint.h>

@% for x in arrays if not x.scalar %@
#define @{NAME}_@{x.name.upper()}_ELEMENTS ((size_t)@{x.size}) /* @{x.dtype} */
#define @{NAME}_@{x.name.upper()}_BYTES ((size_t)@{x.size_bytes})
@% endfor %@
/* device memory that each handle holds for what launches leave to each other */
#define @{NAME}_WORKSPACE_BYTES ((size_t)@{workspace_bytes})

#ifdef __cplusplus
extern "C" {
#endif

typedef struct @{name}_kernel @{name}_kernel;

/* What the functions return: 0, a CUresult of the driver, which is positive, or one of these.
 * @{name}_error() says what happened in words. */
enum {
    @{NAME}_NO_DRIVER = -1,  /* there is no CUDA driver, or it is too old */
    @{NAME}_NO_CONTEXT = -2, /* no CUDA context is current */
    @{NAME}_WRONG_GPU = -3,  /* the machine code is for another GPU, or this one has no room */
    @{NAME}_ARGUMENT = -4,   /* NULL, a misaligned array, or one that overlaps what is written */
    @{NAME}_NO_MEMORY = -5   /* the host has no memory */
};

/* Load the kernel into the current context@{", and make its workspace" if workspace_bytes else ""}.  A handle may be used by any thread.@{" */" if not workspace_bytes else ""}
@% if workspace_bytes %@
 * Launches of one handle share its workspace: let them follow each other, as on one stream.  For
 * launches at the same time make a handle for each. */
@% endif %@
int @{name}_init(@{name}_kernel **kernel);

/* Put @{launches_text} on a stream (NULL: the legacy default stream), and return at once.
 * Nothing here waits or allocates, so that a stream that records a graph may be given.
 * Results are there once the stream has been waited for; what fails while the kernel runs, that wait
 * returns. */
int @{name}_launch(@{name}_kernel *kernel, CUstream stream@{parameters});

/* Wait for the device, and let go of code and memory.  NULL is allowed. */
int @{name}_destroy(@{name}_kernel *kernel);

/* What the last call of this thread that failed failed with. */
const char *@{name}_error(void);

@% if asserts %@
/* The assert of the kernel that failed, with its block and thread; NULL while none has.  A failed
 * assert ends the kernel: waiting for it gives CUDA_ERROR_LAUNCH_FAILED, and the context is lost. */
const char *@{name}_failed_assert(const @{name}_kernel *kernel);

@% endif %@
#ifdef __cplusplus
}
#endif
#endif
