/* Allocation in all its forms, questions about pointers, copies and fills. */
#include "machine.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* -- allocation ------------------------------------------------------------------------------------------------------ */

static hipError_t allocate(
    void **out, size_t size, int device, const char *made_by, hipMemoryType type, unsigned flags, bool everywhere)
{
    size_t span = pages(size);
    if (span < size)
        return hipErrorOutOfMemory;
    LOCK();
    struct device *owner = &machine.devices[device];
    bool on_device = type == hipMemoryTypeDevice;
    hipError_t error = hipErrorOutOfMemory;
    if (!on_device || span <= capacity() - owner->used) {
        int file = make_file(span, owner->place);
        void *address = file < 0 ? NULL : map_file(file, span, span >= LARGE_PAGE ? LARGE_PAGE : PAGE);
        struct range range = {
            .address = (uintptr_t)address, .size = size, .span = span, .made_by = made_by, .device = device, .type = type,
            .flags = flags, .file = file, .follows_peers = !everywhere, .access = ALL_DEVICES, .place = owner->place};
        if (address && add_range(range)) {
            owner->used += on_device ? span : 0;
            *out = address;
            error = hipSuccess;
        } else {
            if (address)
                munmap(address, span);
            if (file >= 0)
                close(file);
        }
    }
    UNLOCK();
    return error;
}

/* Allocate on the current device for a call of HIP. */
static hipError_t allocate_here(void **out, size_t size, const char *made_by, hipMemoryType type, unsigned flags)
{
    ENTER();
    REQUIRE(writable(out, sizeof *out), hipErrorInvalidValue);
    REQUIRE(machine.count > 0, hipErrorNoDevice);
    *out = NULL;
    if (!size)
        return hipSuccess;
    return done(allocate(out, size, current_device, made_by, type, flags, type != hipMemoryTypeDevice));
}

EXPORT hipError_t hipMalloc(void **out, size_t size)
{
    return allocate_here(out, size, "hipMalloc", hipMemoryTypeDevice, 0);
}

EXPORT hipError_t hipExtMallocWithFlags(void **out, size_t size, unsigned flags)
{
    switch (flags) {
    case hipDeviceMallocDefault:
    case hipDeviceMallocFinegrained:
    case hipDeviceMallocUncached:
    case hipDeviceMallocContiguous:
        return allocate_here(out, size, "hipExtMallocWithFlags", hipMemoryTypeDevice, flags);
    case hipMallocSignalMemory:
        REQUIRE(size == 8, hipErrorInvalidValue); /* a signal has 8 bytes */
        return allocate_here(out, size, "hipExtMallocWithFlags", hipMemoryTypeDevice, flags);
    default:
        return done(hipErrorInvalidValue);
    }
}

EXPORT hipError_t hipMallocManaged(void **out, size_t size, unsigned flags)
{
    REQUIRE(flags == hipMemAttachGlobal || flags == hipMemAttachHost, hipErrorInvalidValue);
    REQUIRE(writable(out, sizeof *out) && size, hipErrorInvalidValue);
    return allocate_here(out, size, "hipMallocManaged", hipMemoryTypeManaged, flags);
}

static hipError_t allocate_host(void **out, size_t size, unsigned flags, const char *made_by)
{
    unsigned known = hipHostMallocPortable | hipHostMallocMapped | hipHostMallocWriteCombined | hipHostMallocNumaUser |
                     hipHostMallocCoherent | hipHostMallocNonCoherent | hipHostMallocUncached;
    unsigned both = hipHostMallocCoherent | hipHostMallocNonCoherent;
    REQUIRE(!(flags & ~known) && (flags & both) != both, hipErrorInvalidValue);
    return allocate_here(out, size, made_by, hipMemoryTypeHost, flags);
}

EXPORT hipError_t hipHostMalloc(void **out, size_t size, unsigned flags)
{
    return allocate_host(out, size, flags, "hipHostMalloc");
}

EXPORT hipError_t hipHostAlloc(void **out, size_t size, unsigned flags)
{
    return allocate_host(out, size, flags, "hipHostAlloc");
}

EXPORT hipError_t hipMallocHost(void **out, size_t size) { return allocate_host(out, size, 0, "hipMallocHost"); }
EXPORT hipError_t hipMemAllocHost(void **out, size_t size) { return allocate_host(out, size, 0, "hipMemAllocHost"); }

