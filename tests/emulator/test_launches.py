"""Launches one after the other: their arguments, the memory that these lead to, and what stays for the next launch."""

import gc
import random
import struct
from functools import reduce
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.driver import launcher
from harness.emulator.driver.arena import Arena
from harness.emulator.driver.arguments import APART, Arguments, Placed
from harness.emulator.driver.reach import Reach
from harness.emulator.execution import records as records_module
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.records import Records, added
from harness.emulator.execution.tally import Facts, number_of_counters
from harness.emulator.faults import MemoryFault
from harness.errors import HarnessError

# -- arguments ---------------------------------------------------------------------------------------------------------

SIGNATURE = {
    "a": "*fp32", "flag": "i1", "b": "*i64", "i": "i32", "SIZE": "constexpr", "pair": ("i64", "fp16"), "u": "u8",
    "f": "fp32", "g": "bf16", "h": "u32", "d": "fp64", "s": "i16",
}  # fmt: skip
OFFSETS = {
    "a": 0, "flag": 8, "b": 16, "i": 24, "pair[0]": 32, "pair[1]": 40, "u": 42, "f": 44, "g": 48, "h": 52, "d": 56,
    "s": 64,
}  # fmt: skip


def arguments():
    metadata = {
        ".args": [{".offset": offset, ".value_kind": "by_value"} for offset in OFFSETS.values()],
        ".kernarg_segment_size": 72,
    }
    return Arguments(SimpleNamespace(signature=SIGNATURE), metadata, [(0, 1), (0, 1)])


def accept(tensor, name):
    pass


def test_each_argument_is_written_at_its_offset():
    a, b = torch.zeros(3), torch.zeros(2, dtype=torch.int64)
    kernel = arguments()
    placed = kernel.place((a, True, b, -5, None, (2**40, 1.5), 200, 0.25, 3.0, 7, 1e300, -2), accept, 1)
    forms = {
        "a": ("Q", a.data_ptr()), "flag": ("?", True), "b": ("Q", b.data_ptr()), "i": ("i", -5),
        "pair[0]": ("q", 2**40), "pair[1]": ("e", 1.5), "u": ("B", 200), "f": ("f", 0.25), "g": ("H", 0x4040),
        "h": ("I", 7), "d": ("d", 1e300), "s": ("h", -2),
    }  # fmt: skip
    for name, (form, value) in forms.items():
        assert struct.unpack_from("<" + form, kernel.block.tobytes(), OFFSETS[name]) == (value,), name
    assert placed.memory == [(a.data_ptr(), 12, "argument a"), (b.data_ptr(), 16, "argument b")]
    assert placed.tensors == [(b.data_ptr(), 2)]
    assert kernel.candidates == [0, 16, 32]
    assert kernel.positions == [0, 2, 4]


def test_integers_beyond_their_type_are_passed_as_bits():
    kernel = arguments()
    given = (torch.zeros(1), 0, None, 2**32 - 1, None, (2**64 - 3, 0.0), -1, 0.0, 0.0, -2, 0.0, 2**16 - 4)
    kernel.place(given, accept, 1)
    written = {
        "b": ("Q", 0),
        "i": ("i", -1),
        "pair[0]": ("q", -3),
        "u": ("B", 255),
        "h": ("I", 2**32 - 2),
        "s": ("h", -4),
    }
    for name, (form, value) in written.items():
        assert struct.unpack_from("<" + form, kernel.block.tobytes(), OFFSETS[name]) == (value,), name


def test_a_value_that_is_no_number_is_refused():
    with pytest.raises((TypeError, ValueError)):
        arguments().place((torch.zeros(1), 0, None, "five", None, (0, 0.0), 0, 0.0, 0.0, 0, 0.0, 0), accept, 1)


def test_a_type_that_cannot_be_passed_is_named():
    with pytest.raises(HarnessError, match="argument x of type 'fp8e9'"):
        Arguments(SimpleNamespace(signature={"x": "fp8e9"}), {".kernarg_segment_size": 8}, [])


# -- what arguments lead to --------------------------------------------------------------------------------------------


