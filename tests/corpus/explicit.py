"""Gluon kernels, where one places every element: layouts, local memory, matrix cores, buffers, async copies."""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from tests.corpus.case import case


@gluon.jit
def through_local_memory(x, out, M: gl.constexpr, N: gl.constexpr, VECTOR: gl.constexpr, PHASES: gl.constexpr):
    """A transpose: rows in, columns out, with a swizzled tile of local memory between."""
    rows: gl.constexpr = gl.BlockedLayout([1, VECTOR], [4, 16], [gl.num_warps(), 1], [1, 0])
    columns: gl.constexpr = gl.BlockedLayout([VECTOR, 1], [16, 4], [1, gl.num_warps()], [0, 1])
    i = gl.arange(0, M, layout=gl.SliceLayout(1, rows))
    j = gl.arange(0, N, layout=gl.SliceLayout(0, rows))
    tile = gl.allocate_shared_memory(x.dtype.element_ty, [M, N], gl.SwizzledSharedLayout(VECTOR, 1, PHASES, [1, 0]))
    tile.store(gl.load(x + i[:, None] * N + j[None, :]))
    i = gl.arange(0, M, layout=gl.SliceLayout(1, columns))
    j = gl.arange(0, N, layout=gl.SliceLayout(0, columns))
    gl.store(out + j[None, :] * M + i[:, None], tile.load(columns))


@case(
    *({"dtype": t, "vector": v, "phases": p} for t, v, p in (
        (torch.float32, 1, 1), (torch.float32, 4, 8), (torch.float16, 8, 4), (torch.int8, 4, 4), (torch.int64, 2, 2))),
)  # fmt: skip
def gluon_transpose(draw, dtype, vector, phases):
    x = draw.integers(-100, 100, 64, 128).to(dtype)
    out = torch.empty(128, 64, dtype=dtype)
    through_local_memory[(1,)](x, out, M=64, N=128, VECTOR=vector, PHASES=phases, num_warps=4)
    return out, x.T


@gluon.jit
def convert(x, out, A: gl.constexpr, B: gl.constexpr, N: gl.constexpr):
    i = gl.arange(0, N, layout=A)
    v = gl.convert_layout(gl.load(x + i), B)
    gl.store(out + gl.arange(0, N, layout=B), v)


def _blocked(size, warps):
    return gl.BlockedLayout([size], [64], [warps], [0])


@case(
    *({"dtype": t, "sizes": s} for t in (torch.int8, torch.float16, torch.float64) for s in ((1, 8), (4, 2))),
)
def gluon_convert_layout(draw, dtype, sizes):
    x = draw.integers(-100, 100, 4096).to(dtype)
    out = torch.empty_like(x)
    convert[(1,)](x, out, A=_blocked(sizes[0], 4), B=_blocked(sizes[1], 4), N=4096, num_warps=4)
    return out, x


@gluon.jit
def buffers(x, out, total, n, SIZE: gl.constexpr, N: gl.constexpr, SUM: gl.constexpr):
    """Buffer loads with a mask and a default, buffer stores, and a buffer atomic."""
    i = gl.arange(0, N, layout=gl.BlockedLayout([SIZE], [64], [gl.num_warps()], [0]))
    v = gl.amd.cdna3.buffer_load(x, i, mask=i < n, other=7.0)
    gl.amd.cdna3.buffer_store(v, out, i, mask=i % 5 != 2)
    if SUM:
        gl.amd.cdna3.buffer_atomic_add(total, i % 16, v, mask=i < n, sem="relaxed")


@case(
    {"dtype": torch.float32, "size": 4, "add": True},
    {"dtype": torch.float64, "size": 2, "add": True},
    {"dtype": torch.float16, "size": 8, "add": False},
    {"dtype": torch.bfloat16, "size": 1, "add": False},
)
def gluon_buffer_operations(draw, dtype, size, add):
    x = draw.integers(-9, 9, 512).to(dtype)
    out, total = torch.zeros(512, dtype=dtype), torch.zeros(16, dtype=dtype)
    buffers[(1,)](x, out, total, 500, SIZE=size, N=512, SUM=add, num_warps=1)
    i = torch.arange(512)
    seen = torch.where(i < 500, x, 7).to(dtype)
    wanted = torch.zeros(16, dtype=dtype).index_add_(0, i[:500] % 16, x[:500])
    return [(out, torch.where(i % 5 != 2, seen, 0)), (total, wanted if add else total)]


@gluon.jit
def matrix_core(a, b, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, MFMA: gl.constexpr, WIDTH: gl.constexpr):
    """c = a @ b by one mfma tile grid: operands straight from memory into dot layouts."""
    left: gl.constexpr = gl.DotOperandLayout(0, MFMA, WIDTH)
    right: gl.constexpr = gl.DotOperandLayout(1, MFMA, WIDTH)
    i = gl.arange(0, M, layout=gl.SliceLayout(1, left))
    k = gl.arange(0, K, layout=gl.SliceLayout(0, left))
    x = gl.load(a + i[:, None] * K + k[None, :])
    k = gl.arange(0, K, layout=gl.SliceLayout(1, right))
    j = gl.arange(0, N, layout=gl.SliceLayout(0, right))
    y = gl.load(b + k[:, None] * N + j[None, :])
    acc = gl.amd.cdna3.mfma(x, y, gl.zeros([M, N], c.dtype.element_ty, layout=MFMA))
    i = gl.arange(0, M, layout=gl.SliceLayout(1, MFMA))
    j = gl.arange(0, N, layout=gl.SliceLayout(0, MFMA))
    gl.store(c + i[:, None] * N + j[None, :], acc)