EXPORT hipError_t hipMallocPitch(void **out, size_t *pitch, size_t width, size_t height)
{
    REQUIRE(writable(out, sizeof *out) && writable(pitch, sizeof *pitch), hipErrorInvalidValue);
    size_t rows, aligned = (width + 255) & ~(size_t)255;
    REQUIRE(aligned >= width && !__builtin_mul_overflow(aligned, height, &rows), hipErrorOutOfMemory);
    *pitch = aligned;
    return allocate_here(out, rows, "hipMallocPitch", hipMemoryTypeDevice, 0);
}

EXPORT hipError_t hipMemAllocPitch(
    hipDeviceptr_t *out, size_t *pitch, size_t width, size_t height, unsigned element_size)
{
    REQUIRE(element_size == 4 || element_size == 8 || element_size == 16, hipErrorInvalidValue);
    return hipMallocPitch(out, pitch, width, height);
}

/* Free what begins at ``address``, if it came from one of the allocating calls. */
static hipError_t free_memory(void *address, const char *ended_by, bool host)
{
    ENTER();
    if (!address)
        return hipSuccess;
    LOCK();
    struct range *range = find_range(address);
    bool allocated = range && range->address == (uintptr_t)address && !range->foreign && !range->owner && range->span &&
                     host == (range->type == hipMemoryTypeHost);
    UNLOCK_AND_REQUIRE(allocated, hipErrorInvalidValue);
    if (range->type == hipMemoryTypeDevice)
        machine.devices[range->device].used -= range->span;
    end_range(range, ended_by, false);
    UNLOCK();
    return hipSuccess;
}

EXPORT hipError_t hipFree(void *address) { return free_memory(address, "hipFree", false); }
EXPORT hipError_t hipHostFree(void *address) { return free_memory(address, "hipHostFree", true); }
EXPORT hipError_t hipFreeHost(void *address) { return free_memory(address, "hipFreeHost", true); }

/* Allocate for the Python side: memory that every device may access, as after hipDeviceEnablePeerAccess. */
EXPORT hipError_t harness_hip_allocate(void **out, size_t size, int device, int fine_grained)
{
    ENTER();
    REQUIRE(writable(out, sizeof *out) && size, hipErrorInvalidValue);
    REQUIRE(valid_device(device), hipErrorInvalidDevice);
    unsigned flags = fine_grained ? hipDeviceMallocFinegrained : hipDeviceMallocDefault;
    return done(allocate(out, size, device, "torch.cuda", hipMemoryTypeDevice, flags, true));
}

EXPORT hipError_t harness_hip_free(void *address) { return free_memory(address, "torch.cuda", false); }

/* -- stream-ordered allocation: streams are always idle, so it is immediate -------------------------------------------- */

static hipMemPool_t pool_of(int device) { return (hipMemPool_t)&machine.devices[device]; }

static bool default_pool(hipMemPool_t pool, int *device)
{
    for (int i = 0; i < machine.count; i++)
        if (pool == pool_of(i)) {
            *device = i;
            return true;
        }
    return false;
}

EXPORT hipError_t hipMallocAsync(void **out, size_t size, hipStream_t stream)
{
    ENTER();
    int device;
    REQUIRE(device_of_stream(stream, &device) && writable(out, sizeof *out), hipErrorInvalidValue);
    REQUIRE(machine.count > 0, hipErrorNoDevice);
    *out = NULL;
    return size ? done(allocate(out, size, device, "hipMallocAsync", hipMemoryTypeDevice, 0, false)) : hipSuccess;
}

EXPORT hipError_t hipMallocFromPoolAsync(void **out, size_t size, hipMemPool_t pool, hipStream_t stream)
{
    ENTER();
    int device;
    REQUIRE(writable(out, sizeof *out) && valid_stream(stream) && default_pool(pool, &device), hipErrorInvalidValue);
    *out = NULL;
    return size ? done(allocate(out, size, device, "hipMallocFromPoolAsync", hipMemoryTypeDevice, 0, false)) : hipSuccess;
}

