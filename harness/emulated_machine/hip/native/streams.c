/* Streams, events and synchronization. Work is done before the call that submits it returns, so streams are always idle;
 * an event holds the time at which it was recorded. */
#include "machine.h"

#include <stdlib.h>
#include <time.h>

struct stream {
    struct stream *next;
    int device, priority;
    unsigned flags;
    unsigned long long id;
};

struct event {
    struct event *next;
    unsigned flags;
    int device;
    bool recorded;
    struct timespec time;
};

static struct stream *streams;
static struct event *events;
static unsigned long long stream_ids;

static bool builtin_stream(hipStream_t stream)
{
    return !stream || stream == (hipStream_t)1 /* hipStreamLegacy */ || stream == hipStreamPerThread;
}

static struct stream **find_stream(hipStream_t stream)
{
    for (struct stream **each = &streams; *each; each = &(*each)->next)
        if ((void *)*each == (void *)stream)
            return each;
    return NULL;
}

static struct event **find_event(hipEvent_t event)
{
    for (struct event **each = &events; *each; each = &(*each)->next)
        if ((void *)*each == (void *)event)
            return each;
    return NULL;
}

bool valid_stream(hipStream_t stream)
{
    if (builtin_stream(stream))
        return true;
    LOCK();
    bool valid = find_stream(stream);
    UNLOCK();
    return valid;
}

bool device_of_stream(hipStream_t stream, int *device)
{
    *device = current_device;
    if (builtin_stream(stream))
        return true;
    LOCK();
    struct stream **place = find_stream(stream);
    if (place)
        *device = (*place)->device;
    UNLOCK();
    return place;
}

/* -- streams ------------------------------------------------------------------------------------------------------------------ */

EXPORT hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER();
    REQUIRE(OPTIONAL(least) && OPTIONAL(greatest), hipErrorInvalidValue);
    if (least)
        *least = 1;
    if (greatest)
        *greatest = -1;
    return hipSuccess;
}

EXPORT hipError_t hipStreamCreateWithPriority(hipStream_t *out, unsigned flags, int priority)
{
    ENTER();
    REQUIRE(writable(out, sizeof *out) && !(flags & ~hipStreamNonBlocking), hipErrorInvalidValue);
    REQUIRE(machine.count > 0, hipErrorNoDevice);
    struct stream *stream = calloc(1, sizeof *stream);
    REQUIRE(stream, hipErrorOutOfMemory);
    LOCK();
    *stream = (struct stream){
        .next = streams, .device = current_device, .flags = flags, .id = ++stream_ids,
        .priority = priority > 1 ? 1 : priority < -1 ? -1 : priority};
    streams = stream;
    UNLOCK();
    *out = (hipStream_t)stream;
    return hipSuccess;
}

/* Return a new stream of a device, for torch. */
EXPORT hipStream_t harness_hip_stream(int device, int priority)
{
    hipStream_t stream = NULL;
    int before = current_device;
    current_device = device;
    hipStreamCreateWithPriority(&stream, hipStreamNonBlocking, priority);
    current_device = before;
    return stream;
}

EXPORT hipError_t hipStreamCreateWithFlags(hipStream_t *out, unsigned flags)
{
    return hipStreamCreateWithPriority(out, flags, 0);
}

EXPORT hipError_t hipStreamCreate(hipStream_t *out) { return hipStreamCreateWithPriority(out, hipStreamDefault, 0); }

EXPORT hipError_t hipStreamDestroy(hipStream_t stream)
{
    ENTER();
    LOCK();
    struct stream **place = builtin_stream(stream) ? NULL : find_stream(stream);
    UNLOCK_AND_REQUIRE(place, hipErrorInvalidHandle);
    struct stream *gone = *place;
    *place = gone->next;
    UNLOCK();
    free(gone);
    return hipSuccess;
}

static hipError_t check(hipStream_t stream)
{
    ENTER();
    return done(valid_stream(stream) ? hipSuccess : hipErrorInvalidHandle);
}

EXPORT hipError_t hipStreamQuery(hipStream_t stream) { return check(stream); }
EXPORT hipError_t hipStreamSynchronize(hipStream_t stream) { return check(stream); }

/* Copy the facts of a stream; those of the null stream are the current device's. */
static hipError_t facts_of(hipStream_t stream, struct stream *facts)
{
    ENTER();
    *facts = (struct stream){.device = current_device};
    if (builtin_stream(stream))
        return hipSuccess;
    LOCK();
    struct stream **place = find_stream(stream);
    UNLOCK_AND_REQUIRE(place, hipErrorInvalidHandle);
    *facts = **place;
    UNLOCK();
    return hipSuccess;
}

#define STREAM_FACT(function, type, member)                       \
    hipError_t function(hipStream_t stream, type *value)          \
    {                                                             \
        struct stream facts;                                      \
        REQUIRE(writable(value, sizeof *value), hipErrorInvalidValue);                     \
        hipError_t error = facts_of(stream, &facts);              \
        if (error == hipSuccess)                                  \
            *value = facts.member;                                \
        return error;                                             \
    }

STREAM_FACT(flags_of, unsigned, flags)
EXPORT STREAM_FACT(hipStreamGetPriority, int, priority)
EXPORT STREAM_FACT(hipStreamGetDevice, hipDevice_t, device)
EXPORT STREAM_FACT(hipStreamGetId, unsigned long long, id)

