"""The platform module (``iris.hip``): properties of the device, and memory shared by handles and descriptors."""

import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from conformance.distributed.modules import module_of
from conformance.rma.words import read_address
from conformance.support.cases import HostCase
from conformance.support.instances import release
from fixtures.findings import Findings
from fixtures.requirement import requirement

CLOCK_KHZ = {"cuda": 1_000_000, "rocm": 100_000, "emulated": 100_000}


def run_device(env, case):
    findings, package = Findings(env.rank), env.under_test.module
    hip, kind, here = package.hip, env.device.name, env.iris.gpu_id
    findings.true("hip is the platform module", env.same_object(hip, module_of(env, "host.platform.hip")))
    findings.equal("get_device_id()", hip.get_device_id(), here)
    findings.true("count_devices() has this device", hip.count_devices() > here)
    for rank in range(env.world_size):
        wanted = rank % hip.count_devices()
        findings.equal(f"get_device_id_for_rank({rank})", package.get_device_id_for_rank(rank), wanted)
    findings.equal("get_device_id_for_rank() of this rank", package.get_device_id_for_rank(env.rank), here)
    findings.raises("get_device_id_for_rank(-1)", ValueError, lambda: package.get_device_id_for_rank(-1))
    findings.equal("get_arch_string()", hip.get_arch_string(), env.device.arch)
    for name in ("get_cu_count", "get_wall_clock_rate", "get_num_xcc"):
        query = getattr(hip, name)
        findings.equal(f"type of {name}()", type(query()).__name__, "int")
        findings.true(f"{name}() is positive", query() > 0)
        findings.equal(f"{name}() with this device's index", query(here), query())
    findings.equal("get_cu_count() and the instance's", hip.get_cu_count(), env.iris.get_cu_count())
    findings.equal("get_wall_clock_rate() in kHz", hip.get_wall_clock_rate(), CLOCK_KHZ[kind])
    version = hip.get_rocm_version()
    findings.true(
        f"get_rocm_version() {version} on {kind}: (-1, -1) except on rocm", (version == (-1, -1)) == (kind != "rocm")
    )
    if kind == "cuda":
        findings.equal("get_num_xcc() on CUDA", hip.get_num_xcc(), 1)
    if kind == "emulated":
        findings.equal("get_num_xcc() of a whole MI300X or MI350", hip.get_num_xcc(), 8)
    hip.set_device(here)
    findings.equal("get_device_id() after set_device()", hip.get_device_id(), here)
    beyond = hip.count_devices()
    for name in ("set_device", "get_cu_count", "get_arch_string", "get_num_xcc"):
        call = getattr(hip, name)
        findings.raises(f"{name} of a device beyond the last", ValueError, lambda call=call: call(beyond))
    return findings.first


@requirement("HIP-DEVICE-001", one_process="", cases=lambda ranks: [HostCase("device")])
def test_device(check, case):
    check(run_device, case)