EXPORT hipError_t hipFreeAsync(void *address, hipStream_t stream)
{
    REQUIRE(address && valid_stream(stream), hipErrorInvalidValue);
    return free_memory(address, "hipFreeAsync", false);
}

EXPORT hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t *pool, int device)
{
    ENTER();
    REQUIRE(writable(pool, sizeof *pool), hipErrorInvalidValue);
    REQUIRE(valid_device(device), hipErrorInvalidDevice);
    *pool = pool_of(device);
    return hipSuccess;
}

EXPORT hipError_t hipDeviceGetMemPool(hipMemPool_t *pool, int device)
{
    ENTER();
    REQUIRE(valid_device(device), hipErrorInvalidValue);
    return hipDeviceGetDefaultMemPool(pool, device);
}

EXPORT hipError_t hipDeviceSetMemPool(int device, hipMemPool_t pool)
{
    ENTER();
    int owner;
    REQUIRE(valid_device(device) && default_pool(pool, &owner), hipErrorInvalidValue);
    REQUIRE(owner == device, hipErrorInvalidDevice);
    return hipSuccess;
}

EXPORT hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t least)
{
    ENTER();
    int device;
    (void)least;
    REQUIRE(default_pool(pool, &device), hipErrorInvalidValue);
    return hipSuccess;
}

/* -- host memory ------------------------------------------------------------------------------------------------------- */

/* Return whether every page of [address, address + size) is mapped. */
bool mapped(const void *address, size_t size)
{
    uintptr_t start = (uintptr_t)address & ~(PAGE - 1), end = (uintptr_t)address + size;
    /* msync rounds the length up to pages, and a length that overflows counts as none. */
    bool sane = size < 1ul << 47 && end >= (uintptr_t)address;
    return sane && !msync((void *)start, end - start, MS_ASYNC);
}

/* Let the kernel try the accesses, without changing a byte: a page may be mapped without the permission. */
static bool touch(const void *address, size_t size, int advice)
{
    if (!size)
        return true;
    if (!mapped(address, size))
        return false;
    uintptr_t start = (uintptr_t)address & ~(PAGE - 1), end = (uintptr_t)address + size;
    if (!madvise((void *)start, end - start, advice))
        return true;
    uintptr_t here = (uintptr_t)&start & ~(PAGE - 1);
    return madvise((void *)here, PAGE, advice) != 0; /* Linux before 5.14 has no such call */
}

bool readable(const void *address, size_t size) { return touch(address, size, MADV_POPULATE_READ); }
bool writable(const void *address, size_t size) { return touch(address, size, MADV_POPULATE_WRITE); }

bool copy_text(char *copy, size_t room, const char *text)
{
    for (size_t i = 0; i < room; i++) {
        if ((!i || (uintptr_t)(text + i) % PAGE == 0) && !readable(text + i, 1))
            return false;
        if (!(copy[i] = text[i]))
            return true;
    }
    return false;
}

EXPORT hipError_t hipHostRegister(void *address, size_t size, unsigned flags)
{
    ENTER();
    unsigned known = hipHostRegisterPortable | hipHostRegisterMapped | hipHostRegisterIoMemory | hipHostRegisterReadOnly |
                     hipExtHostRegisterCoarseGrained | hipExtHostRegisterUncached;
    REQUIRE(address && size && !(flags & ~known), hipErrorInvalidValue);
    REQUIRE(machine.count > 0, hipErrorNoDevice);
    REQUIRE(mapped(address, size), hipErrorInvalidValue);
    LOCK();
    UNLOCK_AND_REQUIRE(!overlapping(address, size), hipErrorHostMemoryAlreadyRegistered);
    bool added = add_range((struct range){
        .address = (uintptr_t)address, .size = size, .made_by = "hipHostRegister", .device = current_device,
        .type = hipMemoryTypeHost, .flags = flags, .file = -1, .access = ALL_DEVICES, .place = -1});
    UNLOCK();
    return done(added ? hipSuccess : hipErrorOutOfMemory);
}

EXPORT hipError_t hipHostUnregister(void *address)
{
    ENTER();
    REQUIRE(address, hipErrorInvalidValue);
    LOCK();
    struct range *range = find_range(address);
    bool registered = range && range->address == (uintptr_t)address && range->place < 0;
    UNLOCK_AND_REQUIRE(registered, hipErrorHostMemoryNotRegistered);
    end_range(range, "hipHostUnregister", false);
    UNLOCK();
    return hipSuccess;
}

