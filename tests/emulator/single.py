"""Execute single instructions, written as text, on chosen register values, without Triton.

Each is executed in native code too, with the same effects.

result = execute("v_add_u32_e32 v0, v1, v2", v={1: [1] * 64, 2: 2}) result.v(0)         # 64 values
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pytest

from harness.emulator.driver.schedule import Scheduler
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
from harness.emulator.program.decode import Program, decode
from harness.emulator.wavefront.state import LANES, MODE, Wavefronts
from harness.errors import HarnessError
from tests.emulator.native import Native, differences

ALL = (1 << 64) - 1
VCC, EXEC = 106, 126

_LISTING = """
	.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
probe:
{code}
.Lfunc_end0:
	.amdhsa_kernel probe
		.amdhsa_next_free_vgpr 128
		.amdhsa_accum_offset 64
		.amdhsa_user_sgpr_count 0
		.amdhsa_user_sgpr_kernarg_segment_ptr 0
		.amdhsa_private_segment_fixed_size {private}
		.amdhsa_float_denorm_mode_32 3
	.end_amdhsa_kernel
	.amdgpu_metadata
---
amdhsa.kernels:
  - .name: probe
...
	.end_amdgpu_metadata
"""


def listing(*lines: str, arch: str = "gfx942", private: int = 0) -> str:
    """Return a listing of a kernel ``probe``; a line that ends with a colon is a label. It has v0 to v63, a0 to a63."""
    return _LISTING.format(
        arch=arch, private=private, code="\n".join(line if line.endswith(":") else "\t" + line for line in lines)
    )


@lru_cache(maxsize=4096)
def program(*lines: str, arch: str = "gfx942", private: int = 0) -> Program:
    return decode(listing(*lines, arch=arch, private=private))


class Result:
    """Registers after the run, as Python integers."""

    def __init__(self, wavefronts: Wavefronts) -> None:
        self.wavefronts = wavefronts

    def v(self, register: int) -> list[int]:
        """Return a 32-bit vector register: 64 values per wavefront, one wavefront after the other."""
        return self.wavefronts.v[register >> 1][:, :, register & 1].reshape(-1).tolist()

    def v64(self, register: int) -> list[int]:
        return [low | high << 32 for low, high in zip(self.v(register), self.v(register + 1), strict=True)]

    def s(self, register: int) -> list[int]:
        """Return a scalar register: one value per wavefront."""
        return self.wavefronts.s[:, register].tolist()

    def s64(self, register: int) -> list[int]:
        return [low | high << 32 for low, high in zip(self.s(register), self.s(register + 1), strict=True)]

    @property
    def scc(self) -> list[bool]:
        return self.wavefronts.scc.tolist()

    @property
    def exec(self) -> list[int]:
        return self.s64(EXEC)

    @property
    def vcc(self) -> list[int]:
        return self.s64(VCC)


def execute(
    *lines: str,
    v=None,
    s=None,
    exec: int | None = ALL,  # noqa: A002 - the register's own name
    vcc: int | None = None,
    scc=None,
    waves: int = 1,
    lds: int = 0,
    memory=(),
    arch: str = "gfx942",
    private: int = 0,
    native: bool = True,
) -> Result:
    """Run the instructions in order, without branches, on ``waves`` wavefronts of one work-group.

    ``native``: run them in native code too, and compare; not for what depends on time, or on the order of wavefronts.

    ``v`` and ``s`` are register values: one value for all, or a list with a value for each lane (``v``) or wavefront
    (``s``). ``exec`` and ``vcc`` are lane masks. ``lds`` is the size of the local data share; ``memory`` lists the
    known allocations as (address, size, label); ``private`` is the size of each lane's private segment.
    """
    code = program(*lines, arch=arch, private=private)
    launch = Launch(code, (1, 1, 1), waves, lds, np.zeros(8, np.uint8), Allocations(), memory)
    chunk = launch.start(0, 1)
    wf = chunk.wavefronts
    wf.v[:] = 0
    wf.s[:, :MODE] = 0
    for register, value in (v or {}).items():
        wf.v[register >> 1][:, :, register & 1] = (
            np.asarray(value, np.uint32).reshape(-1, LANES) if np.ndim(value) else value
        )
    for register, value in (s or {}).items():
        wf.s[:, register] = np.asarray(value, np.uint32)
    for register, mask in ((EXEC, exec), (VCC, vcc)):
        if mask is not None:
            wf.s[:, register], wf.s[:, register + 1] = mask & 0xFFFFFFFF, mask >> 32
    if scc is not None:
        wf.scc[:] = scc
    wf.refresh_exec()

    def interpret() -> tuple[Wavefronts, np.ndarray]:
        with np.errstate(all="ignore"):
            for block in code.blocks:
                for segment in block.segments:
                    for step in segment.steps:
                        step(wf)
        return wf, chunk.lds

    if not native:
        return Result(interpret()[0])
    other = Native(Launch(code, (1, 1, 1), waves, lds, np.zeros(8, np.uint8), Allocations(), memory), wf)
    return Result(same_effects(other, interpret, memory))


def same_effects(
    native: Native, interpret: Callable[[], tuple[Wavefronts, np.ndarray]], memory: Sequence[tuple[int, int, str]]
) -> Wavefronts:
    """Run native code, undo its effects on ``memory``, and interpret; return the registers.

    Asserts that both end with the same registers, data share and memory, or raise the same fault.
    """
    before = [ctypes.string_at(address, size) for address, size, _ in memory]
    fault = None
    try:
        native.run()
    except (HarnessError, ValueError) as error:
        fault = error
    after = [ctypes.string_at(address, size) for address, size, _ in memory]
    for (address, size, _), data in zip(memory, before, strict=True):
        ctypes.memmove(address, data, size)
    try:
        wanted, share = interpret()
    except (HarnessError, ValueError) as error:
        if repr(fault) != repr(error):
            pytest.fail(f"native code raised {fault!r}, the interpreter {error!r}")
        raise
    assert fault is None, f"native code raised {fault!r}"
    got, native_share = native.result()
    assert not (different := differences(wanted, got)), f"interpreted and native registers differ: {different}"
    assert np.array_equal(share, native_share), "interpreted and native code wrote different data shares"
    for (address, size, label), data in zip(memory, after, strict=True):
        assert ctypes.string_at(address, size) == data, f"interpreted and native code wrote different data to {label}"
    return wanted


def run_kernel(*lines: str, groups: int = 1, waves: int = 1, lds: int = 0, memory=()) -> Launch:
    """Run a whole listing, branches and barriers included, on a grid of ``groups`` work-groups."""
    launch = Launch(program(*lines), (groups, 1, 1), waves, lds, np.zeros(8, np.uint8), Allocations(), memory)
    Scheduler([[launch]]).run()
    return launch


def flat(words: list[int], kind_bits: int) -> dict[int, list[int]]:
    """Return the registers (offset by 0 and 1) that hold the words."""
    if kind_bits == 64:
        return {0: [w & 0xFFFFFFFF for w in words], 1: [w >> 32 for w in words]}
    return {0: words}
