// A process that shares memory with others, on order.
//
// sharing DOOR NAME: says `ready`, and then answers orders, one a line: a word and up to four numbers. It answers with the status
// of the call. Numbers name places: of addresses and handles (`value`), descriptors (`file`), handles of bytes (`blob`). NAME is
// the name to which others send descriptors and bytes. `beside` before an order has a second thread obey it, and `join` waits for
// that thread.
#include "beside.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

struct bytes { char at[64]; };
struct group_properties { unsigned devices; size_t size; u64 handles, flags; };
struct external_handle { unsigned kind; union { int file; void *pair[2]; } handle; u64 size; unsigned flags, rest[16]; };
struct external_buffer { u64 offset, size; unsigned flags, rest[16]; };
struct external_mipmap { u64 offset; size_t width, height, depth; unsigned format, channels, flags, levels, rest[16]; };

// X(exported symbol, name known to cuGetProcAddress, its first version, parameters)
#define SHARING_FUNCTIONS(X) \
    X(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", 10020, (void *, u64, int, u64)) \
    X(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020, (u64 *, void *, int)) \
    X(cuMemCreate, "cuMemCreate", 10020, (u64 *, size_t, const struct allocation *, u64)) \
    X(cuMemRelease, "cuMemRelease", 10020, (u64)) \
    X(cuMemMap, "cuMemMap", 10020, (u64, size_t, size_t, u64, u64)) \
    X(cuMemUnmap, "cuMemUnmap", 10020, (u64, size_t)) \
    X(cuMemAddressReserve, "cuMemAddressReserve", 10020, (u64 *, size_t, size_t, u64, u64)) \
    X(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, (u64 *, void *)) \
    X(cuMemAlloc_v2, "cuMemAlloc", 3020, (u64 *, size_t)) \
    X(cuMemFree_v2, "cuMemFree", 3020, (u64)) \
    X(cuMemFreeAsync, "cuMemFreeAsync", 11020, (u64, void *)) \
    X(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, (struct bytes *, u64)) \
    X(cuIpcOpenMemHandle, "cuIpcOpenMemHandle", 4010, (u64 *, struct bytes, unsigned)) \
    X(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000, (u64 *, struct bytes, unsigned)) \
    X(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, (u64)) \
    X(cuMemPoolCreate, "cuMemPoolCreate", 11020, (void **, const struct pool_properties *)) \
    X(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, (void *)) \
    X(cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, (void *, size_t)) \
    X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, (u64 *, size_t, void *, void *)) \
    X(cuMemPoolExportToShareableHandle, "cuMemPoolExportToShareableHandle", 11020, (void *, void *, int, u64)) \
    X(cuMemPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle", 11020, (void **, void *, int, u64)) \
    X(cuMemPoolExportPointer, "cuMemPoolExportPointer", 11020, (struct bytes *, u64)) \
    X(cuMemPoolImportPointer, "cuMemPoolImportPointer", 11020, (u64 *, void *, struct bytes *)) \
    X(cuImportExternalMemory, "cuImportExternalMemory", 10000, (void **, const struct external_handle *)) \
    X(cuExternalMemoryGetMappedBuffer, "cuExternalMemoryGetMappedBuffer", 10000, \
      (u64 *, void *, const struct external_buffer *)) \
    X(cuExternalMemoryGetMappedMipmappedArray, "cuExternalMemoryGetMappedMipmappedArray", 10000, \
      (void **, void *, const struct external_mipmap *)) \
    X(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000, (void *)) \
    X(cuDestroyExternalMemory, "cuDestroyExternalMemory", 10000, (void *)) \
    X(cuMulticastCreate, "cuMulticastCreate", 12010, (u64 *, const struct group_properties *)) \
    X(cuMulticastAddDevice, "cuMulticastAddDevice", 12010, (u64, int)) \
    X(cuMulticastBindMem, "cuMulticastBindMem", 12010, (u64, size_t, u64, size_t, size_t, u64)) \
    X(cuMulticastBindMem_v2, "cuMulticastBindMem", 13010, (u64, int, size_t, u64, size_t, size_t, u64)) \
    X(cuMulticastBindAddr, "cuMulticastBindAddr", 12010, (u64, size_t, u64, size_t, u64)) \
    X(cuMulticastBindAddr_v2, "cuMulticastBindAddr", 13010, (u64, int, size_t, u64, size_t, u64)) \
    X(cuMulticastUnbind, "cuMulticastUnbind", 12010, (u64, int, size_t, size_t)) \
    X(cuCheckpointProcessLock, "cuCheckpointProcessLock", 12080, (int, void *)) \
    X(cuCheckpointProcessCheckpoint, "cuCheckpointProcessCheckpoint", 12080, (int, void *)) \
    X(cuCheckpointProcessRestore, "cuCheckpointProcessRestore", 12080, (int, void *)) \
    X(cuCheckpointProcessUnlock, "cuCheckpointProcessUnlock", 12080, (int, void *)) \
    X(cuCheckpointProcessGetState, "cuCheckpointProcessGetState", 12080, (int, int *)) \
    X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, (int)) \
    X(cuStreamSynchronize, "cuStreamSynchronize", 2000, (void *))

