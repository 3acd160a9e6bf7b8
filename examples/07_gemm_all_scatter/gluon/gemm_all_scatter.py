"""GEMM all-scatter: every rank multiplies A by its columns of B, and all ranks get all of C, in one kernel.

    gemm = GemmAllScatter(ctx, Tiling(block_m=128, block_n=256))
    gemm(c, a, b)     # c: (M, ranks * n) on the heap; a: (M, K), the same on every rank; b: (K, n), this rank's columns

| a, b | products and sums | c |
| --- | --- | --- |
| float16, bfloat16 | exact products, summed in float32 | as a, rounded once |
| float32 | AMD: float32; Hopper: a and b cut to TF32 (10 bits), summed in float32 | float32 |
| int8 | exact, summed in int32 | int32 |

Everything that depends on the target is chosen in ``_hopper`` and ``_cdna`` below: the kernel, its layouts, its warps.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

import iris_under_test as iris
from iris_under_test.device.signals import MAX_PROGRAMS
from iris_under_test.gluon import IrisDeviceCtx

from .cdna import cdna_kernel
from .hopper import hopper_kernel

__all__ = ["GemmAllScatter", "Tiling", "suited_columns"]

# Element type of A and B: its name in Gluon, the type of the sums, the type of C.
_TYPES = {
    torch.float16: (gl.float16, torch.float32, torch.float16),
    torch.bfloat16: (gl.bfloat16, torch.float32, torch.bfloat16),
    torch.float32: (gl.float32, torch.float32, torch.float32),
    torch.int8: (gl.int8, torch.int32, torch.int32),
}
_CDNA_LDS = {"gfx942": 64 << 10, "gfx950": 160 << 10}
# Shared memory of a block on sm_90 (CUDA programming guide, compute capability 9.0), less Triton's own use.
_HOPPER_SHARED = (227 << 10) - 2048
_XCDS = 8
_LANES_ALONG_K = 4  # of an instruction with 16 x 16 sums: 64 lanes hold 16 rows
_MOST_LAUNCHES = 8


@dataclasses.dataclass(frozen=True)
class Tiling:
    """Division of C into blocks. Block sizes are powers of two, in elements; K is processed ``block_k`` at a time.

    ``group_m``: rows of tiles per group of the tile order. ``programs``: largest number of work-groups; never more than
    the device has compute units. ``fewest_steps``: tiles that do not fill a whole round of the programs are split along
    K into pieces of at least this many blocks; 0: never.
    """

    block_m: int = 256
    block_n: int = 64
    block_k: int = 64
    group_m: int = 6
    programs: int = 304
    fewest_steps: int = 16

    def __post_init__(self) -> None:
        for name, least in (("block_m", 32), ("block_n", 32), ("block_k", 32)):
            value = getattr(self, name)
            if value < least or value & (value - 1):
                raise ValueError(f"{name} must be a power of two, at least {least}, got {value}")
        for name, least in (("group_m", 1), ("programs", 1), ("fewest_steps", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")

    def most_programs(self, units: int) -> int:
        """Return the number of programs for a product that is large enough, on a device with ``units`` compute
        units.
        """
        return min(self.programs, units, MAX_PROGRAMS.value)

    def schedule(self, rows: int, columns: int, depth: int, units: int) -> tuple[int, int]:
        """Return (programs, pieces of a split tile) for a product on a device with ``units`` compute units.

        Example: blocks of 256 x 128 x 64, a product of 8192 x 1152 x 36864, 132 units: 288 tiles are two rounds of 132
        and 24 tiles, of which each is split into 5 pieces.
        """
        programs = self.most_programs(units)
        tiles = triton.cdiv(rows, self.block_m) * triton.cdiv(columns, self.block_n)
        steps = triton.cdiv(depth, self.block_k)
        left = tiles % programs
        pieces = 1
        if left and self.fewest_steps:
            pieces = max(1, min(programs // left, steps // self.fewest_steps))
        return (programs if tiles >= programs else left * pieces), pieces


_Plan = tuple[Any, dict[str, Any], bool, dict[str, Any], int]
"""A kernel, its operands, whether these are copies of the caller's, its constants, its warps."""


