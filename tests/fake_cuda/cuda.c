/* A libcuda.so.1 that can checkpoint processes of the fake NVML's file, $MODELSUP_FAKE_NVML.
 *
 * Beside that file, FILE.PID.locked and FILE.PID.parked say what state a process is in; the fake
 * NVML and the echo runtime count nothing of one that is parked. Lines of the file:
 *
 *   error FUNCTION CODE                the function returns this code
 *   hang FUNCTION                      the function does not return
 *
 * Compiled with -DWITHOUT_CHECKPOINT it lacks these functions, as older drivers do.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, ILLEGAL_STATE = 401 };
enum { VERSION = 12080 };

typedef struct { unsigned timeout_ms, reserved0; unsigned long long reserved1[7]; } lock_args;

static int look(const char *function) {
    char line[512], name[96];
    int code = SUCCESS, found;
    const char *path = getenv("MODELSUP_FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return INVALID_VALUE;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "error %95s %d", name, &found) == 2 && strcmp(name, function) == 0)
            code = found;
        if (sscanf(line, "hang %95s", name) == 1 && strcmp(name, function) == 0) pause();
    }
    fclose(file);
    return code;
}

static const char *mark(int pid, const char *state) {
    static char path[4096];
    snprintf(path, sizeof path, "%s.%d.%s", getenv("MODELSUP_FAKE_NVML"), pid, state);
    return path;
}

static int is(int pid, const char *state) { return access(mark(pid, state), F_OK) == 0; }

static int set(int pid, const char *state) {
    FILE *file = fopen(mark(pid, state), "w");
    return file ? fclose(file) : INVALID_VALUE;
}

int cuInit(unsigned flags) {
    (void)flags;
    return look("cuInit");
}

int cuDriverGetVersion(int *version) {
    *version = VERSION;
    return look("cuDriverGetVersion");
}

int cuGetErrorName(int code, const char **name) {
    (void)code;
    *name = "AN_ERROR_OF_THE_FAKE";
    return SUCCESS;
}

#ifndef WITHOUT_CHECKPOINT
int cuCheckpointProcessLock(int pid, lock_args *args) {
    int code = look("cuCheckpointProcessLock");
    if (code) return code;
    if (!args || !args->timeout_ms || args->reserved0 || args->reserved1[6]) return INVALID_VALUE;
    return is(pid, "locked") ? ILLEGAL_STATE : set(pid, "locked");
}

int cuCheckpointProcessCheckpoint(int pid, void *args) {
    int code = look("cuCheckpointProcessCheckpoint");
    (void)args;
    if (code) return code;
    return is(pid, "locked") && !is(pid, "parked") ? set(pid, "parked") : ILLEGAL_STATE;
}

int cuCheckpointProcessRestore(int pid, void *args) {
    int code = look("cuCheckpointProcessRestore");
    (void)args;
    if (code) return code;
    return is(pid, "parked") ? unlink(mark(pid, "parked")) : ILLEGAL_STATE;
}

int cuCheckpointProcessUnlock(int pid, void *args) {
    int code = look("cuCheckpointProcessUnlock");
    (void)args;
    if (code) return code;
    if (!is(pid, "locked") || is(pid, "parked")) return ILLEGAL_STATE;
    return unlink(mark(pid, "locked"));
}
#endif
