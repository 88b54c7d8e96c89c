// Calls that submit work for the GPU: each does the same through each door.
//
// launches DOOR: calls each gated function of the table once, and prints its status and its effect on memory.
// launches DOOR servers: prints the library that serves each function.
// launches DOOR each NAME COUNT KERNEL: calls one of them COUNT times, with a kernel of that length, waits, and then waits for a
// line.
// DOOR: linked, dlsym, first (cuGetProcAddress), second (cuGetProcAddress_v2).
#include "launches.h"

// X(exported symbol, first version of cuGetProcAddress, parameters, a call)
#define GATED(X) \
    X(cuLaunchKernel, 4000, KERNEL_PARAMETERS, (work, 4, 1, 1, 64, 1, 1, 0, stream, NULL, NULL)) \
    X(cuLaunchKernel_ptsz, 7000, KERNEL_PARAMETERS, (work, 4, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL)) \
    X(cuLaunchCooperativeKernel, 9000, COOPERATIVE_PARAMETERS, (work, 2, 1, 1, 64, 1, 1, 0, stream, NULL)) \
    X(cuLaunchCooperativeKernel_ptsz, 9000, COOPERATIVE_PARAMETERS, (work, 2, 1, 1, 64, 1, 1, 0, NULL, NULL)) \
    X(cuLaunchCooperativeKernelMultiDevice, 9000, (struct several *, unsigned, unsigned), (&several, 1, 0)) \
    X(cuLaunchKernelEx, 11060, (const struct config *, void *, void **, void **), (&config, work, NULL, NULL)) \
    X(cuLaunchKernelEx_ptsz, 11060, (const struct config *, void *, void **, void **), (&config, work, NULL, NULL)) \
    X(cuLaunch, 2000, (void *), (work)) \
    X(cuLaunchGrid, 2000, (void *, int, int), (work, 3, 2)) \
    X(cuLaunchGridAsync, 2000, (void *, int, int, void *), (work, 3, 2, stream)) \
    X(cuGraphLaunch, 10000, (void *, void *), (executable, stream)) \
    X(cuGraphLaunch_ptsz, 10000, (void *, void *), (executable, NULL)) \
    X(cuMemcpyDtoD, 2000, (unsigned, unsigned, unsigned), (narrow[1], narrow[0], NARROW)) \
    X(cuMemcpyDtoD_v2, 3020, (u64, u64, size_t), (memory[1], memory[0], SIZE)) \
    X(cuMemcpyDtoD_v2_ptds, 7000, (u64, u64, size_t), (memory[1], memory[0], SIZE)) \
    X(cuMemcpyDtoDAsync, 3000, (unsigned, unsigned, unsigned, void *), (narrow[1], narrow[0], NARROW, stream)) \
    X(cuMemcpyDtoDAsync_v2, 3020, (u64, u64, size_t, void *), (memory[1], memory[0], SIZE, stream)) \
    X(cuMemcpyDtoDAsync_v2_ptsz, 7000, (u64, u64, size_t, void *), (memory[1], memory[0], SIZE, NULL)) \
    X(cuMemcpyAtoA, 2000, (void *, unsigned, void *, unsigned, unsigned), (arrays[1], 0, arrays[0], 0, 64)) \
    X(cuMemcpyAtoA_v2, 3020, (void *, size_t, void *, size_t, size_t), (arrays[1], 0, arrays[0], 0, 64)) \
    X(cuMemcpyAtoA_v2_ptds, 7000, (void *, size_t, void *, size_t, size_t), (arrays[1], 0, arrays[0], 0, 64)) \
    X(cuMemcpyAtoD, 2000, (unsigned, void *, unsigned, unsigned), (narrow[1], arrays[0], 0, 64)) \
    X(cuMemcpyAtoD_v2, 3020, (u64, void *, size_t, size_t), (memory[1], arrays[0], 0, 64)) \
    X(cuMemcpyAtoD_v2_ptds, 7000, (u64, void *, size_t, size_t), (memory[1], arrays[0], 0, 64)) \
    X(cuMemcpyDtoA, 2000, (void *, unsigned, unsigned, unsigned), (arrays[1], 0, narrow[0], 64)) \
    X(cuMemcpyDtoA_v2, 3020, (void *, size_t, u64, size_t), (arrays[1], 0, memory[0], 64)) \
    X(cuMemcpyDtoA_v2_ptds, 7000, (void *, size_t, u64, size_t), (arrays[1], 0, memory[0], 64)) \
    X(cuMemcpy2D_v2, 3020, (const struct plane *), (&plane)) \
    X(cuMemcpy2D_v2_ptds, 7000, (const struct plane *), (&plane)) \
    X(cuMemcpy2DUnaligned_v2, 3020, (const struct plane *), (&plane)) \
    X(cuMemcpy2DUnaligned_v2_ptds, 7000, (const struct plane *), (&plane)) \
    X(cuMemcpy2DAsync_v2, 3020, (const struct plane *, void *), (&plane, stream)) \
    X(cuMemcpy2DAsync_v2_ptsz, 7000, (const struct plane *, void *), (&plane, NULL)) \
    X(cuMemcpy3D_v2, 3020, (const struct volume *), (&volume)) \
    X(cuMemcpy3D_v2_ptds, 7000, (const struct volume *), (&volume)) \
    X(cuMemcpy3DAsync_v2, 3020, (const struct volume *, void *), (&volume, stream)) \
    X(cuMemcpy3DAsync_v2_ptsz, 7000, (const struct volume *, void *), (&volume, NULL)) \
    X(cuMemsetD8, 2000, (unsigned, unsigned char, unsigned), (narrow[1], 1, NARROW)) \
    X(cuMemsetD8_v2, 3020, (u64, unsigned char, size_t), (memory[1], 2, SIZE)) \
    X(cuMemsetD8_v2_ptds, 7000, (u64, unsigned char, size_t), (memory[1], 3, SIZE)) \
    X(cuMemsetD8Async, 3020, (u64, unsigned char, size_t, void *), (memory[1], 4, SIZE, stream)) \
    X(cuMemsetD8Async_ptsz, 7000, (u64, unsigned char, size_t, void *), (memory[1], 5, SIZE, NULL)) \
    X(cuMemsetD16, 2000, (unsigned, unsigned short, unsigned), (narrow[1], 6, 256)) \
    X(cuMemsetD16_v2, 3020, (u64, unsigned short, size_t), (memory[1], 7, SIZE / 2)) \
    X(cuMemsetD16_v2_ptds, 7000, (u64, unsigned short, size_t), (memory[1], 8, SIZE / 2)) \
    X(cuMemsetD16Async, 3020, (u64, unsigned short, size_t, void *), (memory[1], 9, SIZE / 2, stream)) \
    X(cuMemsetD16Async_ptsz, 7000, (u64, unsigned short, size_t, void *), (memory[1], 10, SIZE / 2, NULL)) \
    X(cuMemsetD32, 2000, (unsigned, unsigned, unsigned), (narrow[1], 11, 128)) \
    X(cuMemsetD32_v2, 3020, (u64, unsigned, size_t), (memory[1], 12, SIZE / 4)) \
    X(cuMemsetD32_v2_ptds, 7000, (u64, unsigned, size_t), (memory[1], 13, SIZE / 4)) \
    X(cuMemsetD32Async, 3020, (u64, unsigned, size_t, void *), (memory[1], 14, SIZE / 4, stream)) \
    X(cuMemsetD32Async_ptsz, 7000, (u64, unsigned, size_t, void *), (memory[1], 15, SIZE / 4, NULL)) \
    X(cuMemsetD2D8, 2000, (unsigned, unsigned, unsigned char, unsigned, unsigned), (narrow[1], 64, 16, 32, 4)) \
    X(cuMemsetD2D8_v2, 3020, (u64, size_t, unsigned char, size_t, size_t), (memory[1], 64, 17, 32, 4)) \
    X(cuMemsetD2D8_v2_ptds, 7000, (u64, size_t, unsigned char, size_t, size_t), (memory[1], 64, 18, 32, 4)) \
    X(cuMemsetD2D8Async, 3020, ROWS_PARAMETERS(unsigned char), (memory[1], 64, 19, 32, 4, stream)) \
    X(cuMemsetD2D8Async_ptsz, 7000, ROWS_PARAMETERS(unsigned char), (memory[1], 64, 20, 32, 4, NULL)) \
    X(cuMemsetD2D16, 2000, (unsigned, unsigned, unsigned short, unsigned, unsigned), (narrow[1], 64, 21, 16, 4)) \
    X(cuMemsetD2D16_v2, 3020, (u64, size_t, unsigned short, size_t, size_t), (memory[1], 64, 22, 16, 4)) \
    X(cuMemsetD2D16_v2_ptds, 7000, (u64, size_t, unsigned short, size_t, size_t), (memory[1], 64, 23, 16, 4)) \
    X(cuMemsetD2D16Async, 3020, ROWS_PARAMETERS(unsigned short), (memory[1], 64, 24, 16, 4, stream)) \
    X(cuMemsetD2D16Async_ptsz, 7000, ROWS_PARAMETERS(unsigned short), (memory[1], 64, 25, 16, 4, NULL)) \
    X(cuMemsetD2D32, 2000, (unsigned, unsigned, unsigned, unsigned, unsigned), (narrow[1], 64, 26, 8, 4)) \
    X(cuMemsetD2D32_v2, 3020, (u64, size_t, unsigned, size_t, size_t), (memory[1], 64, 27, 8, 4)) \
    X(cuMemsetD2D32_v2_ptds, 7000, (u64, size_t, unsigned, size_t, size_t), (memory[1], 64, 28, 8, 4)) \
    X(cuMemsetD2D32Async, 3020, ROWS_PARAMETERS(unsigned), (memory[1], 64, 29, 8, 4, stream)) \
    X(cuMemsetD2D32Async_ptsz, 7000, ROWS_PARAMETERS(unsigned), (memory[1], 64, 30, 8, 4, NULL))

