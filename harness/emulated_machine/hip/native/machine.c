/* The machine as this process sees it: number and kind of GPUs, the thread's device and last error, error texts. */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct machine machine;
_Thread_local int current_device;

static _Thread_local hipError_t last_error;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool forked;
bool in_use;

/* Keep those of ``count`` GPUs that a list such as "0,2" names; HIP ignores what follows the first invalid entry. */
static void select_visible(const char *variable)
{
    const char *text = getenv(variable);
    if (!text)
        return;
    struct device before[MAX_DEVICES];
    memcpy(before, machine.devices, sizeof before);
    int count = 0;
    while (*text && count < MAX_DEVICES) {
        char *end;
        long index = strtol(text, &end, 10);
        if (!strncmp(text, "GPU-", 4)) { /* a uuid */
            unsigned long long id = strtoull(text + 4, &end, 16);
            for (index = 0; index < machine.count; index++)
                if (machine.model->unique_ids[before[index].place] == id)
                    break;
        }
        if (end == text || index < 0 || index >= machine.count)
            break;
        bool repeated = false;
        for (int i = 0; i < count; i++)
            repeated |= machine.devices[i].place == before[index].place;
        if (repeated)
            break;
        machine.devices[count++] = before[index];
        text = end + (*end == ',');
        if (*end && *end != ',')
            break;
    }
    machine.count = count;
}

static void in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    forked = in_use; /* as on a GPU, a child of a process that uses HIP cannot use it */
}