def expected(candidates, readable, others, tensors):
    """Return what a survey should: whether all addresses are known, and TABLE, PEER or 0 of each candidate."""

    def inside(word, ranges):
        return any(start <= word < end for start, end in ranges)

    def words(address):
        room = next((end - address for start, end in readable if start <= address < end), 0)
        return [] if address % 8 else word_list(address, min(room // 8, 1024))

    def leads(address, further):
        here = words(address)
        if any(inside(word, others) for word in here):
            return True
        followed = [word for start, end in readable for word in [w for w in here if start <= w < end][:16]]
        return further and any(leads(word, False) for word in followed)

    named = [*candidates, *(word for address, count in tensors for word in word_list(address, count))]
    known = all(not 1 << 16 <= word < 1 << 47 or inside(word, [*readable, *others]) for word in named)
    kinds = [2 if inside(word, others) else 1 if leads(word, True) else 0 for word in candidates]
    return known, kinds if others else [0] * len(candidates)


def word_list(address, count):
    return np.ctypeslib.as_array((np.ctypeslib.ctypes.c_int64 * count).from_address(address)).tolist() if count else []


def test_survey_finds_tables_peers_and_unknown_addresses():
    draw, seen = random.Random(7), set()
    for _ in range(400):
        blocks = [np.zeros(draw.choice((1, 5, 40, 1500)), np.int64) for _ in range(draw.randrange(2, 7))]
        ranges = [(int(block.ctypes.data), int(block.ctypes.data) + block.nbytes) for block in blocks]
        number = draw.randrange(len(blocks))
        others, own = ranges[:number], ranges[number:]

        def word(ranges=ranges):
            start, end = draw.choice(ranges)
            return draw.choice((0, -1, 77, 1 << 50, 1 << 30, start, end - 1, end, draw.randrange(start, end) & ~7))

        for block in blocks:
            for _ in range(draw.randrange(4)):
                block[draw.randrange(len(block))] = word()
        allocations = Allocations()
        registered = draw.randrange(len(own) + 1)
        for i, (start, end) in enumerate([*others, *own[:registered]]):
            allocations.register(start, end - start, "memory", peer=1 if i < number else None)
        memory = [(start, end - start, "argument") for start, end in own[registered:]]
        tensors = [(start, (end - start) // 8) for start, end in draw.sample(own, draw.randrange(min(2, len(own)) + 1))]
        given = np.array([word() for _ in range(4)], np.int64)
        kernel = SimpleNamespace(candidates=[0, 8, 16, 24], positions=[3, 4, 5, 6], address=given.ctypes.data)
        reach = Reach(kernel, Placed(memory, tensors, []), allocations, None)
        known, kinds = expected(given.tolist(), own, others, tensors)
        assert reach.survey() == known
        wanted = (tuple(3 + i for i, kind in enumerate(kinds) if kind == each) for each in (1, 2))
        assert reach.positions() == (tuple(wanted) if others else (None, ()))
        seen |= {known, *("none", "table", "peer")[:3], *((kind, bool(others)) for kind in kinds)}
    assert {True, False, (0, True), (1, True), (2, True), (0, False)} <= seen


def test_elements_that_are_apart_are_not_known():
    kernel = SimpleNamespace(candidates=[], positions=[], address=0)
    assert not Reach(kernel, Placed([], [(0, APART)], []), Allocations(), None).survey()
    assert Reach(kernel, Placed([], [], []), Allocations(), None).survey()


# -- one launch after the other ----------------------------------------------------------------------------------------


@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr):
    """out[i] = factor * x[i] + the work-group's number and the number of work-groups, for i < n."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) * factor + tl.program_id(0) + 1000 * tl.num_programs(0)
    tl.store(out + at, value, mask=at < n)


@pytest.fixture
def device():
    yield emulator.activate()
    emulator.deactivate()


def scale(x, out, factor, n=None):
    groups = -(-len(x) // 64)
    scale_kernel[(groups,)](x, out, len(x) if n is None else n, factor, BLOCK=64, num_warps=1)
    group = torch.arange(len(x)) // 64
    return x * factor + group + 1000 * groups


def native(device, run):
    """Return what ``run`` returns after its kernel was translated."""
    launched = []
    device.run = lambda streams, closed=False: (
        launched.append(streams[0][0]) or type(device).run(device, streams, closed)
    )
    run()
    del device.run
    launched[0].program.heat.force(True)
    return run()


SIZES = ((200, 2.0), (64, 3.0), (1000, 0.5), (1, 4.0), (200, 2.0))


def wrong_launches(device):
    """Return what is wrong with the results and records of launches of one kernel, one after the other."""
    wrong = []

    def launch(size, factor):
        x, out = torch.arange(float(size)), torch.full((size,), -1.0)
        try:
            if not torch.equal(scale(x, out, factor), out):
                wrong.append(f"the result of {size} elements")
        except MemoryFault:
            wrong.append("an access out of bounds")

    native(device, lambda: launch(1, 1.0))
    device.drain_launches()
    for size, factor in SIZES:
        launch(size, factor)
    records = device.drain_launches()
    if [record.grid for record in records] != [(-(-size // 64), 1, 1) for size, _ in SIZES]:
        wrong.append("grids")
    loads = [sum(access.lanes for access in record.accesses if access.kind == "load") for record in records]
    if loads != [size for size, _ in SIZES] or records[0] != records[-1]:
        wrong.append("counters")
    return wrong


def test_a_launch_sees_nothing_of_earlier_ones(device):
    assert wrong_launches(device) == []


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        (lambda arena: arena.counts, "counters"),
        (lambda arena: arena.scalars, "an access out of bounds"),
        (lambda arena: arena._setup[:2], "the result of 1000 elements"),
    ],
)
def test_what_stays_of_an_earlier_launch_is_found(device, monkeypatch, part, wrong):
    begin, first = Arena.begin, {}

    def stale(arena, launch, groups):
        begin(arena, launch, groups)
        kept = first.setdefault(id(arena), part(arena).copy() + (part(arena) is arena.counts))
        part(arena)[:] = kept

    monkeypatch.setattr(Arena, "begin", stale)
    assert wrong in wrong_launches(device)


@pytest.mark.parametrize("mode", ["weak", "race", "check", "trace"])
def test_a_kernel_is_decoded_without_a_mode_when_it_is_launched_without_one(mode, monkeypatch):
    decoded = []
    plain = launcher.decode
    monkeypatch.setattr(launcher, "decode", lambda listing: decoded.append(listing.name) or plain(listing))
    x, out = torch.arange(64.0), torch.zeros(64)
    scale_kernel.device_caches.clear()
    try:
        emulator.activate(mode=mode)
        assert torch.equal(scale(x, out, 2.0), out)
        assert decoded == [], "a first launch in a watched mode is interpreted"
        emulator.deactivate()
        emulator.activate()
        scale_kernel.device_caches.clear()
        for factor in (3.0, 4.0):
            assert torch.equal(scale(x, out, factor), out)
        assert decoded == ["scale_kernel"]
    finally:
        emulator.deactivate()


def test_a_launch_after_one_that_faults(device):
    x, out = torch.arange(200.0), torch.full((200,), -1.0)
    native(device, lambda: scale(x, out, 1.0))
    with pytest.raises(MemoryFault, match="past the end of argument x"):
        scale(x, out, 2.0, n=1 << 20)
    assert torch.equal(scale(x, out, 3.0), out)


def test_memory_is_known_as_long_as_it_is_registered(device):
    memory, out = np.arange(200, dtype=np.float32), torch.full((200,), -1.0)
    given = SimpleNamespace(data_ptr=lambda: memory.ctypes.data, dtype=torch.float32)
    x = torch.from_numpy(memory.copy())

    def run():
        scale_kernel[(4,)](given, out, 200, 2.0, BLOCK=64, num_warps=1)

    for _ in range(3):
        with pytest.raises(MemoryFault, match=r"driver\.register_memory\("):
            run()
        device.register_memory(memory.ctypes.data, memory.nbytes, "memory of NumPy")
        native(device, run)
        assert torch.equal(out, x * 2.0 + torch.arange(200) // 64 + 4000)
        device.unregister_memory(memory.ctypes.data)


def test_a_hook_may_launch_the_same_kernel(device):
    x, first, second = torch.arange(200.0), torch.zeros(200), torch.zeros(200)
    native(device, lambda: scale(x, first, 1.0))
    inner = []

    def enter(metadata):
        if not inner:
            inner.append(True)
            scale(x, second, 5.0)

    hooks = triton.knobs.runtime.launch_enter_hook
    hooks.add(enter)
    try:
        wanted = scale(x, first, 2.0)
    finally:
        hooks.remove(enter)
    assert torch.equal(first, wanted)
    assert torch.equal(second, x * 5.0 + torch.arange(200) // 64 + 4000)


def test_a_kept_record_is_nothing_for_the_garbage_collector(device):
    x, out = torch.arange(200.0), torch.full((200,), -1.0)
    native(device, lambda: scale(x, out, 1.0))

    def objects():
        gc.collect()
        return len(gc.get_objects())

    before = objects()
    for _ in range(500):
        scale(x, out, 1.0)
    assert objects() - before < 100
    assert len(device.drain_launches()) >= 500


# -- sums of records ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sums", [2, 100])
def test_sums_of_older_launches_are_those_of_their_records(device, monkeypatch, sums):
    monkeypatch.setattr(records_module, "_MOST_SUMS", sums)
    launched = []
    device.run = lambda streams, closed=False: launched.append(streams[0][0])
    scale(torch.arange(200.0), torch.empty(200), 1.0)
    program = launched[0].program
    assert len(program.accesses) == 2
    draw = np.random.default_rng(3)
    kinds = [Facts(program, kernel, "text", (groups, 1, 1), 1, (groups,), ()) for kernel in "ab" for groups in (1, 2)]
    given = []
    for i in range(60):
        counts = draw.integers(0, 3, number_of_counters(program))
        counts[-6:] *= draw.integers(0, 2, 6)
        segments = len(program.segments)
        counts[segments : 2 * segments] *= counts[:segments] > 0
        # One launch has facts of its own.
        given.append((kinds[draw.integers(4)] if i != 30 else kinds[0]._replace(grid=(9, 9, 9)), counts))
    every, few = Records(), Records(limit=4)
    for facts, counts in given:
        every.add(facts, counts)
        few.add(facts, counts)
    records, summed = every.drain(), few.drain()
    assert [record.launches for record in records] == [1] * 60
    assert summed[-4:] == records[-4:]
    wanted = {}
    for record in records[:-4]:
        wanted.setdefault(record.hash, []).append(record)
    assert len(summed) == 4 + len(wanted)
    for record in summed[:-4]:
        assert normal(record) == normal(reduce(added, wanted[record.hash]))
    assert few.drain() == []


def normal(record):
    """Return a record with its accesses in one order: sums have them in that of their first launches."""
    return {**vars(record), "accesses": sorted(record.accesses, key=lambda a: (a.line, a.mnemonic, a.where))}
