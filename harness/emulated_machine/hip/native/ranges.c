/* The address space: live ranges, reserved ones, and those that ended.
 *
 * An ended range keeps its addresses for as long as it is remembered: zero pages lie there, so that host code which reads
 * a freed tensor does not crash, no new memory appears at an old address, and a kernel's fault can name what was there. */
#include "machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define REMEMBERED 1024

struct list {
    struct range *items; /* sorted by address, without overlaps */
    size_t count, room;
};

static struct list live, reserved;
static struct range ended[REMEMBERED]; /* a ring; address 0: an empty place */
static size_t next_ended;
static uint64_t generation = 1;

size_t pages(size_t size) { return (size + PAGE - 1) & ~(PAGE - 1); }

void changed(void) { __atomic_add_fetch(&generation, 1, __ATOMIC_RELEASE); }

/* -- lists ----------------------------------------------------------------------------------------------------------- */

/* Return the index of the first item that begins after ``address``. */
static size_t after(const struct list *list, uintptr_t address)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (list->items[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct range *find(const struct list *list, uintptr_t address)
{
    size_t i = after(list, address);
    if (!i)
        return NULL;
    struct range *range = &list->items[i - 1];
    return address - range->address < range->size ? range : NULL;
}

static struct range *insert(struct list *list, struct range range)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        struct range *items = realloc(list->items, room * sizeof *items);
        if (!items)
            return NULL;
        list->items = items, list->room = room;
    }
    size_t i = after(list, range.address);
    memmove(&list->items[i + 1], &list->items[i], (list->count - i) * sizeof range);
    list->items[i] = range;
    list->count++;
    return &list->items[i];
}

static void remove_item(struct list *list, struct range *range)
{
    size_t i = range - list->items;
    memmove(range, range + 1, (list->count - i - 1) * sizeof *range);
    list->count--;
}

/* -- ranges ---------------------------------------------------------------------------------------------------------- */

struct range *find_range(const void *address) { return find(&live, (uintptr_t)address); }
struct range *find_reserved(const void *address) { return find(&reserved, (uintptr_t)address); }

const struct range *find_ended(const void *address)
{
    for (size_t i = 0; i < REMEMBERED; i++)
        if (ended[i].address && (uintptr_t)address - ended[i].address < ended[i].size)
            return &ended[i];
    return NULL;
}

bool overlapping(const void *address, size_t size)
{
    uintptr_t start = (uintptr_t)address;
    size_t i = after(&live, start + size - 1);
    return i && live.items[i - 1].address + live.items[i - 1].size > start;
}

struct range *find_owned(const void *owner)
{
    for (size_t i = 0; i < live.count; i++)
        if (live.items[i].owner == owner)
            return &live.items[i];
    return NULL;
}

bool within(const struct range *range, const void *address, size_t size)
{
    uintptr_t offset = (uintptr_t)address - range->address;
    return offset <= range->size && size <= range->size - offset;
}

uint64_t access_of(const struct range *range)
{
    if (!range->follows_peers)
        return range->access;
    uint64_t access = 1ull << range->device;
    for (int i = 0; i < machine.count; i++)
        if (machine.devices[i].peers >> range->device & 1)
            access |= 1ull << i;
    return access;
}

static void forget(struct range *item)
{
    if (item->span)
        munmap((void *)item->address, item->span);
    item->address = 0;
}

void release_ended(const void *address, size_t size)
{
    uintptr_t start = (uintptr_t)address;
    for (size_t i = 0; i < REMEMBERED; i++)
        if (ended[i].address && ended[i].address < start + size && start < ended[i].address + ended[i].size)
            forget(&ended[i]);
}

struct range *add_range(struct range range)
{
    for (size_t i = 0; i < REMEMBERED; i++) /* other memory lies at the address now: of a reservation, or of the host */
        if (ended[i].address && ended[i].address < range.address + range.size &&
            range.address < ended[i].address + ended[i].size)
            ended[i].address = 0;
    in_use = true;
    changed();
    return insert(range.state == RESERVED ? &reserved : &live, range);
}

