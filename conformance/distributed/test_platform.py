"""The platform module (``iris.hip``): what the device is, and memory that is shared as handles and descriptors."""

import json
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from conformance.distributed.modules import module_of
from conformance.rma.test_load import read_address
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase

CLOCK_KHZ = {"cuda": 1_000_000, "rocm": 100_000, "emulated": 100_000}


def run_device(env, case):
    found, package = Findings(env.rank), env.under_test.module
    hip, kind, here = package.hip, env.device.name, env.iris.gpu_id
    found.true("hip is the platform module", hip is module_of(env, "host.platform.hip"))
    found.equal("get_device_id()", hip.get_device_id(), here)
    found.true("count_devices() has this device", hip.count_devices() > here)
    for rank in range(env.world_size):
        wanted = rank % hip.count_devices()
        found.equal(f"get_device_id_for_rank({rank})", package.get_device_id_for_rank(rank), wanted)
    found.equal("get_device_id_for_rank() of this rank", package.get_device_id_for_rank(env.rank), here)
    found.raises("get_device_id_for_rank(-1)", ValueError, lambda: package.get_device_id_for_rank(-1))
    found.equal("get_arch_string()", hip.get_arch_string(), env.device.arch)
    for name in ("get_cu_count", "get_wall_clock_rate", "get_num_xcc"):
        query = getattr(hip, name)
        found.equal(f"type of {name}()", type(query()).__name__, "int")
        found.true(f"{name}() is positive", query() > 0)
        found.equal(f"{name} of this device by its number", query(here), query())
    found.equal("get_cu_count() and the instance's", hip.get_cu_count(), env.iris.get_cu_count())
    found.equal("get_wall_clock_rate() in kHz", hip.get_wall_clock_rate(), CLOCK_KHZ[kind])
    version = hip.get_rocm_version()
    found.true(f"get_rocm_version() {version} is for {kind}", (version == (-1, -1)) == (kind != "rocm"))
    if kind == "cuda":
        found.equal("get_num_xcc() on CUDA", hip.get_num_xcc(), 1)
    if kind == "emulated":
        found.equal("get_num_xcc() of a whole MI300X or MI350", hip.get_num_xcc(), 8)
    hip.set_device(here)
    found.equal("get_device_id() after set_device()", hip.get_device_id(), here)
    beyond = hip.count_devices()
    for name in ("set_device", "get_cu_count", "get_arch_string", "get_num_xcc"):
        call = getattr(hip, name)
        found.raises(f"{name} of a device beyond the last", ValueError, lambda call=call: call(beyond))
    return found.first


@requirement("HIP-DEVICE-001", cases=lambda ranks: [HostCase("device")])
def test_device(check, case):
    check(run_device, case)