EXPORT hipError_t hipStreamGetFlags(hipStream_t stream, unsigned *flags)
{
    REQUIRE(stream, hipErrorInvalidValue); /* as ROCm: the null stream has no flags */
    return flags_of(stream, flags);
}

EXPORT hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status)
{
    REQUIRE(writable(status, sizeof *status), hipErrorInvalidValue);
    *status = hipStreamCaptureStatusNone; /* hipStreamBeginCapture is refused */
    return check(stream);
}

EXPORT hipError_t hipStreamAddCallback(
    hipStream_t stream, hipStreamCallback_t callback, void *data, unsigned flags)
{
    REQUIRE(callback && !flags, hipErrorInvalidValue);
    hipError_t error = check(stream);
    if (error == hipSuccess)
        callback(stream, hipSuccess, data);
    return error;
}

EXPORT hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void *data)
{
    REQUIRE(function, hipErrorInvalidValue);
    hipError_t error = check(stream);
    if (error == hipSuccess)
        function(data);
    return error;
}

/* -- events ------------------------------------------------------------------------------------------------------------------- */

EXPORT hipError_t hipEventCreateWithFlags(hipEvent_t *out, unsigned flags)
{
    ENTER();
    unsigned known = hipEventBlockingSync | hipEventDisableTiming | hipEventInterprocess | hipEventReleaseToDevice |
                     hipEventReleaseToSystem | hipEventDisableSystemFence;
    REQUIRE(writable(out, sizeof *out) && !(flags & ~known), hipErrorInvalidValue);
    unsigned release = flags & (hipEventReleaseToDevice | hipEventReleaseToSystem | hipEventDisableSystemFence);
    REQUIRE(!(release & (release - 1)), hipErrorInvalidValue); /* at most one of them */
    REQUIRE(!(flags & hipEventInterprocess) || flags & hipEventDisableTiming, hipErrorInvalidValue);
    REQUIRE(machine.count > 0, hipErrorNoDevice);
    struct event *event = calloc(1, sizeof *event);
    REQUIRE(event, hipErrorOutOfMemory);
    event->flags = flags, event->device = current_device;
    LOCK();
    event->next = events, events = event;
    UNLOCK();
    *out = (hipEvent_t)event;
    return hipSuccess;
}

EXPORT hipError_t hipEventCreate(hipEvent_t *out) { return hipEventCreateWithFlags(out, hipEventDefault); }

EXPORT hipError_t hipEventDestroy(hipEvent_t event)
{
    ENTER();
    REQUIRE(event, hipErrorInvalidHandle);
    LOCK();
    struct event **place = find_event(event);
    UNLOCK_AND_REQUIRE(place, hipErrorContextIsDestroyed); /* as ROCm, for an event that was destroyed */
    struct event *gone = *place;
    *place = gone->next;
    UNLOCK();
    free(gone);
    return hipSuccess;
}

EXPORT hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream)
{
    ENTER();
    struct stream facts;
    hipError_t error = facts_of(stream, &facts);
    if (error != hipSuccess)
        return error;
    LOCK();
    struct event **place = find_event(event);
    UNLOCK_AND_REQUIRE(place, hipErrorInvalidHandle);
    bool same_device = builtin_stream(stream) || facts.device == (*place)->device;
    UNLOCK_AND_REQUIRE(same_device, hipErrorInvalidHandle);
    clock_gettime(CLOCK_MONOTONIC, &(*place)->time);
    (*place)->recorded = true;
    UNLOCK();
    return hipSuccess;
}

EXPORT hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream, unsigned flags)
{
    /* hipEventRecordExternal differs only in a capture, and captures are refused */
    REQUIRE(flags == hipEventRecordDefault || flags == hipEventRecordExternal, hipErrorInvalidValue);
    return hipEventRecord(event, stream);
}

static hipError_t check_event(hipEvent_t event)
{
    ENTER();
    LOCK();
    bool valid = find_event(event);
    UNLOCK();
    return done(valid ? hipSuccess : hipErrorInvalidHandle);
}

EXPORT hipError_t hipEventSynchronize(hipEvent_t event) { return check_event(event); }
EXPORT hipError_t hipEventQuery(hipEvent_t event) { return check_event(event); }

EXPORT hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags)
{
    REQUIRE(flags == hipEventWaitDefault || flags == hipEventWaitExternal, hipErrorInvalidValue);
    hipError_t error = check(stream);
    return error == hipSuccess ? check_event(event) : error;
}

EXPORT hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t start, hipEvent_t stop)
{
    ENTER();
    REQUIRE(writable(milliseconds, sizeof *milliseconds), hipErrorInvalidValue);
    LOCK();
    struct event **first = find_event(start), **last = find_event(stop);
    UNLOCK_AND_REQUIRE(first && last, hipErrorInvalidHandle);
    struct event a = **first, b = **last;
    UNLOCK();
    REQUIRE(!((a.flags | b.flags) & hipEventDisableTiming) && a.recorded && b.recorded && a.device == b.device,
            hipErrorInvalidHandle);
    *milliseconds = (float)((b.time.tv_sec - a.time.tv_sec) * 1e3 + (b.time.tv_nsec - a.time.tv_nsec) / 1e6);
    return hipSuccess;
}

/* -- devices ------------------------------------------------------------------------------------------------------------------ */

EXPORT hipError_t hipDeviceSynchronize(void)
{
    ENTER();
    REQUIRE(machine.count > 0, hipErrorNoDevice);
    return hipSuccess;
}