EXPORT hipError_t hipHostGetDevicePointer(void **device_address, void *address, unsigned flags)
{
    ENTER();
    REQUIRE(writable(device_address, sizeof *device_address) && address && !flags, hipErrorInvalidValue);
    LOCK();
    struct range *range = find_range(address);
    bool host = range && (range->type == hipMemoryTypeHost || range->type == hipMemoryTypeManaged);
    UNLOCK_AND_REQUIRE(host, hipErrorInvalidValue);
    UNLOCK();
    *device_address = address;
    return hipSuccess;
}

EXPORT hipError_t hipHostGetFlags(unsigned *flags, void *address)
{
    ENTER();
    REQUIRE(writable(flags, sizeof *flags) && address, hipErrorInvalidValue);
    LOCK();
    struct range *range = find_range(address);
    UNLOCK_AND_REQUIRE(range && range->type == hipMemoryTypeHost, hipErrorInvalidValue);
    *flags = range->flags;
    UNLOCK();
    return hipSuccess;
}

/* -- questions ----------------------------------------------------------------------------------------------------------- */

EXPORT hipError_t hipMemGetInfo(size_t *available, size_t *total)
{
    ENTER();
    REQUIRE((available || total) && OPTIONAL(available) && OPTIONAL(total), hipErrorInvalidValue);
    REQUIRE(machine.count > 0, hipErrorNoDevice);
    LOCK();
    if (available)
        *available = capacity() - machine.devices[current_device].used;
    UNLOCK();
    if (total)
        *total = capacity();
    return hipSuccess;
}

EXPORT hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *size, hipDeviceptr_t address)
{
    ENTER();
    REQUIRE((base || size) && OPTIONAL(base) && OPTIONAL(size), hipErrorInvalidValue);
    LOCK();
    struct range *range = find_range(address);
    UNLOCK_AND_REQUIRE(range, hipErrorInvalidValue);
    if (base)
        *base = (void *)range->address;
    if (size)
        *size = range->size;
    UNLOCK();
    return hipSuccess;
}

EXPORT hipError_t hipMemPtrGetInfo(void *address, size_t *size)
{
    ENTER();
    REQUIRE(writable(size, sizeof *size), hipErrorInvalidValue);
    LOCK();
    struct range *range = find_range(address);
    UNLOCK_AND_REQUIRE(range, hipErrorInvalidValue);
    *size = range->size;
    UNLOCK();
    return hipSuccess;
}

static void describe(hipPointerAttribute_t *attributes, const struct range *range, const void *address)
{
    bool host = range->type == hipMemoryTypeHost || range->type == hipMemoryTypeManaged;
    *attributes = (hipPointerAttribute_t){
        .type = range->type, .device = range->device, .devicePointer = (void *)address,
        .hostPointer = host ? (void *)address : NULL, .isManaged = range->type == hipMemoryTypeManaged,
        .allocationFlags = range->flags};
}

EXPORT hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *address)
{
    ENTER();
    REQUIRE(writable(attributes, sizeof *attributes) && address, hipErrorInvalidValue);
    LOCK();
    struct range *range = find_range(address);
    if (range)
        describe(attributes, range, address);
    else /* ordinary host memory: no error, since ROCm 6 */
        *attributes = (hipPointerAttribute_t){.type = hipMemoryTypeUnregistered, .device = hipInvalidDeviceId};
    UNLOCK();
    return hipSuccess;
}

static size_t size_of_attribute(hipPointer_attribute attribute)
{
    switch (attribute) {
    case HIP_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case HIP_POINTER_ATTRIBUTE_HOST_POINTER:
    case HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case HIP_POINTER_ATTRIBUTE_RANGE_SIZE:
    case HIP_POINTER_ATTRIBUTE_BUFFER_ID: return sizeof(uint64_t);
    default: return sizeof(unsigned);
    }
}

