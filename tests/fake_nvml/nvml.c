/* A libnvidia-ml.so.1 whose GPUs stand in a text file, named by $MODELSUP_FAKE_NVML.
 *
 * The file is read anew by each call; whoever changes it replaces it whole. Sizes are in bytes.
 *
 *   device UUID TOTAL RESERVED         the GPUs, in order
 *   mig PARENT_UUID UUID TOTAL RESERVED    a MIG device; its parent has MIG on
 *   process PID UUID BYTES [leak] [unknown]
 *                                      ignored once PID is dead, unless "leak";
 *                                      "unknown": its bytes are used, but not told
 *   other UUID BYTES                   used by nobody that is listed
 *   offset N                           pids are told as pid + N, as from another namespace
 *   hidden                             no process is listed, as in most containers
 *   lost UUID                          calls about it say that the GPU is lost
 *   error FUNCTION CODE                the function returns this code
 *   hang FUNCTION                      the function does not return while this line is there
 *
 * A process is not on its GPU while there is a file FILE.PID.parked beside this one.
 *
 * Compiled with -DWITHOUT_MEMORY_V2, -DWITHOUT_PROCESSES_V3 or -DWITHOUT_PROCESSES, it lacks these
 * functions, as older drivers do.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    GPU_IS_LOST = 15,
};

enum { MAX_DEVICES = 32, MAX_PROCESSES = 256, UUID_SIZE = 96 };

typedef unsigned long long bytes;
typedef struct { bytes total, free, used; } memory_v1;
typedef struct { unsigned version; bytes total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; bytes used; unsigned gpu_instance, compute_instance; } process_info;

typedef struct {
    char uuid[UUID_SIZE], parent[UUID_SIZE]; /* parent: "" unless this is a MIG device */
    bytes total, reserved, other;
    int lost;
} device;

typedef struct {
    int pid, leak, unknown;
    char uuid[UUID_SIZE];
    bytes used;
} process;

typedef struct {
    device devices[MAX_DEVICES];
    process processes[MAX_PROCESSES];
    int device_count, process_count, offset, hidden, error, hang;
} world;

static device *find(world *w, const char *uuid) {
    for (int i = 0; i < w->device_count; i++)
        if (strcmp(w->devices[i].uuid, uuid) == 0) return &w->devices[i];
    return NULL;
}

static int is_parked(int pid) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%d.parked", getenv("MODELSUP_FAKE_NVML"), pid);
    return access(path, F_OK) == 0;
}

static void read_line(world *w, const char *line, const char *function) {
    char a[UUID_SIZE], b[UUID_SIZE];
    bytes n = 0;
    int code = 0;
    device d = {0};
    process p = {0};
    if (sscanf(line, "device %95s %llu %llu", d.uuid, &d.total, &d.reserved) == 3 ||
        sscanf(line, "mig %95s %95s %llu %llu", d.parent, d.uuid, &d.total, &d.reserved) == 4) {
        if (w->device_count < MAX_DEVICES) w->devices[w->device_count++] = d;
    } else if (sscanf(line, "process %d %95s %llu", &p.pid, p.uuid, &p.used) == 3) {
        p.leak = strstr(line, " leak") != NULL;
        p.unknown = strstr(line, " unknown") != NULL;
        int alive = p.leak || (kill(p.pid, 0) == 0 && !is_parked(p.pid));
        if (alive && w->process_count < MAX_PROCESSES) w->processes[w->process_count++] = p;
    } else if (sscanf(line, "other %95s %llu", a, &n) == 2) {
        device *found = find(w, a);
        if (found) found->other += n;
    } else if (sscanf(line, "lost %95s", a) == 1) {
        device *found = find(w, a);
        if (found) found->lost = 1;
    } else if (sscanf(line, "offset %d", &code) == 1) {
        w->offset = code;
    } else if (strncmp(line, "hidden", 6) == 0) {
        w->hidden = 1;
    } else if (sscanf(line, "error %95s %d", b, &code) == 2) {
        if (strcmp(b, function) == 0) w->error = code;
    } else if (sscanf(line, "hang %95s", b) == 1) {
        if (strcmp(b, function) == 0) w->hang = 1;
    }
}