def suited_columns(dtype: torch.dtype) -> int:
    """Return the columns of a tile with 256 rows and blocks of 64 of K, for A and B of ``dtype``.

    CDNA's local memory has no room for more than 64; neither has Hopper's shared memory with other types.
    """
    hopper = triton.runtime.driver.active.get_current_target().backend == "cuda"
    return 128 if hopper and dtype.itemsize == 2 else 64


class GemmAllScatter:
    """The operation on one instance of Iris. Keeps the memory of split tiles, and the tensors of the last few calls.

    Stream-ordered: a call enqueues one kernel on the current stream. When that kernel has ended on a rank, that rank's
    ``c`` is complete and no rank reads or writes its tensors any more. Every rank of the world makes the same calls, on
    one stream or ordered by events. Capturable in a graph after a first call of the same shape.

    ``tiling``: see ``Tiling``. ``members``: the world's, see ``Iris.members``.
    """

    def __init__(self, ctx: iris.Iris, tiling: Tiling | None = None) -> None:
        self.ctx = ctx
        self.tiling = tiling or Tiling()
        self.members = ctx.members(None)
        self._counters = torch.zeros(MAX_PROGRAMS.value, dtype=torch.int32, device=ctx.get_device())
        self._partials: dict[tuple[torch.dtype, bool], torch.Tensor] = {}
        # What has been launched, with its tensors: looking up the compiled kernel and describing tensors to TMA takes
        # longer than many a product.
        self._launches: dict[tuple[Any, ...], tuple[Any, tuple[int, int, int], list[Any]]] = {}

    def __call__(
        self, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, local: bool = False, traced: bool = False
    ) -> Any:
        """``c[:, r * n : (r + 1) * n] = a @ b of rank r`` on every rank; returns the compiled kernel.

        ``a``: (M, K). ``b``: (K, n). ``c``: (M, ranks * n), on the heap at the same place on every rank, elements of a
        row side by side. ``a`` and ``b`` may have any strides; Hopper's TMA wants K contiguous (in ``b`` of two bytes K
        or n) and rows that begin at multiples of 16 bytes: what is not so is copied first. ``local``: nothing is sent
        to other ranks, whose columns stay as they are; for measuring. ``traced``: the kernel records when it sends
        tiles, if ``ctx.tracing`` is enabled.

        Raises:
            ValueError: shapes that do not fit, another dtype, ``c`` off the heap or with other strides, or blocks that
                the target's local memory cannot hold. Raised before the launch; the others' devices then wait.
        """
        self._check(c, a, b)
        if not c.numel():
            return None
        try:
            return self.launch(c, a, b, local=local, traced=traced)
        except triton.OutOfResources as error:  # what the compiler itself puts there, it alone knows
            raise ValueError(f"{self.tiling} is too large: {error}") from error

    def launch(self, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, local: bool, traced: bool) -> Any:
        """Enqueue the kernel; the arguments have been checked."""
        context = self.ctx.get_device_context()
        facts = [(t.data_ptr(), t.shape, t.stride(), t.dtype) for t in (context, c, a, b)]
        key = (local, traced, *facts)
        if key in self._launches:
            compiled, grid, arguments = self._launches[key]
            compiled[grid](*arguments)
            return compiled
        (rows, depth), columns = a.shape, b.shape[1]
        programs, pieces = self.tiling.schedule(rows, columns, depth, self.ctx.get_cu_count())
        choose = _hopper if triton.runtime.driver.active.get_current_target().backend == "cuda" else _cdna
        kernel, operands, copied, constants, warps = choose(self.tiling, c, a, b)
        values = {
            "IrisDeviceCtx": IrisDeviceCtx,
            "context_tensor": context,
            "pads": self.members.pads,
            "c": c,
            "partials": self._memory(_TYPES[a.dtype][1], pieces > 1),
            "counters": self._counters,
            "M": rows,
            "N": columns,
            "K": depth,
            "stride_cm": c.stride(0),
            "split": pieces,
            "WORLD_SIZE": self.members.size,
            "BLOCK_M": self.tiling.block_m,
            "BLOCK_N": self.tiling.block_n,
            "BLOCK_K": self.tiling.block_k,
            "GROUP_M": self.tiling.group_m,
            "LOCAL": local,
            "TRACED": traced,
            **operands,
            **constants,
        }
        arguments = [values.pop(name) for name in kernel.arg_names]
        assert not values, values  # sanity check
        compiled = kernel[(programs,)](*arguments, num_warps=warps)
        if not copied:
            if len(self._launches) == _MOST_LAUNCHES:
                del self._launches[next(iter(self._launches))]
            self._launches[key] = compiled, (programs, 1, 1), arguments
        return compiled

    def _memory(self, dtype: torch.dtype, split: bool) -> torch.Tensor:
        """Room for a tile of sums for each program that there can be, whatever the product: it must stay where it is
        for graphs that were captured. A word where tiles are not split."""
        if (dtype, split) not in self._partials:
            tiles = self.tiling.most_programs(self.ctx.get_cu_count()) if split else 0
            size = max(4, tiles * self.tiling.block_m * self.tiling.block_n)
            self._partials[dtype, split] = torch.empty(size, dtype=dtype, device=self.ctx.get_device())
        return self._partials[dtype, split]

    def _check(self, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
        if a.dtype not in _TYPES or b.dtype != a.dtype or c.dtype != _TYPES[a.dtype][2]:
            raise ValueError(f"no product of {a.dtype} and {b.dtype} into {c.dtype}: see the table of the module")
        if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0] or not a.shape[1]:
            raise ValueError(f"a must be (M, K) and b (K, n) with K > 0, got {tuple(a.shape)} and {tuple(b.shape)}")
        wanted = (a.shape[0], self.members.size * b.shape[1])
        if tuple(c.shape) != wanted or c.stride(1) != 1 or c.stride(0) < wanted[1]:
            raise ValueError(f"c must be {wanted} with rows of neighbours, got {tuple(c.shape)}, strides {c.stride()}")
        if not self.ctx.is_symmetric(c):
            raise ValueError(f"c must be on the symmetric heap, got a tensor at {c.data_ptr():#x}")


