/* One process uses the memory of another, by descriptor and by handle. One user of the memory is charged for it. */
#include <sys/socket.h>
#include <sys/wait.h>
#include <sys/prctl.h>
#include "driver.h"

typedef struct { char bytes[64]; } ipc;
int cuIpcOpenMemHandle_v2(ptr *, ipc, unsigned);

static void send_fd(int to, int fd, ipc *i) {
    char room[CMSG_SPACE(sizeof fd)] = {0}; struct iovec v = {i, sizeof *i};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m); c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd); CHECK(sendmsg(to, &m, 0) == sizeof *i);
}

static int receive_fd(int from, ipc *i) {
    int fd; char room[CMSG_SPACE(sizeof fd)]; struct iovec v = {i, sizeof *i};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    CHECK(recvmsg(from, &m, 0) == sizeof *i); memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd); return fd;
}

static void importer(int socket) {
    ipc i; char back[8]; ptr va, p; uint64_t h; access_desc rw = {{1, 0}, 3};
    int fd = receive_fd(socket, &i); start(); size_t before = held();
    OK(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, 1)); SAME(held(), before);
    OK(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0)); OK(cuMemMap(va, 2 * MIB, 0, h, 0)); OK(cuMemSetAccess(va, 2 * MIB, &rw, 1));
    OK(cuMemcpyDtoH_v2(back, va, 8)); CHECK(!strcmp(back, "vmm"));
    OK(cuIpcOpenMemHandle_v2(&p, i, 1)); SAME(held(), before); OK(cuMemcpyDtoH_v2(back, p + 100, 8)); CHECK(!strcmp(back, "linear"));
    OK(cuMemcpyHtoD_v2(p + 100, "changed", 8)); STATUS(1, cuMemFree_v2(p)); OK(cuIpcCloseMemHandle(p)); STATUS(1, cuIpcCloseMemHandle(p));
    CHECK(write(socket, "r", 1) == 1);
    /* The exporter has ended, with its context and memory. Its shared memory lives on, and this process is charged for it. */
    CHECK(read(socket, back, 1) == 0); SAME(held(), 300 * MIB + 2 * MIB);
    OK(cuMemcpyDtoH_v2(back, va, 8)); CHECK(!strcmp(back, "vmm"));
    OK(cuMemRelease(h)); SAME(held(), 302 * MIB); OK(cuMemUnmap(va, 2 * MIB)); SAME(held(), 300 * MIB);
}

int main(void) {
    int pair[2], fd, status; ptr va, p; uint64_t h; char back[8]; ipc i;
    memory_props props = {.kind = 1, .handle_types = 1, .where = {1, 0}};
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    if (fork()) { close(pair[1]); importer(pair[0]); wait(&status); CHECK(status == 0); return 0; }
    close(pair[0]); start();
    OK(cuMemCreate(&h, 2 * MIB, &props, 0)); OK(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0)); OK(cuMemMap(va, 2 * MIB, 0, h, 0));
    OK(cuMemcpyHtoD_v2(va, "vmm", 4)); OK(cuMemExportToShareableHandle(&fd, h, 1, 0));
    OK(cuMemAlloc_v2(&p, 1000)); OK(cuMemAlloc_v2(&p, 1000)); OK(cuMemcpyHtoD_v2(p + 100, "linear", 7)); OK(cuIpcGetMemHandle(&i, p));
    send_fd(pair[1], fd, &i); CHECK(read(pair[1], back, 1) == 1);
    OK(cuMemcpyDtoH_v2(back, p + 100, 8)); CHECK(!strcmp(back, "changed"));
    return 0;
}