#define GATED_MEMBER(symbol, version, parameters, call) int(*symbol) parameters;
static struct {
    GATED(GATED_MEMBER)
} gated;

#ifdef LINKED
#define GATED_DECLARE(symbol, version, parameters, call) extern int symbol parameters;
GATED(GATED_DECLARE)
#define FIND_GATED(symbol, version, parameters, call) gated.symbol = symbol;
#else
#define FIND_GATED(symbol, version, parameters, call) *(void **)&gated.symbol = find(door, #symbol, version);
#endif

// Restores everything that a call can write to.
static void lay_out(void) {
    gpu.cuMemcpyHtoD_v2(memory[1], rows + 1, SIZE - 1);
    gpu.cuMemcpyHtoD(narrow[1], rows + 3, NARROW);
    gpu.cuMemcpyHtoA_v2(arrays[1], 0, rows + 2, 64);
}

// Prints the effect of a call: the first bytes of each object, and a sum over all of it.
static void tell(const char *name, int status) {
    static unsigned char bytes[SIZE + NARROW + 64];
    unsigned long sum = 0;
    int waited = gpu.cuCtxSynchronize();
    gpu.cuMemcpyDtoH_v2(bytes, memory[1], SIZE);
    gpu.cuMemcpyDtoH(bytes + SIZE, narrow[1], NARROW);
    gpu.cuMemcpyAtoH_v2(bytes + SIZE + NARROW, arrays[1], 0, 64);
    for (size_t i = 0; i < sizeof bytes; i++) sum = sum * 31 + bytes[i];
    say("%s: %d, then %d, %02x %02x %02x, %lx", name, status, waited, bytes[0], bytes[SIZE], bytes[SIZE + NARROW], sum);
    lay_out();
}

