/* A stub of libnvidia-ml.so.1 for machines without a GPU, built by the tests with the machine's cc.
 *
 * It has the functions and structures of nvml.h that the tracker calls. Environment variables set its behaviour:
 *
 *   STUB_GPUS=N             N GPUs: GPU i is 10 (i + 1) % busy and has 1000 (i + 1) of 16384 MiB in use
 *   STUB_PROCESSES=FILE     lines of "<gpu> <pid> <MiB> <percent>", read at each call
 *   STUB_MIG=1              GPU 0 has two MIG instances; GPU 0 and its processes have no utilisation
 *   STUB_PERIOD_MS=N        process samples are N ms apart; 167 ms by default
 *   STUB_FAIL=NAME          the call of that name fails: utilization, memory, processes, usages, name, init, handle (all but the first)
 *   STUB_HANG=NAME:N:MS     the Nth call of that name takes MS milliseconds
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef int nvmlReturn_t;
typedef struct gpu *nvmlDevice_t;
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, DRIVER_NOT_LOADED = 9, UNKNOWN = 999 };

struct gpu { u32 index; int instance; };
typedef struct { u64 total, free, used; } memory_v1;
typedef struct { u32 version; u64 total, reserved, free, used; } memory_v2;
typedef struct { u32 pid; u64 used; } process_v1;
typedef struct { u32 pid; u64 used; u32 gpu_instance, compute_instance; } process_v2;
typedef struct { u32 pid; u64 time_us; u32 sm, mem, enc, dec; } usage;
typedef struct { u32 gpu, memory; } rates;

static struct gpu gpus[64];
static struct gpu instances[2];

static u32 gpu_count(void) {
    const char *text = getenv("STUB_GPUS");
    return text ? (u32)atoi(text) : 0;
}

static int is_divided(nvmlDevice_t gpu) { return getenv("STUB_MIG") && gpu->index == 0; }

/* Whether a call fails; also sleeps if STUB_HANG names the call. */
static int fails(const char *name) {
    static int calls[8];
    static const char *names[8] = {"init", "utilization", "memory", "processes", "usages", "name", "handle"};
    const char *hang = getenv("STUB_HANG"), *fail = getenv("STUB_FAIL");
    char which[32];
    int number, ms;
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], name)) continue;
        calls[i]++;
        if (hang && sscanf(hang, "%31[^:]:%d:%d", which, &number, &ms) == 3 && !strcmp(which, name) &&
            calls[i] == number) {
            struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};
            nanosleep(&time, NULL);
        }
    }
    return fail && !strcmp(fail, name);
}

nvmlReturn_t nvmlInit_v2(void) {
    for (u32 i = 0; i < 64; i++) gpus[i] = (struct gpu){i, -1};
    instances[0] = (struct gpu){0, 0};
    instances[1] = (struct gpu){0, 1};
    return fails("init") ? DRIVER_NOT_LOADED : OK;
}
nvmlReturn_t nvmlShutdown(void) { return OK; }
nvmlReturn_t nvmlSystemGetDriverVersion(char *text, u32 size) { return snprintf(text, size, "535.104.05") > 0 ? OK : UNKNOWN; }
nvmlReturn_t nvmlDeviceGetCount_v2(u32 *count) { *count = gpu_count(); return OK; }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(u32 index, nvmlDevice_t *gpu) {
    if (index >= gpu_count()) return INVALID;
    if (index && fails("handle")) return UNKNOWN;
    *gpu = &gpus[index];
    return OK;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t gpu, char *text, u32 size) {
    if (fails("name")) return UNKNOWN;
    snprintf(text, size, "Stub %s", gpu->index == 3 ? "B200" : "T4");
    return OK;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t gpu, char *text, u32 size) {
    snprintf(text, size, "GPU-%08x-0000-0000-0000-000000000000", gpu->index);
    return OK;
}
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t gpu, u32 *minor) { *minor = gpu->index; return OK; }
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t gpu, u32 *mw) { *mw = 100500 + 1000 * gpu->index; return OK; }
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t gpu, int sensor, u32 *c) { (void)sensor; *c = 40 + gpu->index; return OK; }
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t gpu, int clock, u32 *mhz) { (void)gpu; (void)clock; *mhz = 1500; return OK; }

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t gpu, rates *found) {
    if (fails("utilization")) return UNKNOWN;
    if (is_divided(gpu)) return NOT_SUPPORTED;
    *found = (rates){10 * (gpu->index + 1), 1};
    return OK;
}