#define SHARING_MEMBER(symbol, base, version, parameters) int(*symbol) parameters;
static struct {
    SHARING_FUNCTIONS(SHARING_MEMBER)
} api;

static int (*look_up)(const char *, void **, int, u64, int *);

static void *find(const char *door, const char *symbol, const char *base, int version) {
    void *found = NULL;
    int status = -1;
    if (strcmp(door, "five")) return dlsym(driver, symbol);
    return look_up(base, &found, version, 0, &status) == 0 && status == 0 ? found : NULL;
}

#ifdef LINKED
#define DECLARE(symbol, base, version, parameters) extern int symbol parameters;
SHARING_FUNCTIONS(DECLARE)
#endif

static int enter(const char *door) {
#ifdef LINKED
#define LINK(symbol, base, version, parameters) api.symbol = symbol;
    SHARING_FUNCTIONS(LINK)
    (void)find, (void)door;
#else
    *(void **)&look_up = dlsym(driver, "cuGetProcAddress_v2");
#define FIND_IT(symbol, base, version, parameters) \
    if (!(*(void **)&api.symbol = find(door, #symbol, base, version))) return say("no " #symbol), 0;
    SHARING_FUNCTIONS(FIND_IT)
#endif
    return 1;
}

enum { PLACES = 32 };
static u64 value[PLACES];
static int file[PLACES];
static struct bytes blob[PLACES];
static int post;

static struct sockaddr_un address_of(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "post-%.40s", name);
    return address;
}

// Sends bytes, and a descriptor if there is one.
static int send_to(const char *name, struct bytes *bytes, int descriptor) {
    struct sockaddr_un to = address_of(name);
    char room[CMSG_SPACE(sizeof descriptor)] = {0};
    struct iovec part = {bytes, sizeof *bytes};
    struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1};
    if (descriptor >= 0) {
        message.msg_control = room, message.msg_controllen = sizeof room;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof descriptor);
        memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
    }
    return sendmsg(post, &message, 0) == sizeof *bytes ? 0 : errno;
}

// Changes the bits of one byte of a handle.
static int scribble(struct bytes *bytes, u64 at, u64 bits) {
    ((unsigned char *)bytes)[at % sizeof *bytes] ^= (unsigned char)bits;
    return 0;
}

static int receive(struct bytes *bytes, int *descriptor) {
    char room[CMSG_SPACE(sizeof *descriptor)] = {0};
    struct iovec part = {bytes, sizeof *bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(post, &message, 0) != sizeof *bytes) return errno;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (descriptor && head) memcpy(descriptor, CMSG_DATA(head), sizeof *descriptor);
    return descriptor && !head ? ENOENT : 0;
}