static void configure(void)
{
    const char *text = getenv("IRIS_HARNESS_HIP"); /* set by harness.emulated_machine.hip.install */
    char arch[16] = "gfx942";
    int gpus = 1;
    if (text)
        sscanf(text, "%15[^:]:%d", arch, &gpus);
    machine.gfx950 = !strcmp(arch, "gfx950");
    machine.model = &facts_models[0];
    for (size_t i = 0; i < sizeof facts_models / sizeof *facts_models; i++)
        if (!strcmp(facts_models[i].arch, arch))
            machine.model = &facts_models[i];
    machine.gpus = machine.count = gpus < 0 ? 0 : gpus > MAX_DEVICES ? MAX_DEVICES : gpus;
    for (int i = 0; i < machine.count; i++)
        machine.devices[i].place = i;
    select_visible("ROCR_VISIBLE_DEVICES");
    select_visible(getenv("HIP_VISIBLE_DEVICES") ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES");
    pthread_atfork(NULL, NULL, in_child);
}

hipError_t enter(void)
{
    if (forked)
        return hipErrorNotInitialized;
    pthread_once(&once, configure);
    return hipSuccess;
}

hipError_t done(hipError_t error)
{
    if (error != hipSuccess && error != hipErrorNotReady)
        last_error = error;
    return error;
}

bool valid_device(int device) { return device >= 0 && device < machine.count; }

size_t capacity(void) { return machine.model->memory; }

EXPORT hipError_t hipInit(unsigned flags)
{
    ENTER();
    REQUIRE(flags == 0, hipErrorInvalidValue);
    REQUIRE(machine.count > 0, hipErrorNoDevice);
    return hipSuccess;
}

EXPORT hipError_t hipRuntimeGetVersion(int *version)
{
    REQUIRE(writable(version, sizeof *version), hipErrorInvalidValue);
    *version = FACTS_HIP_VERSION; /* torch.version.hip */
    return hipSuccess;
}

EXPORT hipError_t hipDriverGetVersion(int *version) { return hipRuntimeGetVersion(version); }

EXPORT hipError_t hipGetDeviceCount(int *count)
{
    ENTER();
    REQUIRE(writable(count, sizeof *count), hipErrorInvalidValue);
    *count = machine.count;
    REQUIRE(machine.count > 0, hipErrorNoDevice);
    return hipSuccess;
}

EXPORT hipError_t hipSetDevice(int device)
{
    ENTER();
    REQUIRE(valid_device(device), hipErrorInvalidDevice);
    current_device = device;
    return hipSuccess;
}

EXPORT hipError_t hipGetDevice(int *device)
{
    ENTER();
    REQUIRE(writable(device, sizeof *device), hipErrorInvalidValue);
    REQUIRE(machine.count > 0, hipErrorNoDevice);
    *device = current_device;
    return hipSuccess;
}

EXPORT hipError_t hipCtxGetDevice(hipDevice_t *device)
{
    return hipGetDevice(device);
}

EXPORT hipError_t hipGetLastError(void)
{
    hipError_t error = last_error;
    last_error = hipSuccess;
    return error;
}

EXPORT hipError_t hipExtGetLastError(void) { return hipGetLastError(); }
EXPORT hipError_t hipPeekAtLastError(void) { return last_error; }

static const struct { hipError_t error; const char *name, *text; } errors[] = {
#define E(name, text) {name, #name, text}
    E(hipSuccess, "no error"),
    E(hipErrorInvalidValue, "invalid argument"),
    E(hipErrorOutOfMemory, "out of memory"),
    E(hipErrorNotInitialized, "initialization error"),
    E(hipErrorDeinitialized, "driver shutting down"),
    E(hipErrorProfilerDisabled, "profiler disabled while using external profiling tool"),
    E(hipErrorProfilerNotInitialized, "profiler is not initialized"),
    E(hipErrorProfilerAlreadyStarted, "profiler already started"),
    E(hipErrorProfilerAlreadyStopped, "profiler already stopped"),
    E(hipErrorInvalidConfiguration, "invalid configuration argument"),
    E(hipErrorInvalidPitchValue, "invalid pitch argument"),
    E(hipErrorInvalidSymbol, "invalid device symbol"),
    E(hipErrorInvalidDevicePointer, "invalid device pointer"),
    E(hipErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    E(hipErrorInsufficientDriver, "driver version is insufficient for runtime version"),
    E(hipErrorMissingConfiguration, "__global__ function call is not configured"),
    E(hipErrorPriorLaunchFailure, "unspecified launch failure in prior launch"),
    E(hipErrorInvalidDeviceFunction, "invalid device function"),
    E(hipErrorNoDevice, "no ROCm-capable device is detected"),
    E(hipErrorInvalidDevice, "invalid device ordinal"),
    E(hipErrorInvalidImage, "device kernel image is invalid"),
    E(hipErrorInvalidContext, "invalid device context"),
    E(hipErrorContextAlreadyCurrent, "context is already current context"),
    E(hipErrorMapFailed, "mapping of buffer object failed"),
    E(hipErrorUnmapFailed, "unmapping of buffer object failed"),
    E(hipErrorArrayIsMapped, "array is mapped"),
    E(hipErrorAlreadyMapped, "resource already mapped"),
    E(hipErrorNoBinaryForGpu, "no kernel image is available for execution on the device"),
    E(hipErrorAlreadyAcquired, "resource already acquired"),
    E(hipErrorNotMapped, "resource not mapped"),
    E(hipErrorNotMappedAsArray, "resource not mapped as array"),
    E(hipErrorNotMappedAsPointer, "resource not mapped as pointer"),
    E(hipErrorECCNotCorrectable, "uncorrectable ECC error encountered"),
    E(hipErrorUnsupportedLimit, "limit is not supported on this architecture"),
    E(hipErrorContextAlreadyInUse, "exclusive-thread device already in use by a different thread"),
    E(hipErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    E(hipErrorInvalidKernelFile, "invalid kernel file"),
    E(hipErrorInvalidGraphicsContext, "invalid OpenGL or DirectX context"),
    E(hipErrorInvalidSource, "device kernel image is invalid"),
    E(hipErrorFileNotFound, "file not found"),
    E(hipErrorSharedObjectSymbolNotFound, "shared object symbol not found"),
    E(hipErrorSharedObjectInitFailed, "shared object initialization failed"),
    E(hipErrorOperatingSystem, "OS call failed or operation not supported on this OS"),
    E(hipErrorInvalidHandle, "invalid resource handle"),
    E(hipErrorIllegalState, "the operation cannot be performed in the present state"),
    E(hipErrorNotFound, "named symbol not found"),
    E(hipErrorNotReady, "device not ready"),
    E(hipErrorIllegalAddress, "an illegal memory access was encountered"),
    E(hipErrorLaunchOutOfResources, "too many resources requested for launch"),
    E(hipErrorLaunchTimeOut, "the launch timed out and was terminated"),
    E(hipErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    E(hipErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    E(hipErrorSetOnActiveProcess, "cannot set while device is active in this process"),
    E(hipErrorContextIsDestroyed, "context is destroyed"),
    E(hipErrorAssert, "device-side assert triggered"),
    E(hipErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    E(hipErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    E(hipErrorLaunchFailure, "unspecified launch failure"),
    E(hipErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    E(hipErrorNotSupported, "operation not supported"),
    E(hipErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    E(hipErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    E(hipErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    E(hipErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    E(hipErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    E(hipErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    E(hipErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing blocking stream"),
    E(hipErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    E(hipErrorStreamCaptureWrongThread, "attempt to terminate a thread-local capture sequence from another thread"),
    E(hipErrorGraphExecUpdateFailure, "the graph update was not performed because it violated constraints"),
    E(hipErrorInvalidChannelDescriptor, "invalid channel descriptor"),
    E(hipErrorInvalidTexture, "invalid texture"),
    E(hipErrorUnknown, "unknown error"),
    E(hipErrorRuntimeMemory, "runtime memory call returned error"),
    E(hipErrorRuntimeOther, "runtime call other than memory returned error"),
#undef E
};

EXPORT const char *hipGetErrorName(hipError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "hipErrorUnknown";
}

EXPORT const char *hipGetErrorString(hipError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "unknown error";
}

EXPORT hipError_t hipDrvGetErrorName(hipError_t error, const char **name)
{
    REQUIRE(writable(name, sizeof *name), hipErrorInvalidValue);
    *name = hipGetErrorName(error);
    return hipSuccess;
}

EXPORT hipError_t hipDrvGetErrorString(hipError_t error, const char **text)
{
    REQUIRE(writable(text, sizeof *text), hipErrorInvalidValue);
    *text = hipGetErrorString(error);
    return hipSuccess;
}
