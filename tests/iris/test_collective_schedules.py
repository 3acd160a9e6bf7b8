"""The collectives that pass flags of their own, under schedules of all that the memory model allows; and with a fence
taken out of their machine code, which must show."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl

from benchmarks.one_process import World
from harness import emulator
from harness.emulator.driver.driver import EmulatedDriver
from harness.emulator.driver.explore import FAILS, HOLDS, explore
from harness.errors import KernelFault
from iris_under_test.ccl import Config
from iris_under_test.device.flagged import EPOCH_WORDS
from iris_under_test.device.mailboxes import BOX_WORDS, MAX_TAGS

SEEDS = {"spinlock": 12}
FEW = 3
"""Of locks it takes more schedules until one that is given back too early shows."""
LONG = {"spinlock", "two_shot_push", "messages"}
CALLS = 2
N = 200


@pytest.fixture(autouse=True)
def _no_driver_left():
    yield
    emulator.deactivate()


def _config(**fields):
    if fields.get("protocol") == "ll":  # words of 4 bytes for both wavefronts
        fields["block_size_n"] = 256
    return Config(**{"block_size_m": 1, "block_size_n": 128, "comm_sms": 2, "num_warps": 2, "num_xcds": 1, **fields})


def reduction(variant: str, size: int) -> Callable[[EmulatedDriver], None]:
    """Two calls one behind the other, on one workspace and output."""
    config = _config(all_reduce_variant=variant)

    def program(driver: EmulatedDriver) -> None:
        world = World(size, 1 << 18)
        outputs = world.tensors((1, N), torch.float16)
        inputs = [world.tensors((1, N), torch.float16) for _ in range(CALLS)]
        for turn, tensors in enumerate(inputs):
            for rank, tensor in enumerate(tensors):
                tensor.copy_(torch.arange(N).view(1, N) + 100 * rank + 300 * turn)

        def calls(rank):
            for tensors in inputs:
                mine = rank.cur_rank
                rank.ccl.all_reduce(outputs[mine], tensors[mine], async_op=True, config=config)

        world.run(calls)
        wanted = sum(inputs[-1])
        for rank, output in enumerate(outputs):
            assert torch.equal(output, wanted), f"rank {rank} has another sum"

    return program


@triton.jit
def _behind(kept_ptr, output_ptr, input_ptr, time_ptr, rounds, N, BLOCK: tl.constexpr):
    """Work that a stream may hold right after a call: it reads the output and negates the input, slowly."""
    places = tl.arange(0, BLOCK)
    mask = places < N
    tl.store(kept_ptr + places, tl.load(output_ptr + places, mask=mask), mask=mask)
    for _ in range(rounds):
        tl.atomic_add(time_ptr, 1, sem="relaxed", scope="sys")
    tl.store(input_ptr + places, -tl.load(input_ptr + places, mask=mask), mask=mask)


def in_stream(
    variant: str, in_place: bool = False, count: int = N, protocol: str = "simple"
) -> Callable[[EmulatedDriver], None]:
    """Two calls, and behind each a kernel of the rank's own, slow on one of them: a call's ends keep it in order."""
    config = _config(all_reduce_variant=variant, protocol=protocol)

    def program(driver: EmulatedDriver) -> None:
        world = World(2, 1 << 18)
        inputs = world.tensors((1, count), torch.float16)
        outputs = inputs if in_place else world.tensors((1, count), torch.float16)
        kept = [world.tensors((1, count), torch.float16) for _ in range(CALLS)]
        time = world.tensors((1,), torch.int32)
        for rank, tensor in enumerate(inputs):
            tensor.copy_(torch.arange(count).view(1, count) + 100 * rank)
        first = sum(inputs)
        wanted = [first, -first * 2 if in_place else -first]

        def calls(rank):
            mine = rank.cur_rank
            for held in kept:
                rank.ccl.all_reduce(outputs[mine], inputs[mine], async_op=True, config=config)
                _behind[(1,)](held[mine], outputs[mine], inputs[mine], time[mine], 60 * mine, count, 1024)

        world.run(calls)
        for call, held in enumerate(kept):
            for rank in (0, 1):
                assert torch.equal(held[rank], wanted[call]), f"rank {rank} saw another sum behind call {call}"

    return program


def messages() -> Callable[[EmulatedDriver], None]:
    """Both send to and receive from each other, twice with the same tag, 16 bytes at a time and the rest one by one.
    Behind a message what has come is read, and what was sent overwritten."""
    config = _config()

    def program(driver: EmulatedDriver) -> None:
        world = World(2, 1 << 18)
        boxes = world.tensors((2 * MAX_TAGS.value * BOX_WORDS.value,), torch.int64)
        where = torch.tensor([box.data_ptr() for box in boxes])
        targets = [world.tensors((1, N), torch.int16) for _ in range(CALLS)]
        sources = [[torch.arange(N).view(1, N).short() + 500 * (2 * k + r) for r in (0, 1)] for k in range(CALLS)]
        wanted = [[source.clone() for source in pair] for pair in sources]
        kept = [world.tensors((1, N), torch.int16) for _ in range(CALLS)]
        time = world.tensors((1,), torch.int32)

        def calls(rank):
            rank.mailboxes = lambda: where
            mine, other = rank.cur_rank, 1 - rank.cur_rank
            for source, target, held in zip(sources, targets, kept, strict=True):
                rank.ccl.sendrecv(source[mine], target[mine], other, other, async_op=True, config=config)
                _behind[(1,)](held[mine], target[mine], source[mine], time[mine], 60 * mine, N, 1024)

        world.run(calls)
        for k in range(CALLS):
            for rank in (0, 1):
                assert torch.equal(kept[k][rank], wanted[k][1 - rank]), f"message {k} to rank {rank} is another one"

    return program


PROGRAMS = {
    "ring": reduction("ring", 2),
    "spinlock": reduction("spinlock", 3),  # with two, no other member reduces into the same output
    "atomic": reduction("atomic", 2),
    "one_shot": in_stream("one_shot"),
    "one_shot in place": in_stream("one_shot", in_place=True),
    "one_shot, ll": in_stream("one_shot", protocol="ll"),
    "one_shot, ll, in place": in_stream("one_shot", in_place=True, protocol="ll", count=700),  # two epochs in a call
    "two_shot": in_stream("two_shot"),
    "two_shot_push": in_stream("two_shot_push", count=700),  # one of two programs has tiles twice
    "messages": messages(),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly) if name in LONG else name for name in PROGRAMS]
)
def test_they_hold_in_every_schedule(name):
    verdict = explore(PROGRAMS[name], SEEDS.get(name, FEW))
    assert verdict.outcome == HOLDS, verdict


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_races(name, seed):
    """Here all ranks are in one process: the suite's race mode sees those of one rank only."""
    PROGRAMS[name](emulator.activate(mode="race", choices=seed))


