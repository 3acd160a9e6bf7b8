/* A libamdhip64.so of the functions that runtime_rocm.py calls, on memory files: it checks what it is handed, and what
 * it maps is real. Constants and structures as in hip_runtime_api.h. FDS_BY_POINTER: as ROCm before 7.1. */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_DEVICE = 101, DEVICES = 2, GRAIN = 65536, MOST = 64 };
enum { WALL_CLOCK_RATE = 10017, NUMBER_OF_XCCS = 10018 };

static struct { char *address; size_t size; int fd; } known[MOST]; /* what is mapped and not reserved */
static struct { char *address; size_t size; } reserved[MOST];

static int find(const void *address)
{
    for (int i = 0; i < MOST; i++)
        if (known[i].address && known[i].address <= (char *)address && (char *)address < known[i].address + known[i].size)
            return i;
    return -1;
}

static int keep(void *address, size_t size, int fd)
{
    for (int i = 0; i < MOST; i++)
        if (!known[i].address) {
            known[i].address = address, known[i].size = size, known[i].fd = fd;
            return SUCCESS;
        }
    return 2;
}

static int map(void **out, size_t size, int fd)
{
    *out = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return *out == MAP_FAILED ? INVALID_VALUE : keep(*out, size, fd);
}

static int drop(void *address)
{
    int i = find(address);
    if (i < 0 || known[i].address != address)
        return INVALID_VALUE;
    munmap(address, known[i].size);
    close(known[i].fd);
    known[i].address = 0;
    return SUCCESS;
}

static int file(size_t size)
{
    int fd = memfd_create("standin-hip", MFD_CLOEXEC);
    return ftruncate(fd, size) ? -1 : fd;
}

int hipInit(unsigned flags) { return SUCCESS; }
int hipGetDeviceCount(int *count) { return *count = DEVICES, SUCCESS; }

int hipDeviceGetAttribute(int *value, int attribute, int device)
{
    if (device < 0 || device >= DEVICES)
        return INVALID_DEVICE;
    *value = attribute == WALL_CLOCK_RATE ? 100000 : attribute == NUMBER_OF_XCCS ? 8 - 2 * device : -1;
    return SUCCESS;
}

int hipMalloc(void **out, size_t size) { return map(out, size, file(size)); }
int hipExtMallocWithFlags(void **out, size_t size, unsigned flags)
{
    return flags == 1 /* hipDeviceMallocFinegrained */ ? map(out, size, file(size)) : INVALID_VALUE;
}
int hipFree(void *address) { return drop(address); }

int hipMemGetAddressRange(void **base, size_t *size, void *address)
{
    int i = find(address);
    if (i < 0)
        return INVALID_VALUE;
    *base = known[i].address, *size = known[i].size;
    return SUCCESS;
}

struct ipc { int pid, fd; size_t size; char rest[48]; };
int hipIpcGetMemHandle(struct ipc *handle, void *address)
{
    int i = find(address);
    if (i < 0)
        return INVALID_VALUE;
    *handle = (struct ipc){getpid(), known[i].fd, known[i].size, "the last bytes travel too, uncut"};
    return SUCCESS;
}
int hipIpcOpenMemHandle(void **out, struct ipc handle, unsigned flags)
{
    if (flags != 1 || strcmp(handle.rest, "the last bytes travel too, uncut"))
        return INVALID_VALUE;
    return map(out, handle.size, dup(handle.fd));
}
int hipIpcCloseMemHandle(void *address) { return drop(address); }

int hipMemGetHandleForAddressRange(void *out, void *address, size_t size, int type, unsigned long long flags)
{
    int i = find(address);
    if (i < 0 || type != 1 || flags || (char *)address + size > known[i].address + known[i].size)
        return INVALID_VALUE;
    return *(int *)out = dup(known[i].fd), SUCCESS;
}

