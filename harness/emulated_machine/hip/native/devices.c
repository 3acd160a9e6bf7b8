/* Properties and attributes of the GPUs, and peer access between them. */
#include "machine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int bus(int device) { return facts_buses[machine.devices[device].place]; }

static void fill_properties(hipDeviceProp_t *p, int device)
{
    const struct model *model = machine.model;
    bool gfx950 = machine.gfx950;
    memset(p, 0, sizeof *p);
    strcpy(p->name, model->name);
    strcpy(p->gcnArchName, model->target);
    char uuid[17];
    snprintf(uuid, sizeof uuid, "%016llx", model->unique_ids[machine.devices[device].place]);
    memcpy(p->uuid.bytes, uuid, sizeof p->uuid.bytes);
    p->totalGlobalMem = capacity();
    p->sharedMemPerBlock = p->sharedMemPerMultiprocessor = p->maxSharedMemoryPerMultiProcessor = gfx950 ? 163840 : 65536;
    p->sharedMemPerBlockOptin = p->sharedMemPerBlock;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 64;
    p->memPitch = MAX_PITCH;
    p->maxThreadsPerBlock = 1024;
    for (int i = 0; i < 3; i++)
        p->maxThreadsDim[i] = 1024;
    p->maxGridSize[0] = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65536;
    p->clockRate = 1000 * model->clock;
    p->totalConstMem = 2147483647;
    p->major = 9;
    p->minor = gfx950 ? 5 : 4;
    p->textureAlignment = p->texturePitchAlignment = p->surfaceAlignment = 256;
    p->deviceOverlap = p->concurrentKernels = 1;
    p->multiProcessorCount = model->compute_units;
    p->canMapHostMemory = 1;
    p->ECCEnabled = 1;
    p->pciBusID = bus(device);
    p->asyncEngineCount = 8;
    p->unifiedAddressing = 1;
    p->memoryClockRate = 1000 * model->memory_clock;
    p->memoryBusWidth = 8192;
    p->l2CacheSize = 4 << 20;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 2;
    p->streamPrioritiesSupported = 1;
    p->managedMemory = p->concurrentManagedAccess = 1;
    p->hostNativeAtomicSupported = 1;
    p->canUseHostPointerForRegisteredMem = 1;
    p->cooperativeLaunch = p->cooperativeMultiDeviceLaunch = 1;
    p->hostRegisterSupported = 1;
    p->memoryPoolsSupported = 1;
    p->memoryPoolSupportedHandleTypes = hipMemHandleTypePosixFileDescriptor;
    p->gpuDirectRDMASupported = 1;
    p->clockInstructionRate = 100000;
    p->arch = (hipDeviceArch_t){
        .hasGlobalInt32Atomics = 1, .hasGlobalFloatAtomicExch = 1, .hasSharedInt32Atomics = 1,
        .hasSharedFloatAtomicExch = 1, .hasFloatAtomicAdd = 1, .hasGlobalInt64Atomics = 1, .hasSharedInt64Atomics = 1,
        .hasDoubles = 1, .hasWarpVote = 1, .hasWarpBallot = 1, .hasWarpShuffle = 1, .hasFunnelShift = 0,
        .hasThreadFenceSystem = 1, .hasSyncThreadsExt = 0, .hasSurfaceFuncs = 0, .has3dGrid = 1,
        .hasDynamicParallelism = 0};
    p->isLargeBar = 1;
    p->asicRevision = 1;
}

EXPORT hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 *properties, int device)
{
    ENTER();
    REQUIRE(writable(properties, sizeof *properties), hipErrorInvalidValue);
    REQUIRE(valid_device(device), hipErrorInvalidDevice);
    fill_properties(properties, device);
    return hipSuccess;
}

EXPORT hipError_t hipChooseDeviceR0600(int *device, const hipDeviceProp_tR0600 *properties)
{
    ENTER();
    REQUIRE(writable(device, sizeof *device) && readable(properties, sizeof *properties), hipErrorInvalidValue);
    REQUIRE(machine.count > 0, hipErrorNoDevice);
    *device = 0; /* all devices are alike */
    return hipSuccess;
}