def run_memory(env, case):
    """Let the neighbour open this rank's memory by an interprocess handle and read it with a kernel."""
    (fine, size, offset) = case.arguments
    findings, package, hip = Findings(env.rank), env.under_test.module, env.under_test.module.hip
    before = env.open_descriptors()
    own = (hip.malloc_fine_grained if fine else hip.hip_malloc)(size)
    mine = package.tensor_from_ptr(own, size // 4 * 4, torch.int32, device=env.iris.device)
    mine.fill_(1000 + env.rank)
    base, whole = hip.get_address_range(own + offset)
    findings.true("get_address_range() holds the memory", base <= own and own + size <= base + whole)
    findings.equal("get_address_range() of its start", hip.get_address_range(base), (base, whole))
    env.device.synchronize()
    every = [None] * env.world_size
    dist.all_gather_object(every, (bytes(hip.get_ipc_handle(own)), own - base))
    findings.equal("bytes of a handle", len(every[env.rank][0]), 64)
    peer = (env.rank + 1) % env.world_size
    if peer != env.rank:
        opened = hip.open_ipc_handle(every[peer][0])
        place = opened + every[peer][1] + offset // 4 * 4
        findings.equal(f"value that rank {peer} wrote, read through its handle", read_address(env, place), 1000 + peer)
        env.settle()
        hip.close_ipc_handle(opened)
    env.settle()
    hip.hip_free(own)
    if env.device.name == "emulated":  # its memory consists of descriptors; a GPU's runtime opens others
        _stale(env, findings, hip, every, size)
        findings.equal("descriptors that stayed open after interprocess handles", env.open_descriptors() - before, 0)
    for label, call in (
        ("hip_malloc(0)", lambda: hip.hip_malloc(0)),
        ("a short handle", lambda: hip.open_ipc_handle(b"1")),
    ):
        findings.raises(label, ValueError, call)
    env.settle()
    return findings.first


def _stale(env, findings, hip, every, size):
    """Check that no rank opens the handle of memory that was freed, even after its owner has allocated the same again.
    A GPU's runtime may keep such memory."""
    env.settle()
    _refuse_handles(findings, hip, every, "freed memory")
    env.settle()
    again = hip.hip_malloc(size)
    env.settle()
    _refuse_handles(findings, hip, every, "freed memory, whose owner has allocated as much again,")
    env.settle()
    hip.hip_free(again)


def _refuse_handles(findings, hip, every, label):
    for rank, (handle, _) in enumerate(every):
        findings.raises(
            f"the handle of {label} of rank {rank}", RuntimeError, lambda handle=handle: hip.open_ipc_handle(handle)
        )


def memory_cases(ranks):
    from hypothesis import strategies as st

    return st.integers(1, 1 << 20).flatmap(
        lambda words: st.builds(
            HostCase,
            what=st.just("memory"),
            arguments=st.tuples(st.booleans(), st.just(4 * words), st.integers(0, 4 * words - 1)),
        )
    )


@requirement("HIP-MEMORY-001", one_process="", cases=memory_cases, weight=0.1)
def test_memory(check, case):
    check(run_memory, case)


def run_amd(env, case):
    """Check DMA-BUF and virtual memory on AMD devices and the emulated one; on CUDA each function is refused."""
    findings, hip = Findings(env.rank), env.under_test.module.hip
    if env.device.name == "cuda":
        _refused(findings, hip)
    else:
        _dmabuf(env, findings, hip)
        _virtual_memory(env, findings, hip)
    env.settle()
    return findings.first


def _dmabuf(env, findings, hip):
    before = env.open_descriptors()
    own, size = hip.hip_malloc(1 << 16), 1 << 16
    _fill(env, own, size, 7000 + env.rank)
    base, whole = hip.get_address_range(own)
    fd, *exported = hip.export_dmabuf_handle(own, size)
    findings.equal("base and size behind a descriptor", tuple(exported), (base, whole))
    memory, again = hip.import_dmabuf_handle(fd, whole)
    env.module("os").close(fd)
    findings.equal("memory imported by a descriptor", read_address(env, again + (own - base) + 4096), 7000 + env.rank)
    hip.destroy_external_memory(memory)
    hip.hip_free(own)
    findings.equal("descriptors that stayed open after DMA-BUF", env.open_descriptors() - before, 0)


def _virtual_memory(env, findings, hip):
    """Map two chunks into one address range, the first one behind the second, which it touches, and the second one once
    more through a descriptor."""
    before, grain = env.open_descriptors(), hip.get_allocation_granularity()
    start = hip.mem_address_reserve(3 * grain)
    handles = [hip.mem_create(grain), hip.mem_create(grain)]
    for number in (1, 0):
        hip.mem_map(start + number * grain, grain, 0, handles[number])
        hip.mem_set_access(start + number * grain, (2 - number) * grain)
    findings.raises("a chunk where one is", RuntimeError, lambda: hip.mem_map(start, grain, 0, handles[0]))
    _fill(env, start, 2 * grain, 8000 + env.rank)
    fd = hip.mem_export_to_shareable_handle(handles[1])
    handles.append(hip.mem_import_from_shareable_handle(fd))
    env.module("os").close(fd)
    hip.mem_map(start + 2 * grain, grain, 0, handles[2])
    here = hip.hipMemLocation(hip.hipMemLocationTypeDevice, hip.get_device_id())
    hip.mem_set_access(start, 3 * grain, hip.hipMemAccessDesc(here, hip.hipMemAccessFlagsProtReadWrite))
    for number in range(3):
        seen = read_address(env, start + number * grain)
        findings.equal(f"value in chunk {number}", seen, 8000 + env.rank)
    for number, handle in enumerate(handles):
        hip.mem_unmap(start + number * grain, grain)
        hip.mem_release(handle)
    findings.raises("unmapping an address that is not mapped", RuntimeError, lambda: hip.mem_unmap(start, grain))
    hip.mem_address_free(start, 3 * grain)
    findings.raises("freeing addresses twice", RuntimeError, lambda: hip.mem_address_free(start, 3 * grain))
    findings.equal("descriptors that stayed open after virtual memory", env.open_descriptors() - before, 0)


def _refused(findings, hip):
    for name, arguments in {
        "export_dmabuf_handle": (0, 1), "import_dmabuf_handle": (0, 1), "destroy_external_memory": (None,),
        "get_allocation_granularity": (), "mem_create": (1,), "mem_release": (None,),
        "mem_export_to_shareable_handle": (None,), "mem_import_from_shareable_handle": (0,),
        "mem_address_reserve": (1,), "mem_address_free": (0, 1), "mem_map": (0, 1, 0, None), "mem_unmap": (0, 1),
        "mem_set_access": (0, 1),
    }.items():  # fmt: skip
        call = getattr(hip, name)
        findings.raises(f"{name} on CUDA", RuntimeError, lambda call=call, arguments=arguments: call(*arguments))


def _fill(env, ptr, size, value):
    tensor = env.under_test.module.tensor_from_ptr(ptr, size, torch.int32, device=env.iris.device)
    tensor.fill_(value)
    env.device.synchronize()


@requirement("HIP-AMD-001", one_process="", cases=lambda ranks: [HostCase("amd")], weak=False)
def test_amd(check, case):
    check(run_amd, case)


PREFIX = "IRIS_HEAP_BASES_PREFIX"
SIMULATION = {"1": True, "true": True, "Yes": True, "TRUE": True, "0": False, "": False, "no": False, None: False}


def run_simulation(env, case):
    findings, is_simulation = Findings(env.rank), env.under_test.module.is_simulation_env
    environ = env.module("os").environ
    kept = environ.pop("IRIS_SIMULATION", None)
    try:
        for text, wanted in SIMULATION.items():
            environ.pop("IRIS_SIMULATION", None)
            if text is not None:
                environ.update({"IRIS_SIMULATION": text})
            findings.equal(f"is_simulation_env() with {text!r}", is_simulation(), wanted)
        _check_bases_file(env, findings, environ)
    finally:
        environ.pop("IRIS_SIMULATION", None)
        if kept is not None:
            environ.update({"IRIS_SIMULATION": kept})
    return findings.first


def _check_bases_file(env, findings, environ):
    """Check that a simulation writes all heap bases into a file with the given prefix, and that others write none.

    The names of the file's keys are the library's own, but one that is named ``rank`` is this rank.
    """
    kept = environ.get(PREFIX)
    with tempfile.TemporaryDirectory() as folder:
        environ.update({PREFIX: f"{folder}/bases"})
        try:
            for simulated in (False, True):
                environ.update({"IRIS_SIMULATION": str(int(simulated))})
                iris = env.under_test.iris(heap_size=1 << 16)
                files = [path for path in Path(folder).iterdir() if path.name.startswith("bases")]
                findings.equal(f"files of a rank, simulated {simulated}", len(files), int(simulated))
                for path in files:
                    stated = json.loads(path.read_text("utf-8"))
                    content = json.dumps(stated)
                    if isinstance(stated, dict) and "rank" in stated:
                        findings.equal(f"rank that {path.name} states", stated["rank"], env.rank)
                    for rank, base in enumerate(iris.get_heap_bases().tolist()):
                        findings.true(f"{path.name} has the heap of rank {rank}", str(base) in content)
                env.settle()
                release(iris)
        finally:
            environ.pop(PREFIX)
            if kept is not None:
                environ.update({PREFIX: kept})


@requirement("HOST-SIMULATION-001", one_process="", cases=lambda ranks: [HostCase("simulation")])
def test_simulation(check, case):
    check(run_simulation, case)
