"""Matrix products: dtypes, layouts, grouped program order, split-k, epilogues, batches, persistent programs.

Inputs are small integers, so that every product and sum is exact in the accumulator whatever the order: the bound is
equality. One case draws from a normal distribution, to see rounding.
"""

import torch
import triton
import triton.language as tl

from tests.corpus.case import Within, case, half_of


@triton.jit
def matmul(
    a,
    b,
    c,
    bias,
    M,
    N,
    K,
    am,
    ak,
    bk,
    bn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    SPLIT: tl.constexpr,
    RELU: tl.constexpr,
    ACC: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):
    """c = relu(a @ b + bias): programs in groups of GROUP block rows, SPLIT programs share K and add by atomics."""
    pid = tl.program_id(0)
    rows = tl.cdiv(M, BM)
    columns = tl.cdiv(N, BN)
    width = GROUP * columns
    first = pid // width * GROUP
    size = min(rows - first, GROUP)
    i = (first + pid % width % size) * BM + tl.arange(0, BM)
    j = pid % width // size * BN + tl.arange(0, BN)
    part = tl.program_id(1) * BK
    acc = tl.zeros((BM, BN), ACC)
    for start in range(0, K, BK * SPLIT):
        k = start + part + tl.arange(0, BK)
        x = tl.load(a + i[:, None] * am + k[None, :] * ak, mask=(i < M)[:, None] & (k < K)[None, :], other=0.0)
        y = tl.load(b + k[:, None] * bk + j[None, :] * bn, mask=(k < K)[:, None] & (j < N)[None, :], other=0.0)
        acc = tl.dot(x, y, acc, input_precision=PRECISION, out_dtype=ACC)
    if RELU:
        acc = tl.maximum(acc + tl.load(bias + j, mask=j < N)[None, :], 0)
    at = c + i[:, None] * N + j[None, :]
    inside = (i < M)[:, None] & (j < N)[None, :]
    if SPLIT > 1:
        tl.atomic_add(at, acc.to(c.dtype.element_ty), mask=inside)
    else:
        tl.store(at, acc.to(c.dtype.element_ty), mask=inside)


def product(a, b, out, *, bias=None, block=(32, 32, 32), group=2, split=1, acc=tl.float32, precision="ieee", **options):
    """out = a @ b on the active device; ``a`` and ``b`` may be transposed views."""
    (m, k), n = a.shape, b.shape[1]
    bm, bn, bk = block
    matmul[(triton.cdiv(m, bm) * triton.cdiv(n, bn), split)](
        a, b, out, out if bias is None else bias, m, n, k, *a.stride(), *b.stride(),
        BM=bm, BN=bn, BK=bk, GROUP=group, SPLIT=split, RELU=bias is not None, ACC=acc, PRECISION=precision, **options,
    )  # fmt: skip
    return out


def _operands(draw, m, n, k, dtype, layout="rr"):
    a, b = draw.integers(-4, 5, m, k).float().to(dtype), draw.integers(-4, 5, k, n).float().to(dtype)
    a = a if layout[0] == "r" else a.T.contiguous().T
    return a, b if layout[1] == "r" else b.T.contiguous().T


@case(*({"layout": layout} for layout in ("rr", "rc", "cr", "cc")))
def matmul_fp16_layouts(draw, layout):
    a, b = _operands(draw, 64, 64, 64, torch.float16, layout)
    return product(a, b, torch.empty(64, 64), block=(64, 64, 32)), a.double() @ b.double()