SLOW = "\n".join(["\ts_waitcnt vmcnt(63)"] * 200)
"""That waits for nothing, but each is where another wavefront may go on."""
LATE_CALLS = 3


def in_a_row(op: str) -> Callable[[EmulatedDriver], None]:
    """Calls one behind the other, of messages, rings or "ll". The ranks' kernels differ in their wavefronts, or in the
    language, so that one's can be made slow."""

    def program(driver: EmulatedDriver) -> None:
        world = World(2, 1 << 18)
        inputs, outputs = ([world.tensors((1, N), torch.int16) for _ in range(LATE_CALLS)] for _ in range(2))
        for turn, tensors in enumerate(inputs):
            for rank, tensor in enumerate(tensors):
                tensor.copy_(torch.arange(N).view(1, N) + 100 * rank + 300 * turn)

        def calls(rank):
            mine = rank.cur_rank
            if op == "ll":
                config = _config(all_reduce_variant="one_shot", protocol="ll", use_gluon=mine == 1)
            else:
                config = replace(_config(all_reduce_variant="ring"), num_warps=1 + mine)
            for source, target in zip(inputs, outputs, strict=True):
                if op != "messages":
                    rank.ccl.all_reduce(target[mine], source[mine], async_op=True, config=config)
                else:
                    rank.ccl.sendrecv(source[mine], target[mine], 1 - mine, 1 - mine, async_op=True, config=config)

        world.run(calls)
        for source, target in zip(inputs, outputs, strict=True):
            for rank in (0, 1):
                assert torch.equal(target[rank], source[1 - rank] if op == "messages" else sum(source))

    return program


@pytest.mark.nightly
@pytest.mark.parametrize("op", ["messages", "ring", "ll"])
def test_they_hold_where_one_signal_comes_late(op):
    """Each write to a flag of one rank, one after another, is made to come long after all that stands before it: what
    may only be written before a peer goes on shows then, since the peer has gone on. So is, of "ll", each look at what
    a peer has written, which that one may only write over when it has been seen."""
    program, listings = in_a_row(op), {}
    driver = emulator.activate()
    driver.rewrite = lambda kernel, listing: listings.setdefault(listing, listing)
    program(driver)
    places = [
        (listing, number)
        for listing in listings
        for number, line in enumerate(listing.split("\n"))
        if line.strip().startswith("global_atomic_swap") or re.match(r"\s*global_\w+_dwordx2 .* sc0 sc1", line)
    ]
    assert len(places) >= 8, f"{len(places)} writes to flags, and looks"
    for slow, number in places:

        def late(kernel, listing, slow=slow, number=number):
            lines = listing.split("\n")
            return "\n".join([*lines[:number], SLOW, *lines[number:]]) if listing == slow else listing

        driver = emulator.activate(mode="race", choices=0)
        driver.rewrite = late
        program(driver)


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_they_hold_where_wavefronts_lag(name):
    """The second wavefront of each work-group begins long after the first, which may be through with the kernel then,
    and in the next one but for what makes it wait for its sibling."""
    lag = f"\tv_cmp_gt_u32 vcc, 64, v0\n\ts_cbranch_vccnz 9f\n{SLOW}\n9:"

    driver = emulator.activate(mode="race", choices=0)
    driver.rewrite = lambda kernel, listing: _entered(listing, lag)
    PROGRAMS[name](driver)


