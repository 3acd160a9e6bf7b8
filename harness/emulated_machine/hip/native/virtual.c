/* Virtual memory management: address ranges, physical memory, and mappings of one onto the other.
 *
 * The checks are those of ROCm: one mapping covers one physical memory from its beginning, and is unmapped as a whole. */
#include "machine.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A hipMemGenericAllocationHandle_t. */
struct physical {
    int file, place, device;
    size_t size;
    bool foreign, imported;
    hipMemAllocationProp properties;
    int references; /* handles and mappings */
    int handles;
    struct physical *next;
};

static struct physical *physicals;

/* Return the memory if the handle is valid: created or imported, and not released. */
static struct physical *find_physical(hipMemGenericAllocationHandle_t handle)
{
    for (struct physical *each = physicals; each; each = each->next)
        if ((void *)each == (void *)handle)
            return each->handles ? each : NULL;
    return NULL;
}

static void drop(struct physical *memory)
{
    if (--memory->references)
        return;
    for (struct physical **each = &physicals; *each; each = &(*each)->next)
        if (*each == memory) {
            *each = memory->next;
            break;
        }
    if (!memory->imported)
        machine.devices[memory->device].used -= memory->size;
    close(memory->file);
    free(memory);
}

static bool valid_properties(const hipMemAllocationProp *properties)
{
    bool type = properties->type == hipMemAllocationTypePinned || (int)properties->type == 0x40000000 /* uncached */;
    return type && properties->location.type == hipMemLocationTypeDevice && valid_device(properties->location.id);
}

/* -- address ranges -------------------------------------------------------------------------------------------------------- */

EXPORT hipError_t hipMemAddressReserve(
    void **out, size_t size, size_t alignment, void *wanted, unsigned long long flags)
{
    ENTER();
    REQUIRE(writable(out, sizeof *out) && !flags && size, hipErrorInvalidValue);
    REQUIRE(size % PAGE == 0 && !(alignment & (alignment - 1)), hipErrorInvalidValue);
    if (alignment < PAGE)
        alignment = size >= LARGE_PAGE ? LARGE_PAGE : PAGE;
    void *address = NULL;
    LOCK();
    if (wanted && (uintptr_t)wanted % alignment == 0) { /* a hint */
        release_ended(wanted, size);
        int flags_of_map = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        address = mmap(wanted, size, PROT_NONE, flags_of_map, -1, 0);
        if (address != MAP_FAILED && address != wanted)
            munmap(address, size);
        if (address != wanted)
            address = NULL;
    }
    if (!address)
        address = size + alignment < size ? NULL : map_file(-1, size, alignment);
    bool added = address && add_range((struct range){
        .address = (uintptr_t)address, .size = size, .span = size, .state = RESERVED, .file = -1, .place = -1,
        .made_by = "hipMemAddressReserve", .device = -1});
    if (address && !added)
        munmap(address, size);
    UNLOCK();
    REQUIRE(added, hipErrorOutOfMemory);
    *out = address;
    return hipSuccess;
}

EXPORT hipError_t hipMemAddressFree(void *address, size_t size)
{
    ENTER();
    REQUIRE(address && size, hipErrorInvalidValue);
    LOCK();
    struct range *range = find_reserved(address);
    bool good = range && range->address == (uintptr_t)address && range->size == size && !overlapping(address, size);
    UNLOCK_AND_REQUIRE(good, hipErrorInvalidValue);
    end_range(range, "hipMemAddressFree", false);
    UNLOCK();
    return hipSuccess;
}

/* -- physical memory ------------------------------------------------------------------------------------------------------- */

EXPORT hipError_t hipMemGetAllocationGranularity(
    size_t *granularity, const hipMemAllocationProp *properties, hipMemAllocationGranularity_flags option)
{
    ENTER();
    bool known = option == hipMemAllocationGranularityMinimum || option == hipMemAllocationGranularityRecommended;
    REQUIRE(writable(granularity, sizeof *granularity) && readable(properties, sizeof *properties) && known && valid_properties(properties), hipErrorInvalidValue);
    *granularity = option == hipMemAllocationGranularityMinimum ? PAGE : LARGE_PAGE;
    return hipSuccess;
}

