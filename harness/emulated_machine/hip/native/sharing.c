/* Memory that crosses processes: IPC handles, DMA-BUF descriptors, external memory.
 *
 * An IPC handle names the exporting process and its descriptor of the memory file; the opener takes it from
 * /proc/PID/fd, which the kernel allows for processes of the same user only, without a server or a file that could be left
 * behind. A number in the file's name guards against reused process ids and descriptors. */
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The 64 bytes of a hipIpcMemHandle_t. */
struct handle {
    char magic[4];
    int32_t file;
    uint64_t inode;
    uint64_t random[2];
    uint64_t size, offset;
    int32_t process;
    int32_t place;
    uint64_t zero;
};
_Static_assert(sizeof(struct handle) == sizeof(hipIpcMemHandle_t), "an IPC handle has 64 bytes");

static const char magic[4] = "HIPe";

static bool random_of(int file, uint64_t random[2])
{
    char link[64], name[128];
    int place;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length < 0)
        return false;
    name[length] = 0;
    unsigned long words[2];
    bool known = sscanf(name, "/memfd:hip:%d:%16lx%16lx", &place, &words[0], &words[1]) == 3;
    random[0] = words[0], random[1] = words[1];
    return known;
}

EXPORT hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *out, void *address)
{
    ENTER();
    REQUIRE(writable(out, sizeof *out) && address, hipErrorInvalidValue);
    struct handle handle = {.process = getpid()};
    memcpy(handle.magic, magic, sizeof magic);
    LOCK();
    struct range *range = find_range(address);
    UNLOCK_AND_REQUIRE(range, hipErrorInvalidValue);
    /* ROCm exports what hipMalloc made: neither what is mapped from elsewhere nor host memory */
    bool exportable = !range->foreign && !range->owner && range->type == hipMemoryTypeDevice;
    UNLOCK_AND_REQUIRE(exportable, hipErrorInvalidDevicePointer);
    struct stat status;
    bool good = !fstat(range->file, &status) && random_of(range->file, handle.random);
    handle.file = range->file, handle.inode = status.st_ino, handle.size = range->size, handle.place = range->place;
    handle.offset = (uintptr_t)address - range->address;
    UNLOCK();
    REQUIRE(good, hipErrorOperatingSystem);
    memcpy(out, &handle, sizeof handle);
    return hipSuccess;
}

/* Return a descriptor of the memory that a handle names, or -1. The GPU's number comes from the memory, not the handle. */
static int open_exported(struct handle *handle)
{
    char path[64];
    struct stat status;
    uint64_t random[2];
    size_t size;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->process, handle->file);
    /* stat before open: what else lies under a reused number, such as a pipe, might block or react */
    if (stat(path, &status) || status.st_ino != handle->inode || !S_ISREG(status.st_mode))
        return -1;
    int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return -1;
    bool same = our_file(file, &handle->place, &size) && random_of(file, random) && random[0] == handle->random[0] &&
                random[1] == handle->random[1] && handle->size <= size;
    if (!same) {
        close(file);
        return -1;
    }
    return file;
}

EXPORT hipError_t hipIpcOpenMemHandle(void **out, hipIpcMemHandle_t bytes, unsigned flags)
{
    ENTER();
    REQUIRE(writable(out, sizeof *out) && flags == hipIpcMemLazyEnablePeerAccess, hipErrorInvalidValue);
    REQUIRE(machine.count > 0, hipErrorNoDevice);
    struct handle handle;
    memcpy(&handle, &bytes, sizeof handle);
    bool plausible = !memcmp(handle.magic, magic, sizeof magic) && handle.size && handle.offset < handle.size;
    REQUIRE(plausible, hipErrorInvalidValue);
    REQUIRE(handle.process != getpid(), hipErrorInvalidContext); /* as ROCm: not in the exporting process */
    int file = open_exported(&handle);
    REQUIRE(file >= 0, hipErrorInvalidDevicePointer);
    size_t span = pages(handle.size);
    LOCK();
    char *address = map_file(file, span, span >= LARGE_PAGE ? LARGE_PAGE : PAGE);
    bool added = address && add_range((struct range){
        .address = (uintptr_t)address, .size = handle.size, .span = span, .made_by = "hipIpcOpenMemHandle",
        .device = current_device, .type = hipMemoryTypeDevice, .file = file, .follows_peers = true, .foreign = true,
        .place = handle.place, .opened_at = (uintptr_t)address + handle.offset});
    UNLOCK();
    if (!added) {
        if (address)
            munmap(address, span);
        close(file);
        return done(hipErrorMapFailed);
    }
    *out = address + handle.offset;
    return hipSuccess;
}

EXPORT hipError_t hipIpcCloseMemHandle(void *address)
{
    ENTER();
    REQUIRE(address, hipErrorInvalidValue);
    LOCK();
    struct range *range = find_range(address);
    bool opened = range && range->opened_at == (uintptr_t)address;
    UNLOCK_AND_REQUIRE(opened, hipErrorInvalidValue);
    end_range(range, "hipIpcCloseMemHandle", false);
    UNLOCK();
    return hipSuccess;
}