# Without what drops old lines, atomics and messages come out right: within a kernel they read nothing twice. Nor does
# "one_shot", which writes only what is its own: the ends of the kernels are all that it needs.
@pytest.mark.parametrize(
    ("name", "fence"),
    [
        *((name, "buffer_wbl2") for name in PROGRAMS if "one_shot" not in name),
        *((name, "buffer_inv") for name in ("ring", "spinlock", "two_shot_push")),
    ],
)
def test_a_fence_that_is_left_out_shows(name, fence):
    def without(driver: EmulatedDriver) -> None:
        driver.rewrite = lambda kernel, listing: _without(listing, fence)
        PROGRAMS[name](driver)

    verdict = explore(without, 30)
    assert verdict.outcome == FAILS, verdict


@pytest.mark.parametrize("name", PROGRAMS)
def test_fences_are_of_all_devices_and_waited_for(name):
    """Faults that few schedules show: a write-back without a wait, a flag or fence of one device's scope, a cached
    poll.
    """
    listings: list[str] = []
    driver = emulator.activate()
    driver.rewrite = lambda kernel, listing: listings.append(listing) or listing
    PROGRAMS[name](driver)
    code = [line.split(";")[0].split() for listing in listings for line in listing.split("\n")]
    code = [words for words in code if words and words[0].islower() and not words[0].endswith(":")]
    for words, behind in itertools.pairwise(code):
        reported = " ".join([*words, "/", *behind])
        if words[0] in ("buffer_wbl2", "buffer_inv"):
            assert words[1:] == ["sc0", "sc1"], reported
        if words[0].startswith("global_atomic"):
            assert words[-1] == "sc1", reported
        if "ll" in name and "dwordx2" in words[0] and words[0].startswith("global"):
            assert words[-2:] == ["sc0", "sc1"], reported
        if words[0] == "buffer_wbl2":
            assert behind[:2] == ["s_waitcnt", "vmcnt(0)"], reported
    polls = [words for words in code if words[0].startswith("global_load_dword") and words[-2:] == ["sc0", "sc1"]]
    assert polls, "no poll goes by the caches"


def test_words_that_nobody_has_written_are_not_taken():
    """Of "ll", where epochs wrap: slots are zero at first."""

    def program(driver: EmulatedDriver) -> None:
        world = World(2, 1 << 18)
        inputs, outputs = (world.tensors((1, N), torch.float16) for _ in range(2))
        for rank, tensor in enumerate(inputs):
            tensor.fill_(1 + rank)
            world.ranks[rank].members(None).slots.own[: 4 * EPOCH_WORDS.value].view(torch.int32).fill_(-1)

        def calls(rank):
            mine = rank.cur_rank
            config = _config(all_reduce_variant="one_shot", protocol="ll", use_gluon=mine == 1)
            rank.ccl.all_reduce(outputs[mine], inputs[mine], async_op=True, config=config)

        world.run(calls)
        assert all((output == 3).all() for output in outputs), outputs

    def late(kernel: str, listing: str) -> str:
        return _entered(listing, SLOW) if "gluon" in listing else listing

    driver = emulator.activate(mode="race", choices=0)
    driver.rewrite = late
    program(driver)


def test_words_that_a_cache_may_keep_show():
    """Of "ll". That a poll is not answered by a cache, which few schedules show, is seen to above."""

    def kept(driver: EmulatedDriver) -> None:
        driver.rewrite = lambda kernel, listing: re.sub("(global_store_dwordx2 .*) sc0 sc1", r"\1", listing)
        PROGRAMS["one_shot, ll"](driver)

    verdict = explore(kept, FEW)
    assert verdict.outcome == FAILS, verdict


def test_a_message_of_one_tag_is_not_taken_for_one_of_another():
    emulator.activate(mode="check")
    world = World(2, 1 << 18)
    boxes = world.tensors((2 * MAX_TAGS.value * BOX_WORDS.value,), torch.int64)
    where = torch.tensor([box.data_ptr() for box in boxes])
    tensors = world.tensors((1, N), torch.int16)

    def call(rank):
        rank.mailboxes = lambda: where
        mine = tensors[rank.cur_rank]
        if rank.cur_rank == 0:
            rank.ccl.send(mine, 1, tag=1, async_op=True, config=_config())
        else:
            rank.ccl.recv(mine, 0, tag=2, async_op=True, config=_config())

    with pytest.raises(KernelFault, match="each polls memory that nothing will change"):
        world.run(call)


def _entered(listing: str, code: str) -> str:
    """With ``code`` where the kernel begins."""
    begin = re.search(r"\.p2align\s+8\n(?:.*\n)*?\.LBB0_0:.*\n", listing)
    assert begin, "where does the kernel begin?"
    return f"{listing[: begin.end()]}{code}\n{listing[begin.end() :]}"


def _without(listing: str, fence: str) -> str:
    kept = [line for line in listing.split("\n") if not line.strip().startswith(fence)]
    assert len(kept) < listing.count("\n") + 1, f"the kernel has no {fence}"
    return "\n".join(kept)