EXPORT hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device)
{
    ENTER();
    REQUIRE(writable(value, sizeof *value), hipErrorInvalidValue);
    REQUIRE(valid_device(device), hipErrorInvalidDevice);
    hipDeviceProp_t p;
    fill_properties(&p, device);
    switch ((int)attribute) {
#define A(name, member) case hipDeviceAttribute##name: *value = (int)(p.member); break
    A(EccEnabled, ECCEnabled);
    A(AsyncEngineCount, asyncEngineCount);
    A(CanMapHostMemory, canMapHostMemory);
    A(CanUseHostPointerForRegisteredMem, canUseHostPointerForRegisteredMem);
    A(ClockRate, clockRate);
    A(ComputeMode, computeMode);
    A(ComputePreemptionSupported, computePreemptionSupported);
    A(ConcurrentKernels, concurrentKernels);
    A(ConcurrentManagedAccess, concurrentManagedAccess);
    A(CooperativeLaunch, cooperativeLaunch);
    A(CooperativeMultiDeviceLaunch, cooperativeMultiDeviceLaunch);
    A(DeviceOverlap, deviceOverlap);
    A(DirectManagedMemAccessFromHost, directManagedMemAccessFromHost);
    A(GlobalL1CacheSupported, globalL1CacheSupported);
    A(HostNativeAtomicSupported, hostNativeAtomicSupported);
    A(Integrated, integrated);
    A(IsMultiGpuBoard, isMultiGpuBoard);
    A(KernelExecTimeout, kernelExecTimeoutEnabled);
    A(L2CacheSize, l2CacheSize);
    A(LocalL1CacheSupported, localL1CacheSupported);
    A(ComputeCapabilityMajor, major);
    A(ComputeCapabilityMinor, minor);
    A(ManagedMemory, managedMemory);
    A(MaxBlocksPerMultiProcessor, maxBlocksPerMultiProcessor);
    A(MaxBlockDimX, maxThreadsDim[0]);
    A(MaxBlockDimY, maxThreadsDim[1]);
    A(MaxBlockDimZ, maxThreadsDim[2]);
    A(MaxGridDimX, maxGridSize[0]);
    A(MaxGridDimY, maxGridSize[1]);
    A(MaxGridDimZ, maxGridSize[2]);
    A(MaxThreadsDim, maxThreadsDim[0]);
    A(MaxThreadsPerBlock, maxThreadsPerBlock);
    A(MaxThreadsPerMultiProcessor, maxThreadsPerMultiProcessor);
    A(MaxPitch, memPitch);
    A(MemoryBusWidth, memoryBusWidth);
    A(MemoryClockRate, memoryClockRate);
    A(MultiGpuBoardGroupID, multiGpuBoardGroupID);
    A(MultiprocessorCount, multiProcessorCount);
    A(PhysicalMultiProcessorCount, multiProcessorCount);
    A(PageableMemoryAccess, pageableMemoryAccess);
    A(PageableMemoryAccessUsesHostPageTables, pageableMemoryAccessUsesHostPageTables);
    A(PciBusId, pciBusID);
    A(PciDeviceId, pciDeviceID);
    A(PciDomainId, pciDomainID);
    A(PersistingL2CacheMaxSize, persistingL2CacheMaxSize);
    A(MaxRegistersPerBlock, regsPerBlock);
    A(MaxRegistersPerMultiprocessor, regsPerMultiprocessor);
    A(ReservedSharedMemPerBlock, reservedSharedMemPerBlock);
    A(MaxSharedMemoryPerBlock, sharedMemPerBlock);
    A(SharedMemPerBlockOptin, sharedMemPerBlockOptin);
    A(SharedMemPerMultiprocessor, sharedMemPerMultiprocessor);
    A(MaxSharedMemoryPerMultiprocessor, maxSharedMemoryPerMultiProcessor);
    A(StreamPrioritiesSupported, streamPrioritiesSupported);
    A(SurfaceAlignment, surfaceAlignment);
    A(TccDriver, tccDriver);
    A(TextureAlignment, textureAlignment);
    A(TexturePitchAlignment, texturePitchAlignment);
    A(TotalConstantMemory, totalConstMem);
    A(UnifiedAddressing, unifiedAddressing);
    A(WarpSize, warpSize);
    A(MemoryPoolsSupported, memoryPoolsSupported);
    A(MemoryPoolSupportedHandleTypes, memoryPoolSupportedHandleTypes);
    A(HostRegisterSupported, hostRegisterSupported);
    A(ClockInstructionRate, clockInstructionRate);
    A(IsLargeBar, isLargeBar);
    A(AsicRevision, asicRevision);
#undef A
    case hipDeviceAttributeTotalGlobalMem: *value = 2147483647; break; /* as ROCm, which saturates it */
    case hipDeviceAttributeVirtualMemoryManagementSupported: *value = 1; break;
    case hipDeviceAttributeCanUseStreamWaitValue: *value = 0; break; /* hipStreamWaitValue32 is refused */
    case hipDeviceAttributeImageSupport: *value = 0; break;
    case hipDeviceAttributeFineGrainSupport: *value = 1; break;
    case hipDeviceAttributeWallClockRate: *value = 100000; break;
    case hipDeviceAttributeNumberOfXccs: *value = machine.model->compute_dies; break;
    case hipDeviceAttributeMaxAvailableVgprsPerThread: *value = 512; break;
    case hipDeviceAttributePciChipId: *value = machine.model->chip; break;
    default: return done(hipErrorInvalidValue);
    }
    return hipSuccess;
}

