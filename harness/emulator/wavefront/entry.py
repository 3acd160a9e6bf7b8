"""State of a kernel at entry: user and system SGPRs, hidden arguments, its dispatch packet.

Source: LLVM AMDGPUUsage, "Initial Kernel Execution State" (the order of the SGPRs), "Code Object V5 Metadata" (hidden
arguments), "Kernel Dispatch" (the packet). gfx942 and gfx950 have architected flat scratch: no SGPR holds the address
of the private segment.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from harness.emulator.wavefront.state import LANES

# The high halves of 64-bit flat addresses that select the local data share and the private segment: the values of
# src_shared_base and src_private_base, as the Linux driver sets them for gfx9.
SHARED_APERTURE, PRIVATE_APERTURE = 1 << 16, 2 << 16


_LANE_NUMBERS = np.arange(LANES)


class Dispatch(NamedTuple):
    """The facts of a launch that the kernel can see: sizes in work-groups, wavefronts and bytes."""

    grid: tuple[int, int, int]
    waves_per_group: int
    lds_bytes: int
    private_bytes: int
    kernarg: int
    hostcall: int = 0


def dispatch_packet(dispatch: Dispatch) -> np.ndarray:
    """Return the 64 bytes at dispatch_ptr. The address of the kernel's code and the completion signal are 0."""
    x, y, z = dispatch.grid
    threads = dispatch.waves_per_group * LANES
    dimensions = 3 if z > 1 else 2 if y > 1 else 1
    packet = struct.pack(
        "<6H5I4Q", 2 | 1 << 8, dimensions, threads, 1, 1, 0, x * threads, y, z, dispatch.private_bytes,
        dispatch.lds_bytes, 0, dispatch.kernarg, 0, 0,
    )  # fmt: skip
    memory: np.ndarray = np.frombuffer(packet, np.uint8).copy()
    return memory


def queue() -> np.ndarray:
    """Return the memory at queue_ptr, as far as compiled code reads it: the apertures, at 64 and 68."""
    words = np.zeros(64, np.uint32)
    words[16:18] = SHARED_APERTURE, PRIVATE_APERTURE
    memory: np.ndarray = words.view(np.uint8)
    return memory


def hidden_argument(kind: str, dispatch: Dispatch, queue_address: int) -> int:
    """Return the hidden argument ``hidden_<kind>``. A grid is whole work-groups, so there are no remainders.

    0 for features that Triton's kernels do not use: no printf buffer (code object V5 prints by hostcall), no device
    heap, no multi-grid launch, no device-side queue.
    """
    grid, threads = dispatch.grid, dispatch.waves_per_group * LANES
    return {
        "block_count_x": grid[0],
        "block_count_y": grid[1],
        "block_count_z": grid[2],
        "group_size_x": threads,
        "group_size_y": 1,
        "group_size_z": 1,
        "grid_dims": 3 if grid[2] > 1 else 2 if grid[1] > 1 else 1,
        "dynamic_lds_size": dispatch.lds_bytes,
        "private_base": PRIVATE_APERTURE,
        "shared_base": SHARED_APERTURE,
        "queue_ptr": queue_address,
        "hostcall_buffer": dispatch.hostcall,
    }.get(kind, 0)


def scalar_registers(
    directives: dict[str, int], dispatch: Dispatch, kernarg: np.ndarray, packet: int, queue_address: int
) -> list[int]:
    """Return the user SGPRs in order: those enabled by the directives, then the preloaded arguments.

    ``kernarg`` uint32; ``packet`` and ``queue_address`` are addresses.
    """
    registers: list[int] = []
    for name, words, value in (
        ("dispatch_ptr", 2, packet),
        ("queue_ptr", 2, queue_address),
        ("kernarg_segment_ptr", 2, dispatch.kernarg),
        ("dispatch_id", 2, 0),
        ("private_segment_size", 1, dispatch.private_bytes),
    ):
        if directives.get(f"user_sgpr_{name}"):
            registers += [value >> 32 * i & 0xFFFFFFFF for i in range(words)]
    return [*registers, *preloaded(directives, kernarg).tolist()]


def preloaded(directives: dict[str, int], kernarg: np.ndarray) -> np.ndarray:
    """Return the part of the arguments, uint32, that is in scalar registers at entry, the last ones of the user."""
    first = directives.get("user_sgpr_kernarg_preload_offset", 0)
    return kernarg[first : first + directives.get("user_sgpr_kernarg_preload_length", 0)]


def set_up(v: np.ndarray, s: np.ndarray, wave: np.ndarray, directives: dict[str, int], dispatch: Dispatch) -> None:
    """Write the values that differ between wavefronts: work-item ids and system SGPRs.

    ``wave`` int64[W] numbers the wavefronts of the launch. v0 packs a work-item's x, y and z ids, 10 bits each;
    Triton's work-groups are one-dimensional.
    """
    group, inner = np.divmod(wave, dispatch.waves_per_group)
    np.add((inner * LANES)[:, None], _LANE_NUMBERS, out=v[0, :, :, 0], casting="unsafe")
    x, y, _ = dispatch.grid
    values: tuple[Callable[[], np.ndarray], ...] = (
        lambda: group % x,
        lambda: group // x % y,
        lambda: group // (x * y),
        # The first wavefront of a work-group has bit 31 set; the low bits count the work-group's wavefronts.
        lambda: np.asarray(dispatch.waves_per_group | (inner == 0).astype(np.int64) << 31),
    )
    for register, value in zip(system_registers(directives), values, strict=True):
        if register >= 0:
            s[:, register] = value()


def system_registers(directives: dict[str, int]) -> list[int]:
    """Return the scalar registers of the work-group's x, y and z and of the wavefront's place in it; -1: not passed."""
    registers, register = [], directives["user_sgpr_count"]
    for name in ("workgroup_id_x", "workgroup_id_y", "workgroup_id_z", "workgroup_info"):
        passed = directives.get(f"system_sgpr_{name}", int(name == "workgroup_id_x"))
        registers.append(register if passed else -1)
        register += 1 if passed else 0
    return registers