static hipError_t attribute_of(void *data, hipPointer_attribute attribute, void *address)
{
    hipPointerAttribute_t known;
    hipError_t error = hipErrorInvalidValue;
    LOCK();
    struct range *range = find_range(address);
    if (range) {
        describe(&known, range, address);
        error = hipSuccess;
        switch (attribute) {
        case HIP_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)data = known.type; break;
        case HIP_POINTER_ATTRIBUTE_DEVICE_POINTER: *(void **)data = known.devicePointer; break;
        case HIP_POINTER_ATTRIBUTE_HOST_POINTER:
            *(void **)data = known.hostPointer;
            error = known.hostPointer ? hipSuccess : hipErrorInvalidValue;
            break;
        case HIP_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)data = known.isManaged; break;
        case HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = known.device; break;
        case HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE: *(unsigned *)data = !range->foreign && !range->owner; break;
        case HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(void **)data = (void *)range->address; break;
        case HIP_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = range->size; break;
        case HIP_POINTER_ATTRIBUTE_MAPPED: *(unsigned *)data = 1; break;
        case HIP_POINTER_ATTRIBUTE_BUFFER_ID: *(uint64_t *)data = range->address; break;
        case HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS: *(unsigned *)data = 0; break;
        default: error = hipErrorNotSupported;
        }
    }
    UNLOCK();
    return error;
}

EXPORT hipError_t hipPointerGetAttribute(void *data, hipPointer_attribute attribute, hipDeviceptr_t address)
{
    ENTER();
    REQUIRE(writable(data, size_of_attribute(attribute)) && address, hipErrorInvalidValue);
    return done(attribute_of(data, attribute, address));
}

EXPORT hipError_t hipDrvPointerGetAttributes(
    unsigned count, hipPointer_attribute *attributes, void **data, hipDeviceptr_t address)
{
    ENTER();
    REQUIRE(count && readable(attributes, count * sizeof *attributes) && readable(data, count * sizeof *data) && address,
            hipErrorInvalidValue);
    for (unsigned i = 0; i < count; i++)
        REQUIRE(writable(data[i], size_of_attribute(attributes[i])), hipErrorInvalidValue);
    for (unsigned i = 0; i < count; i++)
        attribute_of(data[i], attributes[i], address);
    return hipSuccess;
}

/* -- copies and fills ----------------------------------------------------------------------------------------------------- */

/* Check that the library may touch [address, address + size): inside one live range, or in mapped host memory. */
static bool touchable(const void *address, size_t size, bool must_be_known, bool store)
{
    struct range *range = find_range(address);
    if (range && !(within(range, address, size) && access_of(range)))
        return false;
    if (range && range->span)
        return true;
    if (!range && (must_be_known || find_ended(address) || find_reserved(address) || overlapping(address, size)))
        return false;
    /* Host memory: its pages may be read-only, and registered ones may have been unmapped by the program. */
    return store ? writable(address, size) : readable(address, size);
}

/* Return the bytes from the first to the last one of ``height`` rows; 0 if that is more than an address space. */
static size_t extent(size_t pitch, size_t width, size_t height)
{
    size_t size;
    bool overflow = __builtin_mul_overflow(pitch, height - 1, &size) || __builtin_add_overflow(size, width, &size);
    return overflow ? 0 : size;
}

static hipError_t copy(void *target, const void *source, size_t size)
{
    ENTER();
    if (!size)
        return hipSuccess;
    REQUIRE(target && source, hipErrorInvalidValue);
    LOCK();
    bool good = touchable(target, size, false, true) && touchable(source, size, false, false);
    UNLOCK_AND_REQUIRE(good, hipErrorInvalidValue);
    UNLOCK();
    memmove(target, source, size);
    return hipSuccess;
}

static bool known_kind(hipMemcpyKind kind)
{
    return ((int)kind >= hipMemcpyHostToHost && kind <= hipMemcpyDefault) || kind == hipMemcpyDeviceToDeviceNoCU;
}

static hipError_t copy_on(void *target, const void *source, size_t size, hipMemcpyKind kind, hipStream_t stream)
{
    REQUIRE(known_kind(kind), hipErrorInvalidMemcpyDirection);
    REQUIRE(valid_stream(stream), hipErrorInvalidHandle);
    return copy(target, source, size);
}

EXPORT hipError_t hipMemcpy(void *target, const void *source, size_t size, hipMemcpyKind kind)
{
    return copy_on(target, source, size, kind, NULL);
}