EXPORT hipError_t hipDeviceGet(hipDevice_t *device, int ordinal)
{
    ENTER();
    REQUIRE(writable(device, sizeof *device), hipErrorInvalidValue);
    REQUIRE(valid_device(ordinal), hipErrorInvalidDevice);
    *device = ordinal;
    return hipSuccess;
}

EXPORT hipError_t hipDeviceComputeCapability(int *major, int *minor, hipDevice_t device)
{
    ENTER();
    REQUIRE(writable(major, sizeof *major) && writable(minor, sizeof *minor), hipErrorInvalidValue);
    REQUIRE(valid_device(device), hipErrorInvalidDevice);
    *major = 9;
    *minor = machine.gfx950 ? 5 : 4;
    return hipSuccess;
}

EXPORT hipError_t hipDeviceGetName(char *name, int length, hipDevice_t device)
{
    ENTER();
    REQUIRE(length > 0 && name, hipErrorInvalidValue);
    REQUIRE(valid_device(device), hipErrorInvalidDevice);
    hipDeviceProp_t p;
    fill_properties(&p, device);
    size_t needed = strlen(p.name) + 1;
    REQUIRE(writable(name, needed < (size_t)length ? needed : (size_t)length), hipErrorInvalidValue);
    snprintf(name, length, "%s", p.name);
    return hipSuccess;
}

EXPORT hipError_t hipDeviceGetUuid(hipUUID *uuid, hipDevice_t device)
{
    ENTER();
    REQUIRE(writable(uuid, sizeof *uuid), hipErrorInvalidValue);
    REQUIRE(valid_device(device), hipErrorInvalidDevice);
    hipDeviceProp_t p;
    fill_properties(&p, device);
    *uuid = p.uuid;
    return hipSuccess;
}

EXPORT hipError_t hipDeviceTotalMem(size_t *bytes, hipDevice_t device)
{
    ENTER();
    REQUIRE(writable(bytes, sizeof *bytes), hipErrorInvalidValue);
    REQUIRE(valid_device(device), hipErrorInvalidDevice);
    *bytes = capacity();
    return hipSuccess;
}

EXPORT hipError_t hipDeviceGetPCIBusId(char *text, int length, int device)
{
    ENTER();
    REQUIRE(length > 0 && text, hipErrorInvalidValue);
    REQUIRE(valid_device(device), hipErrorInvalidDevice);
    REQUIRE(length > 12 && writable(text, 13), hipErrorInvalidValue);
    snprintf(text, length, "0000:%02x:00.0", bus(device));
    return hipSuccess;
}

EXPORT hipError_t hipDeviceGetByPCIBusId(int *device, const char *text)
{
    ENTER();
    char copy[64];
    REQUIRE(writable(device, sizeof *device) && copy_text(copy, sizeof copy, text), hipErrorInvalidValue);
    unsigned wanted_domain, wanted_bus, slot, function;
    REQUIRE(sscanf(copy, "%x:%x:%x.%x", &wanted_domain, &wanted_bus, &slot, &function) == 4, hipErrorInvalidValue);
    for (int i = 0; i < machine.count; i++)
        if (wanted_domain == 0 && bus(i) == (int)wanted_bus && !slot && !function) {
            *device = i;
            return hipSuccess;
        }
    return done(hipErrorInvalidValue);
}

EXPORT hipError_t hipDeviceGetLimit(size_t *value, enum hipLimit_t limit)
{
    ENTER();
    REQUIRE(writable(value, sizeof *value), hipErrorInvalidValue);
    switch (limit) {
    case hipLimitStackSize: *value = 1024; break;
    case hipLimitPrintfFifoSize: *value = 1 << 20; break;
    case hipLimitMallocHeapSize: *value = 8 << 20; break;
    default: return done(hipErrorUnsupportedLimit);
    }
    return hipSuccess;
}