static int create(u64 *handle, u64 bytes, int handles) {
    struct allocation wanted = {.kind = PINNED, .handles = handles, .location = ON_DEVICE};
    return api.cuMemCreate(handle, bytes, &wanted, 0);
}
static int map(u64 *address, u64 handle, u64 bytes) {
    int status = api.cuMemAddressReserve(address, bytes, 0, 0, 0);
    return status ? status : api.cuMemMap(*address, bytes, 0, handle, 0);
}
static int make_pool(u64 *pool, int handles) {
    struct pool_properties wanted = {.kind = PINNED, .handles = handles, .location = ON_DEVICE};
    return api.cuMemPoolCreate((void **)pool, &wanted);
}
static int free_in_order(u64 address, u64 pool) {
    int status = api.cuMemFreeAsync(address, NULL);
    int wait = status ? status : api.cuStreamSynchronize(NULL);
    return wait || !pool ? wait : api.cuMemPoolTrimTo((void *)pool, 0);
}
static int import_external(u64 *object, int descriptor, u64 bytes) {
    struct external_handle wanted = {.kind = 1, .size = bytes};
    wanted.handle.file = descriptor;
    return api.cuImportExternalMemory((void **)object, &wanted);
}
static int buffer(u64 *address, u64 object, u64 bytes) {
    struct external_buffer wanted = {.size = bytes};
    return api.cuExternalMemoryGetMappedBuffer(address, (void *)object, &wanted);
}
static int mipmap(u64 *array, u64 object, u64 width) {
    struct external_mipmap wanted = {.width = width, .height = width, .format = 0x20, .channels = 1, .levels = 1};
    return api.cuExternalMemoryGetMappedMipmappedArray((void **)array, (void *)object, &wanted);
}
static int make_group(u64 *handle, u64 bytes) {
    struct group_properties wanted = {.devices = 1, .size = bytes};
    int status = api.cuMulticastCreate(handle, &wanted);
    return status ? status : api.cuMulticastAddDevice(*handle, 0);
}
static int make_file(int *descriptor, u64 bytes) {
    *descriptor = memfd_create("memory of another interface", MFD_CLOEXEC);
    return *descriptor < 0 || ftruncate(*descriptor, bytes) ? errno : 0;
}
// A closed number must not be closed again: it may be another file's then.
static int close_file(int *descriptor) {
    int status = close(*descriptor);
    *descriptor = -1;
    return status;
}
static int use_pool(u64 handle) {
    int (*use)(int, void *) = dlsym(driver, "cuDeviceSetMemPool");
    return use(0, (void *)handle);
}
static int state_of(int pid) {
    int state = -1, status = api.cuCheckpointProcessGetState(pid, &state);
    return status ? -status : state;
}
static int start_again(void) {
    void *context = NULL;
    int status = api.cuDevicePrimaryCtxReset_v2(0);
    if (!status) status = cu.cuDevicePrimaryCtxRetain(&context, 0);
    return status ? status : cu.cuCtxSetCurrent(context);
}

static int obey_later(void);