def _hopper(tiling: Tiling, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> _Plan:
    """The kernel for sm_90, its operands, layouts and the warps that multiply."""
    m, n, k = tiling.block_m, tiling.block_n, tiling.block_k
    if m < 64:
        raise ValueError(f"block_m must be at least 64 on this target, got {m}")
    size = a.element_size()
    transposed = size != 2 or b.stride(0) == 1
    left = _readable_by_tma(a)
    right = _readable_by_tma(b.T if transposed else b)

    stage, tile = (m + n) * k * size, m * n * c.element_size()
    tiles_of_c = 2 if (_HOPPER_SHARED - 2 * tile) // stage >= 4 else 1
    stages = min((_HOPPER_SHARED - tiles_of_c * tile) // stage, 8)
    if stages < 2:
        raise ValueError(f"blocks of {m} x {n} x {k} need {2 * stage + tile:,} bytes, there are {_HOPPER_SHARED:,}")

    warps = 8 if m >= 128 else 4
    width = 16 // c.element_size()
    constants = {
        "B_TRANSPOSED": transposed,
        "STAGES": stages,
        "C_TILES": tiles_of_c,
        "ROWS": 8,
        # Hopper's instruction: 64 rows by four warps, as many columns as there are, 32 bytes of K.
        "SUMS": gl.NVMMADistributedLayout([3, 0], [warps, 1], [16, min(n, 256), 32 // size]),
        "C_SHARED": gl.SwizzledSharedLayout(width, 1, min(8, n // width), [1, 0]),
        "SENT": _rows_of_16_bytes(n, width, lanes=32, warps=2),
    }
    operands = {"a": _descriptor(left, [m, k]), "b": _descriptor(right, [n, k] if transposed else [k, n])}
    copied = (left.data_ptr(), right.data_ptr()) != (a.data_ptr(), b.data_ptr())
    return hopper_kernel, operands, copied, constants, warps


def _readable_by_tma(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, or a copy of it whose rows are contiguous and begin at multiples of 16 bytes."""
    size = tensor.element_size()
    if tensor.stride(1) == 1 and tensor.stride(0) * size % 16 == 0 and tensor.data_ptr() % 16 == 0:
        return tensor
    rows, columns = tensor.shape
    padded = tensor.new_empty((rows, triton.cdiv(columns * size, 16) * 16 // size))
    return padded[:, :columns].copy_(tensor)


def _descriptor(tensor: torch.Tensor, block: list[int]) -> TensorDescriptor:
    layout = gl.NVMMASharedLayout.get_default_for(block, _TYPES[tensor.dtype][0])
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block, layout)


def _cdna(tiling: Tiling, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> _Plan:
    """The kernel for gfx942 and gfx950, its operands, layouts and warps."""
    arch = triton.runtime.driver.active.get_current_target().arch
    m, n, k = tiling.block_m, tiling.block_n, tiling.block_k
    size = a.element_size()
    if (m + n) * k * size > _CDNA_LDS[arch]:
        raise ValueError(f"blocks of {m} x {n} x {k} need {(m + n) * k * size:,} bytes, {arch} has {_CDNA_LDS[arch]:,}")
    warps = 8 if m * n > 256 * 128 else 4
    over_m = over_n = 1
    while over_m * over_n < warps:
        if m // over_m >= n // over_n:
            over_m *= 2
        else:
            over_n *= 2
    # 16 x 16 sums by an instruction; gfx950 has instructions of twice gfx942's K, except for float32.
    deep = 4 if size == 4 else min(k, (16 if arch == "gfx942" else 32) * 2 // size)
    width = 16 // size
    sent = 16 // c.element_size()
    a_order = [1, 0] if a.stride(1) == 1 else [0, 1]
    b_order = [0, 1] if b.stride(0) == 1 else [1, 0]
    constants = {
        "NUM_XCDS": _XCDS,
        "SUMS": gl.amd.AMDMFMALayout(3 if arch == "gfx942" else 4, [16, 16, deep], True, [over_m, over_n]),
        # What a lane reads of local memory at a time: 16 bytes of K, or its share of a block that is less deep.
        "WIDTH": min(width, k // _LANES_ALONG_K),
        "A_LOADED": _ordered(m, k, width, a_order, 64, warps),
        "A_SHARED": _swizzled(m, k, width, a_order),
        "B_LOADED": _ordered(k, n, width, b_order, 64, warps),
        "B_SHARED": _swizzled(k, n, width, b_order),
        "SENT": _rows_of_16_bytes(n, sent, lanes=64, warps=warps),
        "ROWS": min(m, max(1, 64 * warps * sent // n)),
    }
    strides = dict(zip(("stride_am", "stride_ak", "stride_bk", "stride_bn"), (*a.stride(), *b.stride()), strict=True))
    return cdna_kernel, {"a": a, "b": b, **strides}, False, constants, warps


def _ordered(rows: int, columns: int, width: int, order: list[int], lanes: int, warps: int) -> gl.BlockedLayout:
    """Return the layout where a lane holds ``width`` neighbours along ``order[0]``, and the next lane the next ones."""
    if order[0] == 1:
        return _rows_of_16_bytes(columns, width, lanes, warps)
    across = _rows_of_16_bytes(rows, width, lanes, warps)
    return gl.BlockedLayout(across.size_per_thread[::-1], across.threads_per_warp[::-1], [1, warps], order)


def _rows_of_16_bytes(columns: int, width: int, lanes: int, warps: int) -> gl.BlockedLayout:
    along = min(lanes, max(1, columns // width))
    return gl.BlockedLayout([1, min(width, columns)], [lanes // along, along], [warps, 1], [1, 0])


def _swizzled(rows: int, columns: int, width: int, order: list[int]) -> gl.SwizzledSharedLayout:
    """Return a layout that permutes the vectors of a row from row to row, so that lanes of a column access different
    banks.
    """
    vectors = (columns if order[0] == 1 else rows) // width
    return gl.SwizzledSharedLayout(width, max(1, 8 // vectors), max(1, min(8, vectors)), order)