EXPORT hipError_t hipMemCreate(
    hipMemGenericAllocationHandle_t *out, size_t size, const hipMemAllocationProp *properties, unsigned long long flags)
{
    ENTER();
    REQUIRE(writable(out, sizeof *out) && size && readable(properties, sizeof *properties) && !flags && valid_properties(properties), hipErrorInvalidValue);
    REQUIRE(size % PAGE == 0, hipErrorInvalidValue);
    hipMemAllocationHandleType type = properties->requestedHandleType;
    REQUIRE(type == hipMemHandleTypeNone || type == hipMemHandleTypePosixFileDescriptor, hipErrorNotSupported);
    int device = properties->location.id;
    struct physical *memory = calloc(1, sizeof *memory);
    REQUIRE(memory, hipErrorOutOfMemory);
    LOCK();
    bool room = size <= capacity() - machine.devices[device].used;
    int file = room ? make_file(size, machine.devices[device].place) : -1;
    if (file >= 0) {
        *memory = (struct physical){
            .file = file, .place = machine.devices[device].place, .device = device, .size = size,
            .properties = *properties, .references = 1, .handles = 1, .next = physicals};
        physicals = memory;
        machine.devices[device].used += size;
        in_use = true;
    }
    UNLOCK();
    if (file < 0) {
        free(memory);
        return done(hipErrorOutOfMemory);
    }
    *out = (hipMemGenericAllocationHandle_t)memory;
    return hipSuccess;
}

EXPORT hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle)
{
    ENTER();
    LOCK();
    struct physical *memory = find_physical(handle);
    UNLOCK_AND_REQUIRE(memory, hipErrorInvalidValue);
    memory->handles--;
    drop(memory); /* its mappings keep it */
    UNLOCK();
    return hipSuccess;
}

EXPORT hipError_t hipMemGetAllocationPropertiesFromHandle(
    hipMemAllocationProp *properties, hipMemGenericAllocationHandle_t handle)
{
    ENTER();
    REQUIRE(writable(properties, sizeof *properties), hipErrorInvalidValue);
    LOCK();
    struct physical *memory = find_physical(handle);
    UNLOCK_AND_REQUIRE(memory, hipErrorInvalidValue);
    *properties = memory->properties;
    UNLOCK();
    return hipSuccess;
}

EXPORT hipError_t hipMemRetainAllocationHandle(hipMemGenericAllocationHandle_t *out, void *address)
{
    ENTER();
    REQUIRE(writable(out, sizeof *out) && address, hipErrorInvalidValue);
    LOCK();
    struct range *range = find_range(address);
    bool good = range && range->owner && range->state == ACCESSIBLE && find_reserved(address);
    UNLOCK_AND_REQUIRE(good, hipErrorInvalidValue);
    struct physical *memory = range->owner;
    memory->references++, memory->handles++;
    UNLOCK();
    *out = (hipMemGenericAllocationHandle_t)memory;
    return hipSuccess;
}

EXPORT hipError_t hipMemExportToShareableHandle(
    void *out, hipMemGenericAllocationHandle_t handle, hipMemAllocationHandleType type, unsigned long long flags)
{
    ENTER();
    REQUIRE(writable(out, sizeof *out) && !flags && type == hipMemHandleTypePosixFileDescriptor, hipErrorInvalidValue);
    LOCK();
    struct physical *memory = find_physical(handle);
    bool good = memory && memory->properties.requestedHandleType == type;
    UNLOCK_AND_REQUIRE(good, hipErrorInvalidValue);
    int file = fcntl(memory->file, F_DUPFD_CLOEXEC, 0);
    UNLOCK();
    REQUIRE(file >= 0, hipErrorOutOfMemory);
    *(int *)out = file;
    return hipSuccess;
}

EXPORT hipError_t hipMemImportFromShareableHandle(
    hipMemGenericAllocationHandle_t *out, void *shared, hipMemAllocationHandleType type)
{
    ENTER();
    REQUIRE(writable(out, sizeof *out) && type == hipMemHandleTypePosixFileDescriptor, hipErrorInvalidValue);
    /* Before ROCm 7.1 a pointer to the descriptor, since then the descriptor in the pointer's place: no pointer is that
     * small. */
    REQUIRE((uintptr_t)shared < 65536 || readable(shared, sizeof(int)), hipErrorInvalidValue);
    int given = (uintptr_t)shared < 65536 ? (int)(uintptr_t)shared : *(int *)shared;
    int place;
    size_t size;
    REQUIRE(our_file(given, &place, &size), hipErrorInvalidValue);
    struct physical *memory = calloc(1, sizeof *memory);
    REQUIRE(memory, hipErrorOutOfMemory);
    int file = fcntl(given, F_DUPFD_CLOEXEC, 0);
    if (file < 0) {
        free(memory);
        return done(hipErrorOutOfMemory);
    }
    LOCK();
    *memory = (struct physical){
        .file = file, .place = place, .device = current_device, .size = size, .foreign = !exported_here(file),
        .imported = true, .references = 1, .handles = 1, .next = physicals,
        .properties = {.type = hipMemAllocationTypePinned, .requestedHandleType = hipMemHandleTypePosixFileDescriptor,
                       .location = {.type = hipMemLocationTypeDevice, .id = current_device}}};
    physicals = memory;
    in_use = true;
    UNLOCK();
    *out = (hipMemGenericAllocationHandle_t)memory;
    return hipSuccess;
}