EXPORT hipError_t hipMemcpyAsync(void *target, const void *source, size_t size, hipMemcpyKind kind, hipStream_t stream)
{
    return copy_on(target, source, size, kind, stream);
}

EXPORT hipError_t hipMemcpyWithStream(
    void *target, const void *source, size_t size, hipMemcpyKind kind, hipStream_t stream)
{
    return copy_on(target, source, size, kind, stream);
}

EXPORT hipError_t hipMemcpyHtoD(hipDeviceptr_t target, const void *source, size_t size)
{
    return copy(target, source, size);
}

EXPORT hipError_t hipMemcpyDtoH(void *target, hipDeviceptr_t source, size_t size) { return copy(target, source, size); }

EXPORT hipError_t hipMemcpyDtoD(hipDeviceptr_t target, hipDeviceptr_t source, size_t size)
{
    return copy(target, source, size);
}

EXPORT hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t target, const void *source, size_t size, hipStream_t stream)
{
    return copy_on(target, source, size, hipMemcpyHostToDevice, stream);
}

EXPORT hipError_t hipMemcpyDtoHAsync(void *target, hipDeviceptr_t source, size_t size, hipStream_t stream)
{
    return copy_on(target, source, size, hipMemcpyDeviceToHost, stream);
}

EXPORT hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t target, hipDeviceptr_t source, size_t size, hipStream_t stream)
{
    return copy_on(target, source, size, hipMemcpyDeviceToDevice, stream);
}

EXPORT hipError_t hipMemcpyPeerAsync(
    void *target, int target_device, const void *source, int source_device, size_t size, hipStream_t stream)
{
    ENTER();
    REQUIRE(valid_device(target_device) && valid_device(source_device), hipErrorInvalidDevice);
    return copy_on(target, source, size, hipMemcpyDeviceToDevice, stream);
}

EXPORT hipError_t hipMemcpyPeer(void *target, int target_device, const void *source, int source_device, size_t size)
{
    return hipMemcpyPeerAsync(target, target_device, source, source_device, size, NULL);
}

EXPORT hipError_t hipMemcpy2DAsync(
    void *target, size_t target_pitch, const void *source, size_t source_pitch, size_t width, size_t height,
    hipMemcpyKind kind, hipStream_t stream)
{
    ENTER();
    if (!width || !height)
        return hipSuccess;
    REQUIRE(width <= target_pitch && width <= source_pitch, hipErrorInvalidPitchValue);
    REQUIRE(target_pitch <= MAX_PITCH && source_pitch <= MAX_PITCH && target && source, hipErrorInvalidValue);
    REQUIRE(known_kind(kind), hipErrorInvalidMemcpyDirection);
    REQUIRE(valid_stream(stream), hipErrorInvalidHandle);
    size_t target_size = extent(target_pitch, width, height), source_size = extent(source_pitch, width, height);
    REQUIRE(target_size && source_size, hipErrorInvalidValue);
    LOCK(); /* nothing is copied unless every row can be */
    bool good = touchable(target, target_size, false, true) && touchable(source, source_size, false, false);
    UNLOCK_AND_REQUIRE(good, hipErrorInvalidValue);
    UNLOCK();
    for (size_t row = 0; row < height; row++)
        memmove((char *)target + row * target_pitch, (const char *)source + row * source_pitch, width);
    return hipSuccess;
}

EXPORT hipError_t hipMemcpy2D(
    void *target, size_t target_pitch, const void *source, size_t source_pitch, size_t width, size_t height,
    hipMemcpyKind kind)
{
    return hipMemcpy2DAsync(target, target_pitch, source, source_pitch, width, height, kind, NULL);
}

/* Fill ``count`` elements of ``size`` bytes with the low bytes of ``value``. */
static hipError_t fill(void *target, unsigned value, size_t size, size_t count, hipStream_t stream)
{
    ENTER();
    REQUIRE(valid_stream(stream), hipErrorInvalidHandle);
    if (!count)
        return hipSuccess;
    size_t bytes;
    REQUIRE(target && !__builtin_mul_overflow(size, count, &bytes), hipErrorInvalidValue);
    REQUIRE((uintptr_t)target % size == 0, hipErrorInvalidValue);
    LOCK();
    bool good = touchable(target, bytes, true, true);
    UNLOCK_AND_REQUIRE(good, hipErrorInvalidValue);
    UNLOCK();
    if (size == 1)
        memset(target, (int)value, count);
    for (size_t i = 0; i < count && size == 2; i++)
        ((uint16_t *)target)[i] = (uint16_t)value;
    for (size_t i = 0; i < count && size == 4; i++)
        ((uint32_t *)target)[i] = value;
    return hipSuccess;
}