def run_memory(env, case):
    """Memory of each rank, opened by its neighbour by an interprocess handle; a kernel reads it there."""
    (fine, size, offset) = case.arguments
    found, package, hip = Findings(env.rank), env.under_test.module, env.under_test.module.hip
    before = _descriptors()
    own = (hip.malloc_fine_grained if fine else hip.hip_malloc)(size)
    mine = package.tensor_from_ptr(own, size // 4 * 4, torch.int32, device=env.iris.device)
    mine.fill_(1000 + env.rank)
    base, whole = hip.get_address_range(own + offset)
    found.true("get_address_range() holds the memory", base <= own and own + size <= base + whole)
    found.equal("get_address_range() of its start", hip.get_address_range(base), (base, whole))
    env.device.synchronize()
    every = [None] * env.world_size
    dist.all_gather_object(every, (bytes(hip.get_ipc_handle(own)), own - base))
    found.equal("bytes of a handle", len(every[env.rank][0]), 64)
    peer = (env.rank + 1) % env.world_size
    if peer != env.rank:
        opened = hip.open_ipc_handle(every[peer][0])
        place = opened + every[peer][1] + offset // 4 * 4
        found.equal(f"what rank {peer} wrote, through its handle", read_address(env, place), 1000 + peer)
        env.settle()
        hip.close_ipc_handle(opened)
    env.settle()
    hip.hip_free(own)
    if env.device.name == "emulated":  # whose memory is descriptors; GPUs' runtimes have theirs
        found.equal("descriptors that stayed open after interprocess handles", _descriptors() - before, 0)
    for what, call in (
        ("hip_malloc(0)", lambda: hip.hip_malloc(0)),
        ("a short handle", lambda: hip.open_ipc_handle(b"1")),
    ):
        found.raises(what, ValueError, call)
    env.settle()
    return found.first


def memory_cases(ranks):
    from hypothesis import strategies as st

    return st.integers(1, 1 << 20).flatmap(
        lambda words: st.builds(
            HostCase,
            what=st.just("memory"),
            arguments=st.tuples(st.booleans(), st.just(4 * words), st.integers(0, 4 * words - 1)),
        )
    )


@requirement("HIP-MEMORY-001", cases=memory_cases, weight=0.1)
def test_memory(check, case):
    check(run_memory, case)


def run_amd(env, case):
    """On AMD devices, the emulated one among them, it works; elsewhere each function says that it is AMD's."""
    found, hip = Findings(env.rank), env.under_test.module.hip
    if env.device.name == "cuda":
        _refused(found, hip)
    else:
        _dmabuf(env, found, hip)
        _virtual_memory(env, found, hip)
    env.settle()
    return found.first


def _dmabuf(env, found, hip):
    before = _descriptors()
    own, size = hip.hip_malloc(1 << 16), 1 << 16
    _fill(env, own, size, 7000 + env.rank)
    base, whole = hip.get_address_range(own)
    fd = hip.export_dmabuf_handle(base, whole)
    memory, again = hip.import_dmabuf_handle(fd, whole)
    os.close(fd)
    found.equal("memory behind a descriptor", read_address(env, again + (own - base) + 4096), 7000 + env.rank)
    hip.destroy_external_memory(memory)
    hip.hip_free(own)
    found.equal("descriptors that stayed open after DMA-BUF", _descriptors() - before, 0)


def _virtual_memory(env, found, hip):
    """Two chunks in one range, of which the second is mapped a second time through a descriptor."""
    before, grain = _descriptors(), hip.get_allocation_granularity()
    start = hip.mem_address_reserve(3 * grain)
    handles = [hip.mem_create(grain), hip.mem_create(grain)]
    for number, handle in enumerate(handles):
        hip.mem_map(start + number * grain, grain, 0, handle)
        hip.mem_set_access(start, (number + 1) * grain)
    _fill(env, start, 2 * grain, 8000 + env.rank)
    fd = hip.mem_export_to_shareable_handle(handles[1])
    handles.append(hip.mem_import_from_shareable_handle(fd))
    os.close(fd)
    hip.mem_map(start + 2 * grain, grain, 0, handles[2])
    hip.mem_set_access(start, 3 * grain)
    for number in range(3):
        seen = read_address(env, start + number * grain)
        found.equal(f"what chunk {number} holds", seen, 8000 + env.rank)
    for number, handle in enumerate(handles):
        hip.mem_unmap(start + number * grain, grain)
        hip.mem_release(handle)
    found.raises("unmapping what is not mapped", RuntimeError, lambda: hip.mem_unmap(start, grain))
    hip.mem_address_free(start, 3 * grain)
    found.raises("freeing addresses twice", RuntimeError, lambda: hip.mem_address_free(start, 3 * grain))
    found.equal("descriptors that stayed open after virtual memory", _descriptors() - before, 0)


def _refused(found, hip):
    for name, arguments in {
        "export_dmabuf_handle": (0, 1), "import_dmabuf_handle": (0, 1), "destroy_external_memory": (None,),
        "get_allocation_granularity": (), "mem_create": (1,), "mem_release": (None,),
        "mem_export_to_shareable_handle": (None,), "mem_import_from_shareable_handle": (0,),
        "mem_address_reserve": (1,), "mem_address_free": (0, 1), "mem_map": (0, 1, 0, None), "mem_unmap": (0, 1),
        "mem_set_access": (0, 1),
    }.items():  # fmt: skip
        call = getattr(hip, name)
        found.raises(f"{name} on CUDA", RuntimeError, lambda call=call, arguments=arguments: call(*arguments))


def _fill(env, ptr, size, value):
    tensor = env.under_test.module.tensor_from_ptr(ptr, size, torch.int32, device=env.iris.device)
    tensor.fill_(value)
    env.device.synchronize()


def _descriptors():
    return len(os.listdir("/proc/self/fd"))


@requirement("HIP-AMD-001", cases=lambda ranks: [HostCase("amd")])
def test_amd(check, case):
    check(run_amd, case)


PREFIX = "IRIS_HEAP_BASES_PREFIX"
SIMULATION = {"1": True, "true": True, "Yes": True, "TRUE": True, "0": False, "": False, "no": False, None: False}


def run_simulation(env, case):
    found, asked = Findings(env.rank), env.under_test.module.is_simulation_env
    kept = os.environ.pop("IRIS_SIMULATION", None)
    try:
        for text, wanted in SIMULATION.items():
            os.environ.pop("IRIS_SIMULATION", None)
            if text is not None:
                os.environ["IRIS_SIMULATION"] = text
            found.equal(f"is_simulation_env() with {text!r}", asked(), wanted)
        _bases_are_told(env, found)
    finally:
        os.environ.pop("IRIS_SIMULATION", None)
        if kept is not None:
            os.environ["IRIS_SIMULATION"] = kept
    return found.first


def _bases_are_told(env, found):
    """Where each heap lies, in a file whose name starts as asked; none outside a simulation."""
    kept = os.environ.get(PREFIX)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[PREFIX] = f"{folder}/bases"
        try:
            for simulated in (False, True):
                os.environ["IRIS_SIMULATION"] = str(int(simulated))
                iris = env.under_test.iris(heap_size=1 << 16)
                files = [path for path in Path(folder).iterdir() if path.name.startswith("bases")]
                found.equal(f"files of a rank, simulated {simulated}", len(files), int(simulated))
                for path in files:
                    told = json.dumps(json.loads(path.read_text("utf-8")))
                    for rank, base in enumerate(iris.get_heap_bases().tolist()):
                        found.true(f"{path.name} has the heap of rank {rank}", str(base) in told)
                env.settle()
                iris.close()
        finally:
            os.environ.pop(PREFIX)
            if kept is not None:
                os.environ[PREFIX] = kept


@requirement("HOST-SIMULATION-001", cases=lambda ranks: [HostCase("simulation")])
def test_simulation(check, case):
    check(run_simulation, case)