@case(
    *({"dtype": t} for t in (torch.float16, torch.bfloat16, torch.float32, torch.float64)),
)
def matmul_ragged(draw, dtype):
    a, b = _operands(draw, 70, 40, 50, dtype)
    acc = tl.float64 if dtype == torch.float64 else tl.float32
    out = torch.empty(70, 40, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    return product(a, b, out, acc=acc), a.double() @ b.double()


@case(*({"block": block, "warps": w} for block, w in (((16, 16, 16), 1), ((32, 32, 16), 2), ((64, 32, 64), 8))))
def matmul_block_shapes(draw, block, warps):
    a, b = _operands(draw, 64, 64, 64, torch.float16)
    return product(a, b, torch.empty(64, 64), block=block, num_warps=warps), a.double() @ b.double()


@case(*({"instruction": i} for i in (16, 32)))
def matmul_instruction_shape(draw, instruction):
    a, b = _operands(draw, 64, 64, 64, torch.bfloat16)
    out = product(a, b, torch.empty(64, 64), block=(64, 64, 32), matrix_instr_nonkdim=instruction)
    return out, a.double() @ b.double()


@case({"stages": 1}, {"stages": 2}, {"stages": 3})
def matmul_pipelined(draw, stages):
    a, b = _operands(draw, 32, 64, 160, torch.float16)
    return product(a, b, torch.empty(32, 64), num_stages=stages), a.double() @ b.double()


@case({"layout": "rr"}, {"layout": "rc"})
def matmul_int8(draw, layout):
    a, b = _operands(draw, 64, 32, 64, torch.int8, layout)
    out = torch.empty(64, 32, dtype=torch.int32)
    return product(a, b, out, acc=tl.int32), a.long() @ b.long()


@case({"dtype": torch.float8_e4m3fnuz}, {"dtype": torch.float8_e5m2fnuz}, archs=("gfx942",))
def matmul_fp8_of_gfx942(draw, dtype):
    a, b = _operands(draw, 64, 32, 64, dtype)
    return product(a, b, torch.empty(64, 32)), a.double() @ b.double()


@case({"dtype": torch.float8_e5m2})
def matmul_fp8_ocp(draw, dtype):
    a, b = _operands(draw, 64, 32, 64, dtype)
    return product(a, b, torch.empty(64, 32)), a.double() @ b.double()


@case({"dtype": torch.float8_e4m3fn}, archs=("gfx950",))
def matmul_fp8_ocp_of_gfx950(draw, dtype):
    a, b = _operands(draw, 64, 32, 64, dtype)
    return product(a, b, torch.empty(64, 32)), a.double() @ b.double()


@case(archs=("gfx942",))
def matmul_xf32(draw):
    a, b = _operands(draw, 64, 64, 32, torch.float32)
    return product(a, b, torch.empty(64, 64), block=(64, 64, 32), precision="tf32"), a.double() @ b.double()


@case({"dtype": torch.float32}, {"dtype": torch.float16})
def matmul_split_k(draw, dtype):
    a, b = _operands(draw, 64, 64, 128, torch.float16)
    return product(a, b, torch.zeros(64, 64, dtype=dtype), split=4), a.double() @ b.double()


@case({"dtype": torch.bfloat16, "within": half_of(torch.bfloat16)}, {"dtype": torch.float32})
def matmul_bias_relu(draw, dtype):
    a, b = _operands(draw, 64, 64, 64, torch.bfloat16)
    bias = draw.integers(-20, 20, 64).float()
    return product(a, b, torch.empty(64, 64, dtype=dtype), bias=bias), (a.double() @ b.double() + bias).relu()


@case(
    {"dtype": torch.float16},
    {"dtype": torch.float32},
    within=Within("64 products, each sum rounded to fp32", 1e-5, 2e-5),
)
def matmul_normal(draw, dtype):
    a, b = draw.normal(64, 64, dtype=dtype), draw.normal(64, 64, dtype=dtype)
    return product(a, b, torch.empty(64, 64)), a.double() @ b.double()


@triton.jit
def batched(a, b, c, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """c[n] = a[n] @ b[n] for a batch in the third dimension of the grid."""
    n, M, N = tl.program_id(2), tl.num_programs(0) * BM, tl.num_programs(1) * BN
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, K)
    x = tl.load(a + n * M * K + i[:, None] * K + k[None, :])
    y = tl.load(b + n * K * N + k[:, None] * N + j[None, :])
    tl.store(c + n * M * N + i[:, None] * N + j[None, :], tl.dot(x, y))


@case()
def matmul_batched(draw):
    a, b = draw.integers(-4, 5, 3, 32, 32).half(), draw.integers(-4, 5, 3, 32, 64).half()
    out = torch.empty(3, 32, 64)
    batched[(1, 2, 3)](a, b, out, K=32, BM=32, BN=32)
    return out, a.double() @ b.double()


@triton.jit
def dot_3d(a, b, c, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    n = tl.arange(0, B)[:, None, None]
    i, j = tl.arange(0, M), tl.arange(0, N)
    k = tl.arange(0, K)
    x = tl.load(a + n * M * K + i[None, :, None] * K + k[None, None, :])
    y = tl.load(b + n * K * N + k[None, :, None] * N + j[None, None, :])
    tl.store(c + n * M * N + i[None, :, None] * N + j[None, None, :], tl.dot(x, y))


@case()
def matmul_three_dimensions(draw):
    a, b = draw.integers(-4, 5, 4, 16, 32).half(), draw.integers(-4, 5, 4, 32, 16).half()
    out = torch.empty(4, 16, 16)
    dot_3d[(1,)](a, b, out, B=4, M=16, N=16, K=32, num_warps=4)
    return out, a.double() @ b.double()


@triton.jit
def persistent(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Few programs walk all tiles."""
    columns = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * columns, tl.num_programs(0)):
        i = tile // columns * BM + tl.arange(0, BM)
        j = tile % columns * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)
            x = tl.load(a + i[:, None] * K + k[None, :], mask=(i < M)[:, None], other=0.0)
            y = tl.load(b + k[:, None] * N + j[None, :], mask=(j < N)[None, :], other=0.0)
            acc += tl.dot(x, y)
        tl.store(c + i[:, None] * N + j[None, :], acc.to(tl.float16), mask=(i < M)[:, None] & (j < N)[None, :])


@case()
def matmul_persistent(draw):
    a, b = _operands(draw, 100, 90, 64, torch.float16)
    out = torch.empty(100, 90, dtype=torch.float16)
    persistent[(3,)](a, b, out, 100, 90, 64, BM=32, BN=32, BK=32)
    return out, a.double() @ b.double()


@triton.jit
def matrix_vector(a, x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        j = start + tl.arange(0, BN)
        tile = tl.load(a + i[:, None] * N + j[None, :], mask=(i < M)[:, None] & (j < N)[None, :], other=0.0)
        acc += tl.sum(tile.to(tl.float32) * tl.load(x + j, mask=j < N, other=0.0)[None, :], axis=1)
    tl.store(out + i, acc, mask=i < M)


@case()
def matrix_times_vector(draw):
    a, x = draw.integers(-4, 5, 50, 150).half(), draw.integers(-4, 5, 150).float()
    out = torch.empty(50)
    matrix_vector[(4,)](a, x, out, 50, 150, BM=16, BN=64)
    return out, a.double() @ x.double()


@triton.jit
def dot_scaled(a, sa, b, sb, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, FA: tl.constexpr, FB: tl.constexpr):
    """Microscaled product: e8m0 scales for each 32 elements along K; two e2m1 elements of ``a`` a byte."""
    PACK: tl.constexpr = 2 if FA == "e2m1" else 1
    i, j = tl.arange(0, M), tl.arange(0, N)
    ka, k, s = tl.arange(0, K // PACK), tl.arange(0, K), tl.arange(0, K // 32)
    x = tl.load(a + i[:, None] * (K // PACK) + ka[None, :])
    y = tl.load(b + k[:, None] * N + j[None, :])
    p = tl.load(sa + i[:, None] * (K // 32) + s[None, :])
    if FB == "bf16":
        product = tl.dot_scaled(x, p, FA, y, None, FB)
    else:
        product = tl.dot_scaled(x, p, FA, y, tl.load(sb + j[:, None] * (K // 32) + s[None, :]), FB)
    tl.store(c + i[:, None] * N + j[None, :], product)


@case({"a": "e2m1", "b": "bf16"}, {"a": "e5m2", "b": "bf16"})
@case({"a": "e5m2", "b": "e5m2"}, {"a": "e2m1", "b": "e4m3"}, {"a": "e4m3", "b": "e5m2"}, archs=("gfx950",))
def matmul_microscaled(draw, a, b):
    m = n = 32
    k = 128
    dtypes = {"e5m2": torch.float8_e5m2, "e4m3": torch.float8_e4m3fn, "bf16": torch.bfloat16}
    y = draw.integers(-3, 4, k, n).float().to(dtypes[b])
    sa, sb = (draw.integers(125, 130, m, k // 32).to(torch.uint8) for _ in "ab")
    if a == "e2m1":
        code = draw.integers(0, 16, m, k)
        x = (code[:, ::2] | code[:, 1::2] << 4).to(torch.uint8)
        wide = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)[code]
    else:
        wide = draw.integers(-3, 4, m, k).double()
        x = wide.float().to(dtypes[a]).view(torch.uint8)
    out = torch.empty(m, n)
    dot_scaled[(1,)](x, sa, y if b == "bf16" else y.view(torch.uint8), sb, out, M=m, N=n, K=k, FA=a, FB=b)
    left, right = (2.0 ** (s.double() - 127).repeat_interleave(32, 1) for s in (sa, sb))
    return out, (wide * left) @ (y.double() * (1 if b == "bf16" else right.T))