def _mfma(draw, version, shape, dtype, transposed, width):
    layout = gl.amd.AMDMFMALayout(version, list(shape), transposed, [2, 2], 64 if dtype == torch.float64 else 32)
    m = n = 64
    k = 64
    a, b = draw.integers(-4, 5, m, k).float().to(dtype), draw.integers(-4, 5, k, n).float().to(dtype)
    result = {torch.int8: torch.int32, torch.float64: torch.float64}.get(dtype, torch.float32)
    out = torch.empty(m, n, dtype=result)
    matrix_core[(1,)](a, b, out, M=m, N=n, K=k, MFMA=layout, WIDTH=width, num_warps=4)
    return out, a.double() @ b.double()


@case(
    {"shape": (32, 32, 8), "dtype": torch.float16, "transposed": False, "width": 4},
    {"shape": (16, 16, 16), "dtype": torch.bfloat16, "transposed": True, "width": 4},
    {"shape": (16, 16, 32), "dtype": torch.int8, "transposed": False, "width": 8},
    {"shape": (32, 32, 16), "dtype": torch.float8_e4m3fnuz, "transposed": True, "width": 8},
    {"shape": (16, 16, 4), "dtype": torch.float32, "transposed": False, "width": 1},
    {"shape": (16, 16, 4), "dtype": torch.float64, "transposed": False, "width": 1},
    archs=("gfx942",),
)
def gluon_mfma(draw, shape, dtype, transposed, width):
    return _mfma(draw, 3, shape, dtype, transposed, width)


@case(
    {"shape": (32, 32, 16), "dtype": torch.float16, "transposed": True, "width": 8},
    {"shape": (16, 16, 32), "dtype": torch.bfloat16, "transposed": False, "width": 8},
    {"shape": (16, 16, 64), "dtype": torch.int8, "transposed": False, "width": 16},
    {"shape": (32, 32, 16), "dtype": torch.float8_e4m3fn, "transposed": True, "width": 8},
    {"shape": (16, 16, 4), "dtype": torch.float32, "transposed": False, "width": 1},
    archs=("gfx950",),
)
def gluon_mfma_of_gfx950(draw, shape, dtype, transposed, width):
    return _mfma(draw, 4, shape, dtype, transposed, width)


@gluon.jit
def copy_through_async(x, out, n, N: gl.constexpr, BUFFER: gl.constexpr, SIZE: gl.constexpr):
    """Memory to local memory without registers, in two groups of which the first is waited for first."""
    layout: gl.constexpr = gl.BlockedLayout([SIZE], [64], [gl.num_warps()], [0])
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    first = gl.allocate_shared_memory(x.dtype.element_ty, [N], flat)
    second = gl.allocate_shared_memory(x.dtype.element_ty, [N], flat)
    i = gl.arange(0, N, layout=layout)
    if BUFFER:
        gl.amd.cdna4.async_copy.buffer_load_to_shared(first, x, i)
    else:
        gl.amd.cdna4.async_copy.global_load_to_shared(first, x + i)
    gl.amd.cdna4.async_copy.commit_group()
    gl.amd.cdna4.async_copy.global_load_to_shared(second, x + N + i)
    gl.amd.cdna4.async_copy.commit_group()
    gl.amd.cdna4.async_copy.wait_group(1)
    gl.store(out + i, first.load(layout))
    gl.amd.cdna4.async_copy.wait_group(0)
    gl.store(out + N + i, second.load(layout))


@case({"buffer": True, "size": 4}, {"buffer": False, "size": 4}, {"buffer": False, "size": 1}, archs=("gfx950",))
def gluon_async_copy(draw, buffer, size):
    x = draw.normal(2048)
    out = torch.empty_like(x)
    copy_through_async[(1,)](x, out, 2048, N=1024, BUFFER=buffer, SIZE=size, num_warps=4)
    return out, x


@gluon.jit
def grid_and_time(out, N: gl.constexpr):
    """Each program of a 3-D grid writes its linear number."""
    x, y, z = gl.program_id(0), gl.program_id(1), gl.program_id(2)
    number = (z * gl.num_programs(1) + y) * gl.num_programs(0) + x
    i = gl.arange(0, N, layout=gl.BlockedLayout([1], [64], [gl.num_warps()], [0]))
    gl.store(out + number * N + i, number * N + i)


@case({"warps": 1}, {"warps": 16})
def gluon_grid(draw, warps):
    out = torch.empty(2 * 3 * 4 * 1024, dtype=torch.int32)
    grid_and_time[(2, 3, 4)](out, N=1024, num_warps=warps)
    return out, torch.arange(len(out), dtype=torch.int32)