/* -- DMA-BUF --------------------------------------------------------------------------------------------------------------- */

EXPORT hipError_t hipMemGetHandleForAddressRange(
    void *out, hipDeviceptr_t address, size_t size, hipMemRangeHandleType type, unsigned long long flags)
{
    ENTER();
    REQUIRE(writable(out, sizeof *out) && address && size && !flags && type == hipMemRangeHandleTypeDmaBufFd, hipErrorInvalidValue);
    LOCK();
    struct range *range = find_range(address);
    bool good = range && within(range, address, size) && range->file >= 0 && range->type == hipMemoryTypeDevice;
    UNLOCK_AND_REQUIRE(good, hipErrorInvalidValue);
    int file = fcntl(range->file, F_DUPFD_CLOEXEC, 0); /* the whole allocation, as on ROCm */
    UNLOCK();
    REQUIRE(file >= 0, hipErrorOutOfMemory);
    *(int *)out = file;
    return hipSuccess;
}

/* -- external memory --------------------------------------------------------------------------------------------------------- */

struct external {
    int file, place;
    size_t size;
    struct external *next;
};

static struct external *externals;

static struct external **find_external(hipExternalMemory_t memory)
{
    for (struct external **each = &externals; *each; each = &(*each)->next)
        if (*each == memory)
            return each;
    return NULL;
}

EXPORT hipError_t hipImportExternalMemory(hipExternalMemory_t *out, const hipExternalMemoryHandleDesc *description)
{
    ENTER();
    REQUIRE(writable(out, sizeof *out) && readable(description, sizeof *description) && description->size &&
                !(description->flags & ~hipExternalMemoryDedicated),
            hipErrorInvalidValue);
    REQUIRE(description->type == hipExternalMemoryHandleTypeOpaqueFd, hipErrorNotSupported);
    int place;
    size_t size;
    bool good = our_file(description->handle.fd, &place, &size) && pages(description->size) <= size;
    REQUIRE(good, hipErrorInvalidValue);
    struct external *memory = calloc(1, sizeof *memory);
    REQUIRE(memory, hipErrorOutOfMemory);
    /* The descriptor stays the caller's: ROCm does not close it. */
    memory->file = fcntl(description->handle.fd, F_DUPFD_CLOEXEC, 0);
    if (memory->file < 0) {
        free(memory);
        return done(hipErrorOutOfMemory);
    }
    memory->place = place, memory->size = description->size;
    LOCK();
    memory->next = externals, externals = memory;
    UNLOCK();
    *out = memory;
    return hipSuccess;
}

EXPORT hipError_t hipExternalMemoryGetMappedBuffer(
    void **out, hipExternalMemory_t handle, const hipExternalMemoryBufferDesc *description)
{
    ENTER();
    REQUIRE(writable(out, sizeof *out) && handle && readable(description, sizeof *description) && description->size && !description->flags, hipErrorInvalidValue);
    LOCK();
    struct external **memory = find_external(handle);
    UNLOCK_AND_REQUIRE(memory, hipErrorInvalidValue);
    size_t size = (*memory)->size, end = description->offset + description->size;
    UNLOCK_AND_REQUIRE(end >= description->size && end <= size, hipErrorInvalidValue);
    size_t span = pages(size);
    int file = fcntl((*memory)->file, F_DUPFD_CLOEXEC, 0);
    char *address = file < 0 ? NULL : map_file(file, span, span >= LARGE_PAGE ? LARGE_PAGE : PAGE);
    bool added = address && add_range((struct range){
        .address = (uintptr_t)address, .size = size, .span = span, .made_by = "hipExternalMemoryGetMappedBuffer",
        .device = current_device, .type = hipMemoryTypeDevice, .file = file, .follows_peers = true,
        .foreign = !exported_here(file), .place = (*memory)->place, .owner = *memory});
    UNLOCK();
    if (!added) {
        if (address)
            munmap(address, span);
        if (file >= 0)
            close(file);
        return done(hipErrorMapFailed);
    }
    *out = address + description->offset;
    return hipSuccess;
}

EXPORT hipError_t hipDestroyExternalMemory(hipExternalMemory_t handle)
{
    ENTER();
    REQUIRE(handle, hipErrorInvalidValue);
    LOCK();
    struct external **place = find_external(handle);
    UNLOCK_AND_REQUIRE(place, hipErrorInvalidValue);
    struct external *memory = *place;
    *place = memory->next;
    for (struct range *range; (range = find_owned(memory));)
        end_range(range, "hipDestroyExternalMemory", false);
    UNLOCK();
    close(memory->file);
    free(memory);
    return hipSuccess;
}

/* -- for the Python side --------------------------------------------------------------------------------------------------- */

/* Return the descriptor, the bytes and the offset of the memory file that holds ``address``; -1 if none does. */
EXPORT int harness_hip_file(void *address, size_t *size, size_t *offset)
{
    LOCK();
    struct range *range = find_range(address);
    int file = range ? range->file : -1;
    if (range) {
        *size = range->span;
        *offset = (uintptr_t)address - range->address;
    }
    UNLOCK();
    return file;
}
