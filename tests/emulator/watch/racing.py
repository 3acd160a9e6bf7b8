"""Programs for mode ``race``, a few instructions per wavefront, and a runner that returns the race.

    found = race([(0, lines(store("x", 1))), (1, lines(load("x", 8)))])

Threads are (rank, lines) as in ``litmus``: threads of one rank are work-groups of one launch. The lines run in the
first wavefront of a work-group; those of a thread that uses s3, the wavefront's number, run in all ``waves``.
"""

from __future__ import annotations

import itertools

import numpy as np

from harness.emulator.driver import single
from harness.emulator.driver.interleaved import scheduler_of
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
from harness.emulator.faults import DataRace
from harness.emulator.listing.parser import parse
from harness.emulator.watch import Seeded
from harness.emulator.watch.race import Race
from tests.emulator.watch import litmus

WAIT = "s_waitcnt vmcnt(0)"
_fresh = itertools.count()


def until(word: str, value: int, bits: str = "sc0 sc1") -> list[str]:
    """Poll ``word`` with loads until it holds ``value``."""
    label = f".LU{next(_fresh)}"
    load = f"global_load_dword v8, v0, {{{word}}} {bits}".strip()
    return [f"{label}:", load, WAIT, "v_readfirstlane_b32 s13, v8", f"s_cmp_lg_u32 s13, {value}",
            f"s_cbranch_scc1 {label}"]  # fmt: skip


def take(word: str, free: int, taken: int, bits: str = "sc0 sc1") -> list[str]:
    """Compare-and-swap ``word`` from ``free`` to ``taken`` until that succeeds."""
    label = f".LT{next(_fresh)}"
    return [f"v_mov_b32_e32 v2, {taken}", f"v_mov_b32_e32 v3, {free}", f"{label}:",
            f"global_atomic_cmpswap v8, v0, v[2:3], {{{word}}} {bits}", WAIT, "v_readfirstlane_b32 s13, v8",
            f"s_cmp_lg_u32 s13, {free}", f"s_cbranch_scc1 {label}"]  # fmt: skip


def only(wave: int, *parts) -> list[str]:
    """Return lines for one wavefront of a work-group."""
    label = f".LO{next(_fresh)}"
    return [f"s_cmp_lg_u32 s3, {wave}", f"s_cbranch_scc1 {label}", *litmus.lines(*parts), f"{label}:"]


def race(
    threads,
    seed: int | None = 0,
    waves: int = 1,
    watch: Race | None = None,
    y: int = 0,
    peer: int | None = None,
    **options,
) -> DataRace | None:
    """Run the threads with one seed, interpreted and as native code; return the race, or None, which both find.

    ``y`` is that word's first value; with ``peer`` the words are memory of that rank, in another process.
    """
    watch = watch or Race(None if seed is None else Seeded(seed), **options)
    raised = _race(threads, watch, waves, y, peer, native=False)
    if watch.choices is not None:  # otherwise the mode is interpreted
        other = Race(Seeded(seed), **options)
        assert outcome(_race(threads, other, waves, y, peer, native=True), other) == outcome(raised, watch)
    return raised


def outcome(race: DataRace | None, watch: Race) -> list[object]:
    """Return all that a run has shown."""
    where = {} if race is None else {name: value for name, value in race.where.items() if name != "address"}
    return [str(race), where, watch.unspecified, watch.replicated, watch.choices and watch.choices.decisions]


def _race(threads, watch: Race, waves: int, y: int, peer: int | None, native: bool) -> DataRace | None:
    memory = np.zeros(4096, np.uint32)
    memory = memory[-memory.ctypes.data % 1024 >> 2 :][:2048]  # the same bytes of a page in each run
    memory[256] = y
    allocations = Allocations()
    allocations.register(memory.ctypes.data, memory.nbytes, "words", peer)
    streams: dict[int, list[Launch]] = {}
    kernargs = []
    for rank in sorted({rank for rank, _ in threads}):
        kernargs.append(memory.ctypes.data + 1024 * np.arange(3, dtype=np.uint64))
        streams[rank] = [launch(rank, threads, kernargs[-1], allocations, watch, waves, native)]
    try:
        scheduler_of(list(streams.values()), watch, peer is None, None).run()
    except DataRace as raised:
        return raised
    return None


def launch(
    rank: int,
    threads,
    kernarg: np.ndarray,
    allocations: Allocations,
    watch: Race,
    waves: int = 1,
    native: bool = False,
) -> Launch:
    """Return the launch of this rank's threads. ``kernarg``: the addresses of the words, which the caller keeps."""
    members = [lines for r, lines in threads if r == rank]
    code = ["s_load_dwordx4 s[4:7], s[0:1], 0x0", "s_load_dwordx2 s[8:9], s[0:1], 0x10", "s_waitcnt lgkmcnt(0)",
            "v_readfirstlane_b32 s12, v0", "s_lshr_b32 s3, s12, 6", "s_mov_b64 exec, 1",
            "v_mov_b32_e32 v0, 0"]  # fmt: skip
    for n, lines in enumerate(members):
        code += [f"s_cmp_lg_u32 s2, {n}", f"s_cbranch_scc1 .L{n}"]
        if not any("s3" in line for line in lines):
            code += ["s_cmp_lg_u32 s3, 0", f"s_cbranch_scc1 .L{n}"]
        code += [line.format(x="s[4:5]", y="s[6:7]", z="s[8:9]") for line in lines] + ["s_endpgm", f".L{n}:"]
    code += ["s_endpgm"]
    body = "\n".join(c if c.endswith(":") else "\t" + c for c in code)
    program = single.decode(parse(litmus._LISTING.format(name=f"rank{rank}", code=body)), watch)
    if native:
        program.heat.use()
    return Launch(program, (len(members), 1, 1), waves, 0, kernarg.view(np.uint8), allocations, (), rank)