EXPORT hipError_t hipMemset(void *target, int value, size_t size) { return fill(target, value, 1, size, NULL); }

EXPORT hipError_t hipMemsetAsync(void *target, int value, size_t size, hipStream_t stream)
{
    return fill(target, value, 1, size, stream);
}

EXPORT hipError_t hipMemsetD8(hipDeviceptr_t target, unsigned char value, size_t count)
{
    return fill(target, value, 1, count, NULL);
}

EXPORT hipError_t hipMemsetD8Async(hipDeviceptr_t target, unsigned char value, size_t count, hipStream_t stream)
{
    return fill(target, value, 1, count, stream);
}

EXPORT hipError_t hipMemsetD16(hipDeviceptr_t target, unsigned short value, size_t count)
{
    return fill(target, value, 2, count, NULL);
}

EXPORT hipError_t hipMemsetD16Async(hipDeviceptr_t target, unsigned short value, size_t count, hipStream_t stream)
{
    return fill(target, value, 2, count, stream);
}

EXPORT hipError_t hipMemsetD32(hipDeviceptr_t target, int value, size_t count)
{
    return fill(target, (unsigned)value, 4, count, NULL);
}

EXPORT hipError_t hipMemsetD32Async(hipDeviceptr_t target, int value, size_t count, hipStream_t stream)
{
    return fill(target, (unsigned)value, 4, count, stream);
}

EXPORT hipError_t hipMemset2DAsync(
    void *target, size_t pitch, int value, size_t width, size_t height, hipStream_t stream)
{
    ENTER();
    REQUIRE(valid_stream(stream), hipErrorInvalidHandle);
    if (!width || !height)
        return hipSuccess;
    REQUIRE(width <= pitch && target, hipErrorInvalidValue);
    size_t size = extent(pitch, width, height);
    LOCK(); /* nothing is filled unless every row can be */
    bool good = size && touchable(target, size, true, true);
    UNLOCK_AND_REQUIRE(good, hipErrorInvalidValue);
    UNLOCK();
    for (size_t row = 0; row < height; row++) {
        hipError_t error = fill((char *)target + row * pitch, (unsigned)value, 1, width, stream);
        if (error != hipSuccess)
            return error;
    }
    return hipSuccess;
}

EXPORT hipError_t hipMemset2D(void *target, size_t pitch, int value, size_t width, size_t height)
{
    return hipMemset2DAsync(target, pitch, value, width, height, NULL);
}

/* -- hints about managed memory: all memory of the machine is one --------------------------------------------------------- */

static hipError_t hint(const void *address, size_t size, int device)
{
    ENTER();
    REQUIRE(address && size, hipErrorInvalidValue);
    REQUIRE(device == hipCpuDeviceId || valid_device(device), hipErrorInvalidDevice);
    LOCK();
    struct range *range = find_range(address);
    bool good = range && within(range, address, size) && range->type != hipMemoryTypeDevice;
    UNLOCK_AND_REQUIRE(good, hipErrorInvalidValue);
    UNLOCK();
    return hipSuccess;
}

EXPORT hipError_t hipMemPrefetchAsync(const void *address, size_t size, int device, hipStream_t stream)
{
    REQUIRE(valid_stream(stream), hipErrorInvalidHandle);
    return hint(address, size, device);
}

EXPORT hipError_t hipMemAdvise(const void *address, size_t size, hipMemoryAdvise advice, int device)
{
    bool known = (advice >= hipMemAdviseSetReadMostly && advice <= hipMemAdviseUnsetAccessedBy) ||
                 advice == hipMemAdviseSetCoarseGrain || advice == hipMemAdviseUnsetCoarseGrain;
    REQUIRE(known, hipErrorInvalidValue);
    return hint(address, size, device);
}