static u64 mib(u64 number) { return number << 20; }
static u64 used(nvmlDevice_t gpu) { return gpu->instance < 0 ? mib(1000 * (gpu->index + 1)) : mib(500); }

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t gpu, memory_v1 *found) {
    if (fails("memory")) return UNKNOWN;
    *found = (memory_v1){mib(16384), mib(16384) - used(gpu), used(gpu)};
    return OK;
}

/* The processes of a GPU or an instance; odd lines are on the second instance. */
static u32 list(nvmlDevice_t gpu, process_v2 *found, u32 *percent, u32 most) {
    const char *path = getenv("STUB_PROCESSES");
    FILE *file = path ? fopen(path, "r") : NULL;
    u32 index, pid, size, busy, count = 0, line = 0;
    if (!file) return 0;
    while (fscanf(file, "%u %u %u %u", &index, &pid, &size, &busy) == 4) {
        int instance = (int)(line++ % 2);
        if (index != gpu->index || (gpu->instance >= 0 && gpu->instance != instance)) continue;
        if (count < most) {
            if (found) found[count] = (process_v2){pid, mib(size), (u32)instance, 0};
            if (percent) percent[count] = busy;
        }
        count++;
    }
    fclose(file);
    return count;
}

static nvmlReturn_t processes(nvmlDevice_t gpu, u32 *count, void *found, int old) {
    process_v2 all[256];
    if (fails("processes")) return UNKNOWN;
    u32 number = list(gpu, all, NULL, 256), room = *count;
    *count = number;
    if (number > room || (number && !found)) return number ? SMALL : OK;
    for (u32 i = 0; i < number; i++) {
        if (old) ((process_v1 *)found)[i] = (process_v1){all[i].pid, all[i].used};
        else ((process_v2 *)found)[i] = all[i];
    }
    return OK;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t gpu, memory_v2 *found) {
    if (fails("memory")) return UNKNOWN;
    if (found->version != (sizeof(memory_v2) | (2u << 24))) return INVALID;
    *found = (memory_v2){found->version, mib(16384), 0, mib(16384) - used(gpu), used(gpu)};
    return OK;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t gpu, u32 *count, process_v2 *found) {
    return processes(gpu, count, found, 0);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t gpu, u32 *count, process_v2 *found) {
    (void)gpu; (void)found;
    *count = 0;
    return OK;
}
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t gpu, usage *found, u32 *count, u64 since_us) {
    process_v2 all[256];
    u32 percent[256], number, room = *count, written = 0;
    struct timeval now;
    if (fails("usages")) return UNKNOWN;
    if (is_divided(gpu)) return NOT_SUPPORTED;
    number = list(gpu, all, percent, 256);
    if (!number) return NOT_FOUND;
    *count = number;
    if (!found || room < number) return SMALL;
    gettimeofday(&now, NULL);
    u64 time_us = (u64)now.tv_sec * 1000000 + (u64)now.tv_usec;
    const char *period = getenv("STUB_PERIOD_MS");
    /* Samples are taken periodically, not per call. */
    time_us -= time_us % (period ? (u64)atoi(period) * 1000 : 166667);
    for (u32 i = 0; i < number; i++)
        if (percent[i] && time_us > since_us) found[written++] = (usage){all[i].pid, time_us, percent[i], 0, 0, 0};
    *count = written;
    return written ? OK : NOT_FOUND;
}
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t gpu, u32 *current, u32 *pending) {
    *current = *pending = (u32)is_divided(gpu);
    return OK;
}
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t gpu, u32 *count) { (void)gpu; *count = 7; return OK; }
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t gpu, u32 index, nvmlDevice_t *found) {
    (void)gpu;
    if (index >= 2) return NOT_FOUND;
    *found = &instances[index];
    return OK;
}
