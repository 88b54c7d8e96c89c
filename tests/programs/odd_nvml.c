// A management library of one device in a mode that the simulated one does not have. ODD_MODE: its compute mode. ODD_VIRTUAL: its
// virtualisation mode. ODD_MPS: its number of processes under MPS. ODD_DENIED: status of the call that reports the utilisation of
// processes.
#include <stdio.h>
#include <stdlib.h>

static unsigned setting(const char *name) {
    const char *value = getenv(name);
    return value ? (unsigned)atoi(value) : 0;
}
int nvmlInit_v2(void) {
    return 0;
}
int nvmlShutdown(void) {
    return 0;
}
int nvmlSystemGetDriverVersion(char *version, unsigned room) {
    return snprintf(version, room, "550.54.15") < 0;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 1;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (char *)1 + index;
    return 0;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned room) {
    (void)device;
    return snprintf(uuid, room, "GPU-odd") < 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned room) {
    (void)device;
    return snprintf(name, room, "Odd GPU") < 0;
}
int nvmlDeviceGetComputeMode(void *device, unsigned *mode) {
    (void)device;
    *mode = setting("ODD_MODE");
    return 0;
}
int nvmlDeviceGetVirtualizationMode(void *device, unsigned *mode) {
    (void)device;
    *mode = setting("ODD_VIRTUAL");
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, void *entries) {
    (void)device, (void)entries;
    *count = 0;
    return 0;
}
int nvmlDeviceGetMPSComputeRunningProcesses_v2(void *device, unsigned *count, void *entries) {
    (void)device, (void)entries;
    *count = setting("ODD_MPS");
    return 0;
}
int nvmlDeviceGetProcessUtilization(void *device, void *samples, unsigned *count, unsigned long long since) {
    (void)device, (void)samples, (void)count, (void)since;
    return (int)setting("ODD_DENIED");
}