#define ORDERS(X) \
    X("beside", begin_beside(obey_later)) \
    X("join", join_beside()) \
    X("leave", cu.cuDevicePrimaryCtxRelease_v2(0)) \
    X("wait", cu.cuStreamSynchronize(NULL)) \
    X("defaultpool", cu.cuDeviceGetDefaultMemPool((void **)&value[a], 0)) \
    X("usepool", use_pool(value[a])) \
    X("alloc", api.cuMemAlloc_v2(&value[a], b)) \
    X("free", api.cuMemFree_v2(value[a])) \
    X("freeasync", free_in_order(value[a], b ? value[c] : 0)) \
    X("create", create(&value[a], b, c)) \
    X("release", api.cuMemRelease(value[a])) \
    X("map", map(&value[a], value[b], c)) \
    X("unmap", api.cuMemUnmap(value[a], b)) \
    X("retain", api.cuMemRetainAllocationHandle(&value[a], (void *)value[b])) \
    X("export", api.cuMemExportToShareableHandle(&file[a], value[b], 1, 0)) \
    X("import", api.cuMemImportFromShareableHandle(&value[a], (void *)(long)file[b], 1)) \
    X("exportfabric", api.cuMemExportToShareableHandle(&blob[a], value[b], 8, 0)) \
    X("importfabric", api.cuMemImportFromShareableHandle(&value[a], &blob[b], 8)) \
    X("close", close_file(&file[a])) \
    X("ipcget", api.cuIpcGetMemHandle(&blob[a], value[b])) \
    X("ipcopen", api.cuIpcOpenMemHandle_v2(&value[a], blob[b], 1)) \
    X("ipcopen1", api.cuIpcOpenMemHandle(&value[a], blob[b], 1)) \
    X("ipcclose", api.cuIpcCloseMemHandle(value[a])) \
    X("scribble", scribble(&blob[a], b, c)) \
    X("pool", make_pool(&value[a], b)) \
    X("take", api.cuMemAllocFromPoolAsync(&value[a], b, (void *)value[c], NULL)) \
    X("endpool", api.cuMemPoolDestroy((void *)value[a])) \
    X("exportpool", api.cuMemPoolExportToShareableHandle(&file[a], (void *)value[b], 1, 0)) \
    X("importpool", api.cuMemPoolImportFromShareableHandle((void **)&value[a], (void *)(long)file[b], 1, 0)) \
    X("exportpointer", api.cuMemPoolExportPointer(&blob[a], value[b])) \
    X("importpointer", api.cuMemPoolImportPointer(&value[a], (void *)value[b], &blob[c])) \
    X("external", import_external(&value[a], file[b], c)) \
    X("buffer", buffer(&value[a], value[b], c)) \
    X("mipmap", mipmap(&value[a], value[b], c)) \
    X("endmipmap", api.cuMipmappedArrayDestroy((void *)value[a])) \
    X("endexternal", api.cuDestroyExternalMemory((void *)value[a])) \
    X("file", make_file(&file[a], b)) \
    X("group", make_group(&value[a], b)) \
    X("bind", api.cuMulticastBindMem(value[a], 0, value[b], 0, c, 0)) \
    X("bind2", api.cuMulticastBindMem_v2(value[a], 0, 0, value[b], 0, c, 0)) \
    X("bindaddress", api.cuMulticastBindAddr(value[a], 0, value[b], c, 0)) \
    X("bindaddress2", api.cuMulticastBindAddr_v2(value[a], 0, 0, value[b], c, 0)) \
    X("unbind", api.cuMulticastUnbind(value[a], 0, 0, b)) \
    X("lock", api.cuCheckpointProcessLock(a, NULL)) \
    X("checkpoint", api.cuCheckpointProcessCheckpoint(a, NULL)) \
    X("restore", api.cuCheckpointProcessRestore(a, NULL)) \
    X("unlock", api.cuCheckpointProcessUnlock(a, NULL)) \
    X("state", state_of(a)) \
    X("reset", start_again()) \
    X("same", value[a] == value[b]) \
    X("receivefile", receive(&blob[0], &file[a])) \
    X("receiveblob", receive(&blob[a], NULL)) \
    X("sendfile", file[a] < 0 ? EBADF : send_to(name, &blob[0], file[a])) \
    X("sendblob", send_to(name, &blob[a], -1))

enum { NO_SUCH_ORDER = -1000 };

// Obeys an order and returns its status.
static int obey(const char *line) {
    char order[32], name[41] = "";
    u64 a = 0, b = 0, c = 0;
    if (sscanf(line, "%31s %llu %llu %llu", order, &a, &b, &c) < 1) return NO_SUCH_ORDER;
    if (!strncmp(order, "send", 4)) sscanf(line, "%*s %*u %40s", name);
#define OBEY(word, call) \
    if (!strcmp(order, word)) return call;
    ORDERS(OBEY)
    return NO_SUCH_ORDER;
}

// The order that a second thread obeys.
static char later[160];
static int obey_later(void) { return obey(later); }

int main(int count, char **words) {
    char line[160];
    if (count < 3 || !start() || !enter(words[1])) return 3;
    memset(file, -1, sizeof file);
    struct sockaddr_un own = address_of(words[2]);
    post = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (post < 0 || bind(post, (struct sockaddr *)&own, sizeof own)) return 4;
    say("ready");
    while (fgets(line, sizeof line, stdin)) {
        sscanf(line, "beside %159[^\n]", later);
        int status = obey(line);
        if (status == NO_SUCH_ORDER) return say("no such order"), 2;
        say("%d", status);
    }
    return 0;
}