EXPORT hipError_t hipGetDeviceFlags(unsigned *flags)
{
    ENTER();
    REQUIRE(writable(flags, sizeof *flags), hipErrorInvalidValue);
    *flags = hipDeviceScheduleAuto;
    return hipSuccess;
}

EXPORT hipError_t hipSetDeviceFlags(unsigned flags)
{
    ENTER();
    REQUIRE(!(flags & ~(hipDeviceScheduleMask | hipDeviceMapHost | hipDeviceLmemResizeToMax)), hipErrorInvalidValue);
    return hipSuccess;
}

/* -- peers -------------------------------------------------------------------------------------------------------- */

EXPORT hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer)
{
    ENTER();
    REQUIRE(writable(can, sizeof *can), hipErrorInvalidValue);
    REQUIRE(valid_device(device) && valid_device(peer), hipErrorInvalidDevice);
    *can = device != peer;
    return hipSuccess;
}

EXPORT hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags)
{
    ENTER();
    REQUIRE(flags == 0, hipErrorInvalidValue);
    REQUIRE(valid_device(peer) && peer != current_device, hipErrorInvalidDevice);
    LOCK();
    bool before = machine.devices[current_device].peers >> peer & 1;
    machine.devices[current_device].peers |= 1ull << peer;
    changed();
    UNLOCK();
    return before ? done(hipErrorPeerAccessAlreadyEnabled) : hipSuccess;
}

EXPORT hipError_t hipDeviceDisablePeerAccess(int peer)
{
    ENTER();
    REQUIRE(valid_device(peer) && peer != current_device, hipErrorInvalidDevice);
    LOCK();
    bool before = machine.devices[current_device].peers >> peer & 1;
    machine.devices[current_device].peers &= ~(1ull << peer);
    changed();
    UNLOCK();
    return before ? hipSuccess : done(hipErrorPeerAccessNotEnabled);
}

EXPORT hipError_t hipDeviceGetP2PAttribute(int *value, hipDeviceP2PAttr attribute, int source, int target)
{
    ENTER();
    REQUIRE(writable(value, sizeof *value), hipErrorInvalidValue);
    REQUIRE(valid_device(source) && valid_device(target) && source != target, hipErrorInvalidDevice);
    switch (attribute) {
    case hipDevP2PAttrPerformanceRank: *value = 1; break;
    case hipDevP2PAttrAccessSupported: *value = 1; break;
    case hipDevP2PAttrNativeAtomicSupported: *value = 1; break;
    case hipDevP2PAttrHipArrayAccessSupported: *value = 0; break;
    default: return done(hipErrorInvalidValue);
    }
    return hipSuccess;
}

EXPORT hipError_t hipExtGetLinkTypeAndHopCount(int device1, int device2, uint32_t *type, uint32_t *hops)
{
    ENTER();
    REQUIRE(writable(type, sizeof *type) && writable(hops, sizeof *hops), hipErrorInvalidValue);
    REQUIRE(valid_device(device1) && valid_device(device2) && device1 != device2, hipErrorInvalidValue);
    *type = 4; /* HSA_AMD_LINK_INFO_TYPE_XGMI */
    *hops = 1;
    return hipSuccess;
}

/* -- addresses of functions ------------------------------------------------------------------------------------------ */

EXPORT hipError_t hipGetProcAddress(
    const char *symbol, void **function, int version, uint64_t flags, hipDriverProcAddressQueryResult *status)
{
    (void)version, (void)flags;
    char name[128];
    REQUIRE(copy_text(name, sizeof name, symbol) && writable(function, sizeof *function) && OPTIONAL(status),
            hipErrorInvalidValue);
    symbol = name;
    REQUIRE(!strncmp(symbol, "hip", 3), hipErrorInvalidValue);
    Dl_info here;
    void *library = dladdr((void *)hipGetProcAddress, &here) ? dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (!strcmp(symbol, "hipGetDeviceProperties"))
        symbol = "hipGetDevicePropertiesR0600";
    *function = library ? dlsym(library, symbol) : NULL;
    if (library)
        dlclose(library);
    if (status)
        *status = *function ? HIP_GET_PROC_ADDRESS_SUCCESS : HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? hipSuccess : done(hipErrorInvalidValue);
}
