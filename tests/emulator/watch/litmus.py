"""Litmus tests: a few machine instructions per thread, run under the adversary with many seeds.

    outcomes(["store x 1", "store y 1"], ["load y 0", "load x 1"])

Threads are wavefronts of their own launch. A thread is (rank, lines); words between braces stand for their addresses:
``{x}`` and ``{y}`` (4-byte words in lines of their own). Loads go to v8, v9, ... and are the outcome, in program order.
s2 is the number of the work-group, v0 is 0, one lane is active. A thread that uses s3, its wavefront's number, runs in
all ``waves`` of its work-group, other threads in the first wavefront.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.driver import single
from harness.emulator.driver.interleaved import scheduler_of
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
from harness.emulator.listing.parser import parse
from harness.emulator.watch import Choices, Seeded
from harness.emulator.watch.weak import Weak

WORDS = ("x", "y", "z")
RELEASE = ("buffer_wbl2 sc0 sc1", "s_waitcnt vmcnt(0)")
ACQUIRE = ("s_waitcnt vmcnt(0)", "buffer_inv sc0 sc1")

_LISTING = """
	.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
{name}:
{code}
.Lfunc_end0:
	.amdhsa_kernel {name}
		.amdhsa_next_free_vgpr 32
		.amdhsa_accum_offset 32
		.amdhsa_user_sgpr_count 2
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
	.end_amdhsa_kernel
	.amdgpu_metadata
---
amdhsa.kernels:
  - .name: {name}
...
	.end_amdgpu_metadata
"""


def store(word: str, value: int, bits: str = "") -> list[str]:
    return [f"v_mov_b32_e32 v1, {value}", f"global_store_dword v0, v1, {{{word}}} {bits}".strip()]


def load(word: str, register: int, bits: str = "") -> list[str]:
    return [f"global_load_dword v{register}, v0, {{{word}}} {bits}".strip()]


def swap(word: str, value: int) -> list[str]:
    return [f"v_mov_b32_e32 v1, {value}", f"global_atomic_swap v0, v1, {{{word}}} sc1"]


def add(word: str, register: int, bits: str = "sc0 sc1") -> list[str]:
    return ["v_mov_b32_e32 v1, 1", f"global_atomic_add v{register}, v0, v1, {{{word}}} {bits}"]


def lines(*parts) -> list[str]:
    """Flatten instructions and lists of them to one list."""
    return [line for part in parts for line in ([part] if isinstance(part, str) else part)]


def run(
    threads, loads: list[list[int]], choices: Choices | int, waves: int = 1, **options
) -> tuple[tuple[int, ...], dict[str, int]]:
    """Run one schedule; return each thread's registers ``loads`` at the end, thread by thread, and the final words.

    ``threads`` are (rank, lines). Threads of one rank are work-groups of one launch, in their order.
    """
    result, words, *_ = run_watched(threads, loads, choices, waves, **options)
    return result, words


def run_watched(
    threads, loads: list[list[int]], choices: Choices | int, waves: int = 1, native: bool = False, **options
) -> tuple[tuple[int, ...], dict[str, int], Weak, list[Launch]]:
    """Run one schedule like ``run``, as ``native`` code or interpreted; return also the mode and the launches."""
    memory = np.zeros(4096, np.uint32)
    out = np.zeros((len(threads), 16), np.uint32)
    allocations = Allocations()
    allocations.register(memory.ctypes.data, memory.nbytes, "words")
    allocations.register(out.ctypes.data, out.nbytes, "out")
    words = {w: memory.ctypes.data + 1024 * i for i, w in enumerate(WORDS)}
    watch = Weak(Seeded(choices) if isinstance(choices, int) else choices, **options)
    streams: dict[int, list] = {}
    by_rank: dict[int, list[int]] = {}
    for i, (rank, _) in enumerate(threads):
        by_rank.setdefault(rank, []).append(i)
    kernargs = []
    for rank, members in by_rank.items():
        code = [
            "s_load_dwordx4 s[4:7], s[0:1], 0x0",
            "s_load_dwordx4 s[8:11], s[0:1], 0x10",
            "s_waitcnt lgkmcnt(0)",
            "v_readfirstlane_b32 s12, v0",
            "s_lshr_b32 s3, s12, 6",
            "s_mov_b64 exec, 1",
            "v_mov_b32_e32 v0, 0",
        ]
        names = {"x": "s[4:5]", "y": "s[6:7]", "z": "s[8:9]"}
        for n, i in enumerate(members):
            code += [f"s_cmp_lg_u32 s2, {n}", f"s_cbranch_scc1 .L{n}"]
            if not any("s3" in line for line in threads[i][1]):
                code += ["s_cmp_lg_u32 s3, 0", f"s_cbranch_scc1 .L{n}"]
            code += [line.format(**names) for line in threads[i][1]]
            code += ["s_waitcnt vmcnt(0)"]
            for k, register in enumerate(loads[i]):
                code += [f"v_mov_b32_e32 v2, {64 * i + 4 * k}", f"global_store_dword v2, v{register}, s[10:11] sc0 sc1"]
            code += ["s_endpgm", f".L{n}:"]
        code += ["s_endpgm"]
        text = _LISTING.format(name=f"rank{rank}", code="\n".join(c if c.endswith(":") else "\t" + c for c in code))
        kernarg = np.array([words["x"], words["y"], words["z"], out.ctypes.data], np.uint64).view(np.uint8)
        kernargs.append(kernarg)
        program = single.decode(parse(text), watch)
        if native:
            program.heat.use()
        launch = Launch(program, (len(members), 1, 1), waves, 0, kernarg, allocations, (), rank)
        streams.setdefault(rank, []).append(launch)
    scheduler_of(list(streams.values()), watch, closed=True, limit=None).run()
    result = tuple(int(out[i, k]) for i in range(len(threads)) for k in range(len(loads[i])))
    words = {w: int(memory[256 * i]) for i, w in enumerate(WORDS)}
    return result, words, watch, [launch for stream in streams.values() for launch in stream]


def outcomes(threads, loads, seeds: int = 300, **options) -> set[tuple[int, ...]]:
    """Return the outcomes of ``seeds`` schedules."""
    return {run(threads, loads, seed, **options)[0] for seed in range(seeds)}