struct wanted { int type; union { int fd; void *words[2]; } handle; unsigned long long size; unsigned flags; };
struct buffer { unsigned long long offset, size; unsigned flags; };
int hipImportExternalMemory(void **out, const struct wanted *wanted)
{
    struct stat found;
    if (wanted->type != 1 || fstat(wanted->handle.fd, &found) || (size_t)found.st_size < wanted->size)
        return INVALID_VALUE;
    return *out = (void *)(intptr_t)(wanted->handle.fd + 1), SUCCESS; /* which is this library's now */
}
int hipExternalMemoryGetMappedBuffer(void **out, void *memory, const struct buffer *buffer)
{
    if (buffer->offset || buffer->flags)
        return INVALID_VALUE;
    return map(out, buffer->size, (int)(intptr_t)memory - 1);
}
int hipDestroyExternalMemory(void *memory)
{
    for (int i = 0; i < MOST; i++)
        if (known[i].address && known[i].fd == (int)(intptr_t)memory - 1)
            return drop(known[i].address);
    return INVALID_VALUE;
}

struct location { int type, id; };
struct properties { int type, handles; struct location location; void *windows; char flags[8]; };
static int pinned(const struct properties *properties)
{
    return properties->type == 1 && properties->handles == 1 && properties->location.type == 1
        && properties->location.id >= 0 && properties->location.id < DEVICES;
}
int hipMemGetAllocationGranularity(size_t *size, const struct properties *properties, int option)
{
    *size = GRAIN;
    return pinned(properties) && option == 1 ? SUCCESS : INVALID_VALUE;
}
int hipMemCreate(void **handle, size_t size, const struct properties *properties, unsigned long long flags)
{
    if (!pinned(properties) || size % GRAIN || flags)
        return INVALID_VALUE;
    return *handle = (void *)(intptr_t)(file(size) + 1), SUCCESS;
}
int hipMemRelease(void *handle) { return close((int)(intptr_t)handle - 1) ? INVALID_VALUE : SUCCESS; }
int hipMemExportToShareableHandle(void *out, void *handle, int type, unsigned long long flags)
{
    return *(int *)out = dup((int)(intptr_t)handle - 1), type != 1 || flags ? INVALID_VALUE : SUCCESS;
}
int hipMemImportFromShareableHandle(void **handle, void *descriptor, int type)
{
#ifdef FDS_BY_POINTER
    int fd = dup(*(int *)descriptor);
#else
    int fd = dup((int)(intptr_t)descriptor);
#endif
    return *handle = (void *)(intptr_t)(fd + 1), fd < 0 || type != 1 ? INVALID_VALUE : SUCCESS;
}
int hipMemAddressReserve(void **out, size_t size, size_t alignment, void *wish, unsigned long long flags)
{
    *out = mmap(wish, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int i = 0; i < MOST; i++)
        if (!reserved[i].address) {
            reserved[i].address = *out, reserved[i].size = size;
            return flags || size % GRAIN ? INVALID_VALUE : SUCCESS;
        }
    return 2;
}
int hipMemAddressFree(void *address, size_t size)
{
    for (int i = 0; i < MOST; i++)
        if (reserved[i].address == address && reserved[i].size == size) {
            reserved[i].address = 0;
            return munmap(address, size) ? INVALID_VALUE : SUCCESS;
        }
    return INVALID_VALUE;
}
int hipMemMap(void *address, size_t size, size_t offset, void *handle, unsigned long long flags)
{
    if (find(address) >= 0 || flags)
        return INVALID_VALUE;
    int fd = dup((int)(intptr_t)handle - 1);
    void *got = mmap(address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, offset);
    return got == address ? keep(address, size, fd) : INVALID_VALUE;
}
int hipMemUnmap(void *address, size_t size)
{
    int i = find(address);
    if (i < 0 || known[i].address != address || known[i].size != size)
        return INVALID_VALUE;
    close(known[i].fd);
    known[i].address = 0;
    mmap(address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return SUCCESS;
}
struct access { struct location location; int flags; };
int hipMemSetAccess(void *address, size_t size, const struct access *access, size_t count)
{
    if (count != 1 || access->location.type != 1 || access->location.id < 0 || access->location.id >= DEVICES
        || access->flags != 3 || find(address) < 0)
        return INVALID_VALUE;
    return mprotect(address, size, PROT_READ | PROT_WRITE) ? INVALID_VALUE : SUCCESS;
}