static int read_file(world *w, const char *function) {
    char line[512];
    const char *path = getenv("MODELSUP_FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    memset(w, 0, sizeof *w);
    if (!file) return UNINITIALIZED;
    while (fgets(line, sizeof line, file)) read_line(w, line, function);
    fclose(file);
    return w->error;
}

/* Read what `function` is to see; do not return while it is to hang. */
static int look(world *w, const char *function) {
    struct timespec pause = {0, 5 * 1000 * 1000};
    int code = read_file(w, function);
    while (w->hang) {
        nanosleep(&pause, NULL);
        code = read_file(w, function);
    }
    return code;
}

/* A handle is the place of its device in the file, plus 1. */
static int look_at(world *w, const char *function, void *handle, device **found) {
    int code = look(w, function);
    long place = (long)handle - 1;
    if (code) return code;
    if (place < 0 || place >= w->device_count) return INVALID_ARGUMENT;
    *found = &w->devices[place];
    device *parent = find(w, (*found)->parent);
    return (*found)->lost || (parent && parent->lost) ? GPU_IS_LOST : SUCCESS;
}

static int give_text(const char *text, char *out, unsigned size) {
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

static int nth_device(const world *w, const char *parent, unsigned index, void **handle) {
    for (int i = 0; i < w->device_count; i++)
        if (strcmp(w->devices[i].parent, parent) == 0 && index-- == 0) {
            *handle = (void *)(long)(i + 1);
            return SUCCESS;
        }
    return NOT_FOUND;
}

static unsigned count_of(const world *w, const char *parent) {
    unsigned count = 0;
    for (int i = 0; i < w->device_count; i++) count += strcmp(w->devices[i].parent, parent) == 0;
    return count;
}

int nvmlInitWithFlags(unsigned flags) {
    world w;
    (void)flags;
    return look(&w, "nvmlInitWithFlags");
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    (void)code;
    return "an error of the fake";
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    world w;
    int code = look(&w, "nvmlDeviceGetCount_v2");
    if (!code) *count = count_of(&w, "");
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    world w;
    device *found;
    int code = look(&w, "nvmlDeviceGetHandleByIndex_v2");
    if (!code) code = nth_device(&w, "", index, handle);
    return code ? code : look_at(&w, "nvmlDeviceGetHandleByIndex_v2", *handle, &found);
}

int nvmlDeviceGetUUID(void *handle, char *out, unsigned size) {
    world w;
    device *found;
    int code = look_at(&w, "nvmlDeviceGetUUID", handle, &found);
    return code ? code : give_text(found->uuid, out, size);
}

int nvmlDeviceGetName(void *handle, char *out, unsigned size) {
    world w;
    device *found;
    int code = look_at(&w, "nvmlDeviceGetName", handle, &found);
    return code ? code : give_text("Fake GPU", out, size);
}

static bytes used_of(const world *w, const device *d) {
    bytes used = d->other;
    for (int i = 0; i < w->process_count; i++)
        if (strcmp(w->processes[i].uuid, d->uuid) == 0) used += w->processes[i].used;
    return used;
}

int nvmlDeviceGetMemoryInfo(void *handle, memory_v1 *out) {
    world w;
    device *d;
    int code = look_at(&w, "nvmlDeviceGetMemoryInfo", handle, &d);
    if (code) return code;
    bytes used = used_of(&w, d) + d->reserved;
    *out = (memory_v1){d->total, d->total - used, used};
    return SUCCESS;
}

#ifndef WITHOUT_MEMORY_V2
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *out) {
    world w;
    device *d;
    int code = look_at(&w, "nvmlDeviceGetMemoryInfo_v2", handle, &d);
    if (code) return code;
    bytes used = used_of(&w, d);
    *out = (memory_v2){out->version, d->total, d->reserved, d->total - d->reserved - used, used};
    return SUCCESS;
}
#endif

#ifndef WITHOUT_PROCESSES
static int list_processes(const char *function, void *handle, unsigned *count, process_info *out) {
    world w;
    device *d;
    unsigned room = out ? *count : 0, n = 0;
    int code = look_at(&w, function, handle, &d);
    if (code) return code;
    for (int i = 0; i < w.process_count; i++) {
        process *p = &w.processes[i];
        if (w.hidden || strcmp(p->uuid, d->uuid) != 0) continue;
        if (n < room) out[n] = (process_info){p->pid + w.offset, p->unknown ? ~0ULL : p->used, 0, 0};
        n++;
    }
    *count = n;
    return n > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, process_info *out) {
    return list_processes("nvmlDeviceGetComputeRunningProcesses_v2", handle, count, out);
}

#ifndef WITHOUT_PROCESSES_V3
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process_info *out) {
    return list_processes("nvmlDeviceGetComputeRunningProcesses_v3", handle, count, out);
}
#endif
#endif

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    world w;
    device *d;
    int code = look_at(&w, "nvmlDeviceGetMigMode", handle, &d);
    if (!code) *current = *pending = count_of(&w, d->uuid) > 0;
    return code;
}

/* One more than there are, as on a GPU that is not divided to the full. */
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    world w;
    device *d;
    int code = look_at(&w, "nvmlDeviceGetMaxMigDeviceCount", handle, &d);
    if (!code) *count = count_of(&w, d->uuid) + 1;
    return code;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **found) {
    world w;
    device *d;
    int code = look_at(&w, "nvmlDeviceGetMigDeviceHandleByIndex", handle, &d);
    return code ? code : nth_device(&w, d->uuid, index, found);
}