// Makes one call again and again.
static int repeat(const char *name, int count) {
    int code = 0;
#define REPEAT(symbol, version, parameters, call) \
    if (!strcmp(name, #symbol)) for (int i = 0; i < count && !code; i++) code = gated.symbol call;
    GATED(REPEAT)
    return code;
}

int main(int count, char **words) {
    const char *door = count > 1 ? words[1] : "dlsym";
    if (!open_all(door)) return say("the door is shut"), 3;
    GATED(FIND_GATED)
    if (count > 5) {
        if (!prepare(words[5])) return 4;
        int code = repeat(words[3], atoi(words[4]));
        say("%d, then %d", code, gpu.cuCtxSynchronize());
        return getchar() == EOF ? 0 : 1;
    }
    if (count > 2) {
#define SERVER_OF(symbol, version, parameters, call) say(#symbol " by %s", server_of((void *)gated.symbol));
        GATED(SERVER_OF)
        return 0;
    }
    if (!prepare("2us")) return 4;
    lay_out();
#define CALL(symbol, version, parameters, call) \
    if (!gated.symbol) say(#symbol " is not there"); \
    else tell(#symbol, gated.symbol call);
    GATED(CALL)
    // The driver refuses these calls itself.
    tell("no configuration", gated.cuLaunchKernelEx(NULL, work, NULL, NULL));
    tell("no function", gated.cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    tell("no grid", gated.cuLaunchKernel(work, 0, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    tell("no devices", gated.cuLaunchCooperativeKernelMultiDevice(NULL, 0, 0));
    tell("no graph", gated.cuGraphLaunch(NULL, stream));
    tell("no description", gated.cuMemcpy2D_v2(NULL));
    tell("a negative grid", gated.cuLaunchGrid(work, -1, 1));
    plane.from.kind = HOST, plane.from.host = rows;
    tell("rows from the host", gated.cuMemcpy2D_v2(&plane));
    plane.from.kind = UNIFIED, plane.from.device = memory[0];
    tell("rows from anywhere", gated.cuMemcpy2DAsync_v2(&plane, stream));
    return 0;
}