/* Return whether this process made the memory file. The caller holds the lock. */
bool created_here(uint64_t device, uint64_t inode)
{
    for (struct physical *each = physicals; each; each = each->next)
        if (!each->foreign && same_file(each->file, device, inode))
            return true;
    return false;
}

/* -- mappings -------------------------------------------------------------------------------------------------------------- */

EXPORT hipError_t hipMemMap(
    void *address, size_t size, size_t offset, hipMemGenericAllocationHandle_t handle, unsigned long long flags)
{
    ENTER();
    REQUIRE(address && size && !offset && !flags, hipErrorInvalidValue);
    REQUIRE(size % PAGE == 0 && (uintptr_t)address % PAGE == 0, hipErrorInvalidValue);
    LOCK();
    struct physical *memory = find_physical(handle);
    struct range *reservation = find_reserved(address);
    bool good = memory && size <= memory->size && reservation && within(reservation, address, size);
    UNLOCK_AND_REQUIRE(good, hipErrorInvalidValue);
    UNLOCK_AND_REQUIRE(!overlapping(address, size), hipErrorInvalidValue);
    int file = fcntl(memory->file, F_DUPFD_CLOEXEC, 0);
    bool mapped = file >= 0 && mmap(address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
    bool added = mapped && add_range((struct range){
        .address = (uintptr_t)address, .size = size, .span = size, .made_by = "hipMemMap", .device = memory->device,
        .type = hipMemoryTypeDevice, .file = file, .foreign = memory->foreign, .place = memory->place, .owner = memory});
    if (added)
        memory->references++;
    UNLOCK();
    REQUIRE(added, hipErrorOutOfMemory);
    return hipSuccess;
}

EXPORT hipError_t hipMemUnmap(void *address, size_t size)
{
    ENTER();
    REQUIRE(address && size, hipErrorInvalidValue);
    LOCK();
    struct range *range = find_range(address);
    bool good = range && find_reserved(address) && range->address == (uintptr_t)address && range->size == size;
    UNLOCK_AND_REQUIRE(good, hipErrorInvalidValue);
    struct physical *memory = range->owner;
    end_range(range, "hipMemUnmap", true);
    drop(memory);
    UNLOCK();
    return hipSuccess;
}

/* Return whether whole mappings, without gaps, cover [address, address + size). */
static bool covered(char *address, size_t size)
{
    char *end = address + size;
    while (address < end) {
        struct range *range = find_range(address);
        if (!range || !find_reserved(address) || range->address != (uintptr_t)address)
            return false;
        address += range->size;
    }
    return address == end;
}

EXPORT hipError_t hipMemSetAccess(void *address, size_t size, const hipMemAccessDesc *access, size_t count)
{
    ENTER();
    REQUIRE(address && size && count && count <= MAX_DEVICES + 1 && readable(access, count * sizeof *access), hipErrorInvalidValue);
    for (size_t i = 0; i < count; i++) {
        bool device = access[i].location.type == hipMemLocationTypeDevice && valid_device(access[i].location.id);
        bool flags = access[i].flags == hipMemAccessFlagsProtNone || access[i].flags == hipMemAccessFlagsProtRead ||
                     access[i].flags == hipMemAccessFlagsProtReadWrite;
        REQUIRE(device && flags, hipErrorInvalidValue);
    }
    LOCK();
    UNLOCK_AND_REQUIRE(covered(address, size), hipErrorInvalidValue);
    for (char *place = address; place < (char *)address + size;) {
        struct range *range = find_range(place);
        for (size_t i = 0; i < count; i++) {
            uint64_t bit = 1ull << access[i].location.id;
            range->access = access[i].flags ? range->access | bit : range->access & ~bit;
            bool read_only = access[i].flags == hipMemAccessFlagsProtRead;
            range->read_only = read_only ? range->read_only | bit : range->read_only & ~bit;
        }
        /* Never read-only for the CPU: a store of a kernel would end the process instead of being reported. */
        mprotect(place, range->size, range->access ? PROT_READ | PROT_WRITE : PROT_NONE);
        place += range->size;
    }
    changed();
    UNLOCK();
    return hipSuccess;
}

EXPORT hipError_t hipMemGetAccess(unsigned long long *flags, const hipMemLocation *location, void *address)
{
    ENTER();
    bool good = writable(flags, sizeof *flags) && address && readable(location, sizeof *location) && location->type == hipMemLocationTypeDevice && valid_device(location->id);
    REQUIRE(good, hipErrorInvalidValue);
    LOCK();
    struct range *range = find_range(address);
    UNLOCK_AND_REQUIRE(range && find_reserved(address), hipErrorInvalidValue);
    uint64_t bit = 1ull << location->id;
    *flags = range->read_only & bit ? hipMemAccessFlagsProtRead
             : range->access & bit  ? hipMemAccessFlagsProtReadWrite
                                    : hipMemAccessFlagsProtNone;
    UNLOCK();
    return hipSuccess;
}