void end_range(struct range *range, const char *ended_by, bool keep_address)
{
    struct range last = *range;
    remove_item(last.state == RESERVED ? &reserved : &live, range);
    last.state = ENDED;
    last.ended_by = ended_by;
    if (last.file >= 0)
        close(last.file);
    last.file = -1;
    void *address = (void *)last.address;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (keep_address) { /* inside a reservation: no memory */
        mmap(address, last.span, PROT_NONE, flags, -1, 0);
        last.span = 0; /* the reservation owns the addresses */
    } else if (last.span && mmap(address, last.span, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) {
        munmap(address, last.span);
        last.span = 0;
    }
    if (last.place >= 0 || last.type != hipMemoryTypeHost) { /* host memory stays after hipHostUnregister */
        struct range *place = &ended[next_ended++ % REMEMBERED];
        if (place->address)
            forget(place);
        *place = last;
    }
    changed();
}

/* -- memory files ---------------------------------------------------------------------------------------------------- */

/* The file's name holds the number of its GPU and a random number, so that another process knows what it opened. The
 * seals keep a process from truncating memory under another one. */
int make_file(size_t size, int place)
{
    uint64_t random[2];
    char name[64];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return -1;
    snprintf(name, sizeof name, "hip:%d:%016lx%016lx", place, (unsigned long)random[0], (unsigned long)random[1]);
    int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return -1;
    if (ftruncate(file, size) || fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        close(file);
        return -1;
    }
    return file;
}

bool our_file(int file, int *place, size_t *size)
{
    char link[64], name[128];
    struct stat status;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length < 0 || fstat(file, &status) || status.st_uid != geteuid())
        return false;
    name[length] = 0;
    *size = status.st_size;
    return sscanf(name, "/memfd:hip:%d:", place) == 1;
}

bool same_file(int file, uint64_t device, uint64_t inode)
{
    struct stat status;
    return !fstat(file, &status) && status.st_dev == device && status.st_ino == inode;
}

bool exported_here(int file)
{
    struct stat status;
    if (fstat(file, &status))
        return false;
    for (size_t i = 0; i < live.count; i++)
        if (!live.items[i].foreign && live.items[i].file >= 0 &&
            same_file(live.items[i].file, status.st_dev, status.st_ino))
            return true;
    return created_here(status.st_dev, status.st_ino);
}

void *map_file(int file, size_t span, size_t alignment)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *around = mmap(NULL, span + alignment, PROT_NONE, flags, -1, 0);
    if (around == MAP_FAILED)
        return NULL;
    char *address = (char *)(((uintptr_t)around + alignment - 1) & ~(alignment - 1));
    if (address > around)
        munmap(around, address - around);
    munmap(address + span, around + alignment - address);
    if (file >= 0 && mmap(address, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        munmap(address, span);
        return NULL;
    }
    return address;
}

/* -- for the Python side --------------------------------------------------------------------------------------------- */

/* A number that changes with the ranges and with the thread's device, which decides what is accessible. */
EXPORT uint64_t harness_hip_generation(void)
{
    return __atomic_load_n(&generation, __ATOMIC_ACQUIRE) * MAX_DEVICES + current_device;
}

static void fill(struct row *row, const struct range *range)
{
    *row = (struct row){
        .address = range->address, .size = range->size, .device = range->device, .state = range->state,
        .foreign = range->foreign, .place = range->place,
        .access = range->state == ACCESSIBLE ? access_of(range) : 0};
    snprintf(row->made_by, sizeof row->made_by, "%s", range->made_by);
    snprintf(row->ended_by, sizeof row->ended_by, "%s", range->ended_by ? range->ended_by : "");
}

/* Write at most ``most`` descriptions and return the number of all ranges. */
EXPORT size_t harness_hip_ranges(struct row *rows, size_t most)
{
    LOCK();
    size_t n = 0;
    const struct list *lists[] = {&live, &reserved};
    for (int which = 0; which < 2; which++)
        for (size_t i = 0; i < lists[which]->count; i++, n++)
            if (n < most)
                fill(&rows[n], &lists[which]->items[i]);
    for (size_t i = 0; i < REMEMBERED; i++)
        if (ended[i].address) {
            if (n < most)
                fill(&rows[n], &ended[i]);
            n++;
        }
    UNLOCK();
    return n;
}

/* Return the number in the machine of a device of this process. */
EXPORT int harness_hip_place(int device)
{
    return enter() == hipSuccess && valid_device(device) ? machine.devices[device].place : -1;
}

EXPORT int harness_hip_device_of(void *address)
{
    LOCK();
    struct range *range = find_range(address);
    int device = range ? range->device : -1;
    UNLOCK();
    return device;
}

/* Return how many bytes that a device may access begin at ``address``; mappings of hipMemMap that follow one another
 * count together. */
EXPORT size_t harness_hip_accessible(void *address)
{
    char *end = address;
    LOCK();
    for (struct range *range; (range = find_range(end)) && access_of(range);) {
        bool virtual = find_reserved(end), first = end == (char *)address;
        if (!virtual && (!first || (!range->span && !mapped((void *)range->address, range->size))))
            break; /* another allocation, or registered host memory that the program has unmapped */
        end = (char *)range->address + range->size;
        if (!virtual)
            break;
    }
    UNLOCK();
    return end - (char *)address;
}

EXPORT size_t harness_hip_used(int device)
{
    LOCK();
    size_t used = valid_device(device) ? machine.devices[device].used : 0;
    UNLOCK();
    return used;
}

/* Return the place of the calling thread's current device, which torch shares. */
EXPORT int *harness_hip_current_device(void) { return &current_device; }
