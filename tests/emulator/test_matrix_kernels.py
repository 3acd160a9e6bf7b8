"""Matrix products of compiled kernels against torch in float64.

Inputs are small whole numbers: every sum is exact in any order, so results are compared for equality.
"""

import re

import pytest
import torch
import triton
import triton.language as tl
from triton.experimental.gluon import language as gl

from harness import emulator
from tests.emulator import matrix_kernels as kernels

F16, BF16, F32, F64, I8 = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8
FP8, BF8 = torch.float8_e4m3fnuz, torch.float8_e5m2fnuz
OCP_FP8, OCP_BF8 = torch.float8_e4m3fn, torch.float8_e5m2
SUMS = {I8: (tl.int32, torch.int32), F64: (tl.float64, torch.float64)}


@pytest.fixture(autouse=True)
def device():
    yield
    emulator.deactivate()


def whole(rows, columns, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, (rows, columns), generator=generator).to(F32).to(dtype)


def opcodes(kernel) -> set[str]:
    return set(re.findall(r"\bv_s?mfmac?_\w+", kernel.asm["amdgcn"]))


def multiply(arch, a, b, tile, precision="ieee", sums=None, **options):
    """Run the kernel, check that its result equals the exact one, and return it."""
    emulator.activate(arch)
    acc, dtype = sums or SUMS.get(a.dtype, (tl.float32, torch.float32))
    (m, k), (_, n), (M, N, K) = a.shape, b.shape, tile
    c = torch.empty((m, n), dtype=dtype)
    kernel = kernels.matmul[triton.cdiv(m, M), triton.cdiv(n, N)](
        a, b, c, m, n, k, *a.stride(), *b.stride(), M=M, N=N, K=K, PRECISION=precision, ACC=acc, **options
    )  # fmt: skip
    assert torch.equal(c.double(), a.double() @ b.double())
    return kernel


def check(arch, opcode, dtype, tile, k=None, precision="ieee", **options):
    M, N, K = tile
    a, b = whole(M, k or 2 * K, dtype, 1), whole(k or 2 * K, N, dtype, 2)
    assert opcodes(multiply(arch, a, b, tile, precision, **options)) == {opcode}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opcode", "dtype", "tile", "options"),
    [
        ("v_mfma_f32_16x16x16_f16", F16, (16, 16, 16), {"num_warps": 1}),
        ("v_mfma_f32_32x32x8_f16", F16, (32, 32, 32), {"num_warps": 1}),
        ("v_mfma_f32_16x16x16_f16", F16, (64, 64, 32), {"num_warps": 4, "matrix_instr_nonkdim": 16}),
        ("v_mfma_f32_32x32x8_f16", F16, (64, 128, 64), {"num_warps": 8, "kpack": 2}),
        ("v_mfma_f32_32x32x8_f16", F16, (128, 128, 32), {"num_warps": 16}),
        ("v_mfma_f32_32x32x8_bf16", BF16, (64, 32, 32), {"num_warps": 2}),
        ("v_mfma_f32_16x16x16_bf16", BF16, (32, 64, 64), {"num_warps": 4, "matrix_instr_nonkdim": 16, "kpack": 2}),
        ("v_mfma_f32_32x32x2_f32", F32, (32, 32, 32), {"num_warps": 4}),
        ("v_mfma_f32_16x16x4_f32", F32, (32, 16, 32), {"num_warps": 2, "matrix_instr_nonkdim": 16}),
        ("v_mfma_f32_32x32x4_xf32", F32, (32, 32, 32), {"num_warps": 1, "precision": "tf32"}),
        ("v_mfma_f32_16x16x8_xf32", F32, (16, 32, 32), {"num_warps": 1, "precision": "tf32"}),
        ("v_mfma_f64_16x16x4_f64", F64, (32, 32, 16), {"num_warps": 4}),
        ("v_mfma_i32_32x32x16_i8", I8, (32, 32, 64), {"num_warps": 4}),
        ("v_mfma_i32_16x16x32_i8", I8, (64, 16, 64), {"num_warps": 2, "kpack": 2}),
        ("v_mfma_f32_32x32x16_fp8_fp8", FP8, (32, 32, 64), {"num_warps": 2}),
        ("v_mfma_f32_16x16x32_bf8_bf8", BF8, (16, 64, 64), {"num_warps": 2, "matrix_instr_nonkdim": 16}),
        ("v_mfma_f32_32x32x8_f16", OCP_BF8, (32, 32, 64), {"num_warps": 2}),
    ],
)
def test_dot_on_gfx942(opcode, dtype, tile, options):
    check("gfx942", opcode, dtype, tile, **options)


@pytest.mark.long
@pytest.mark.parametrize(
    ("opcode", "dtype", "tile", "options"),
    [
        ("v_mfma_f32_32x32x16_f16", F16, (32, 32, 32), {"num_warps": 1}),
        ("v_mfma_f32_32x32x16_f16", F16, (64, 64, 64), {"num_warps": 4, "num_stages": 1}),
        ("v_mfma_f32_16x16x32_bf16", BF16, (64, 32, 32), {"num_warps": 2, "matrix_instr_nonkdim": 16}),
        ("v_mfma_f32_32x32x2_f32", F32, (32, 32, 32), {"num_warps": 4}),
        ("v_mfma_f64_16x16x4_f64", F64, (32, 32, 16), {"num_warps": 4}),
        ("v_mfma_i32_32x32x32_i8", I8, (32, 32, 64), {"num_warps": 4}),
        ("v_mfma_f32_32x32x64_f8f6f4", OCP_FP8, (32, 32, 64), {"num_warps": 2}),
        ("v_mfma_f32_32x32x64_f8f6f4", OCP_BF8, (64, 64, 128), {"num_warps": 4}),
    ],
)
def test_dot_on_gfx950(opcode, dtype, tile, options):
    """Tiles are copied straight into LDS, and B is read by transposing reads."""
    check("gfx950", opcode, dtype, tile, **options)


@pytest.mark.parametrize(("opcode", "dtype"), [("v_dot2c_f32_f16", F16), ("v_dot4c_i32_i8", I8)])
def test_tiles_too_small_for_an_mfma(opcode, dtype):
    """Triton multiplies such tiles lane by lane."""
    kernel = multiply("gfx942", whole(8, 64, dtype, 1), whole(64, 8, dtype, 2), (8, 8, 32), num_warps=1)
    assert opcode in kernel.asm["amdgcn"]
    assert not opcodes(kernel)


def test_half_precision_sums():
    """Triton rounds an fp16 accumulator back after the MFMA, which adds in fp32."""
    a, b = whole(32, 32, F16, 1), whole(32, 32, F16, 2)
    multiply("gfx942", a, b, (32, 32, 16), sums=(tl.float16, F16))


@pytest.mark.parametrize("dtype", [F16, FP8, F32])
def test_layouts_of_the_inputs(dtype):
    """Transposed and strided inputs, over several work-groups with ragged edges."""
    m, n, k = 70, 50, 40
    a, b = whole(m, k, dtype, 1), whole(k, n, dtype, 2)
    columns_first = whole(n, k, dtype, 2).T
    spaced = whole(m, 3 * k, dtype, 1)[:, ::3]
    for left, right in ((a, b), (a, columns_first), (spaced, b)):
        multiply("gfx942", left, right, (32, 32, 16), num_warps=2)
    multiply("gfx942", whole(k, m, dtype, 1).T, columns_first, (32, 32, 16), num_warps=2)


def test_sums_of_random_numbers_are_as_close_as_the_arithmetic_allows():
    """Each of the k / 8 groups of products is truncated by at most 9 * 2**-24 of its largest term and rounded once."""
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(64, 64, generator=generator).to(F16) for _ in "ab")
    c = torch.empty(64, 64)
    emulator.activate("gfx942")
    kernels.matmul[2, 2](
        a, b, c, 64, 64, 64, *a.stride(), *b.stride(), M=32, N=32, K=32, PRECISION="ieee", ACC=tl.float32
    )  # fmt: skip
    exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    error = (c.double() - exact).abs()
    assert (error <= 8 * 12 * 2**-24 * size).all()
    assert error.max() > 0


# -- Gluon -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opcode", "dtype", "instr", "sides", "width", "transposed"),
    [
        ("v_mfma_f32_32x32x8_f16", F16, (32, 32, 8), (32, 64, 16), 4, False),
        ("v_mfma_f32_16x16x16_f16", F16, (16, 16, 16), (32, 32, 32), 4, True),
        ("v_mfma_f32_4x4x4_16b_f16", F16, (64, 4, 64), (64, 16, 64), 4, True),
        ("v_mfma_f32_4x4x4_16b_bf16", BF16, (4, 64, 64), (16, 64, 64), 4, False),
        ("v_mfma_f32_32x32x2_f32", F32, (32, 32, 2), (32, 32, 16), 1, True),
        ("v_mfma_f64_16x16x4_f64", F64, (16, 16, 4), (32, 32, 16), 1, False),
        ("v_mfma_i32_16x16x32_i8", I8, (16, 16, 32), (32, 32, 64), 8, False),
        ("v_mfma_f32_32x32x16_fp8_fp8", FP8, (32, 32, 16), (32, 32, 32), 8, False),
    ],
)
def test_gluon_mfma_on_gfx942(opcode, dtype, instr, sides, width, transposed):
    assert opcodes(gluon("gfx942", dtype, instr, sides, width, transposed)) == {opcode}


@pytest.mark.parametrize(
    ("opcode", "dtype", "instr", "sides", "width", "transposed"),
    [
        ("v_mfma_f32_16x16x32_f16", F16, (16, 16, 32), (32, 32, 32), 8, False),
        ("v_mfma_f32_32x32x16_bf16", BF16, (32, 32, 16), (64, 32, 32), 8, True),
        ("v_mfma_f32_4x4x4_16b_f16", F16, (4, 64, 64), (16, 64, 64), 4, False),
        ("v_mfma_f32_16x16x4_f32", F32, (16, 16, 4), (32, 32, 16), 1, False),
        ("v_mfma_f64_16x16x4_f64", F64, (16, 16, 4), (32, 32, 16), 1, False),
        ("v_mfma_i32_16x16x64_i8", I8, (16, 16, 64), (32, 32, 64), 16, False),
        ("v_mfma_i32_32x32x32_i8", I8, (32, 32, 32), (64, 32, 32), 16, True),
        ("v_mfma_f32_16x16x32_fp8_fp8", OCP_FP8, (16, 16, 32), (32, 32, 32), 8, False),
        ("v_mfma_f32_32x32x16_bf8_bf8", OCP_BF8, (32, 32, 16), (64, 32, 32), 8, True),
    ],
)
def test_gluon_mfma_on_gfx950(opcode, dtype, instr, sides, width, transposed):
    assert opcodes(gluon("gfx950", dtype, instr, sides, width, transposed)) == {opcode}


def test_mixed_8_bit_types():
    """tl.dot is not used: Triton 3.6 confuses the types of the two inputs where it transposes the result."""
    kernel = gluon("gfx942", FP8, (32, 32, 16), (32, 32, 32), 8, b_dtype=BF8)
    assert opcodes(kernel) == {"v_mfma_f32_32x32x16_fp8_bf8"}


def test_accumulation_registers():
    """256 accumulators per lane leave no room among the vector registers."""
    kernel = gluon("gfx942", F16, (16, 16, 16), (128, 128, 16), 4, transposed=True, warps=1)
    assert re.search(r"v_mfma_f32_16x16x16_f16 a\[", kernel.asm["amdgcn"])


def gluon(arch, dtype, instr, sides, width, transposed=False, warps=2, b_dtype=None):
    emulator.activate(arch)
    m, n, k = sides
    out = SUMS.get(dtype, (None, F32))[1]
    a, b, c = whole(m, k, dtype, 1), whole(k, n, b_dtype or dtype, 2), whole(m, n, out, 3)
    d = torch.empty(m, n, dtype=out)
    layout = mfma_layout(arch, instr, transposed, warps, **({"element_bitwidth": 64} if dtype is F64 else {}))
    kernel = kernels.gluon_mfma[(1,)](a, b, c, d, m, n, k, layout, width, num_warps=warps)
    assert torch.equal(d.double(), a.double() @ b.double() + c.double())
    return kernel


def mfma_layout(arch, instr, transposed, warps, **options):
    return gl.amd.AMDMFMALayout(
        version=3 if arch == "gfx942" else 4,
        instr_shape=list(instr),
        transposed=transposed,
        warps_per_cta=[warps, 1],
        **options,
    )


# -- block-scaled products ---------------------------------------------------------------------------------------------

FORMATS = {"e4m3": OCP_FP8, "e5m2": OCP_BF8, "fp16": F16, "bf16": BF16}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=F64)


def operand(kind, rows, columns, packed_along, seed):
    """Return the kernel's input, the values, and the number of values per byte."""
    if kind != "e2m1":
        values = whole(rows, columns, FORMATS[kind], seed)
        return values.view(torch.uint8) if kind in ("e4m3", "e5m2") else values, values.double(), 1
    codes = torch.randint(0, 16, (rows, columns), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    values = torch.cat([E2M1, -E2M1])[codes.long()]
    low, high = codes.unflatten(packed_along, (-1, 2)).unbind(packed_along + 1)
    return (low | high << 4).contiguous(), values, 2


def scaled(a_kind, b_kind, sides, launch):
    """Run the kernel that ``launch`` compiles, check that its result equals the exact one, and return it."""
    m, n, k = sides
    a, a_values, a_pack = operand(a_kind, m, k, 1, 1)
    b, b_values, b_pack = operand(b_kind, k, n, 0, 2)
    generator = torch.Generator().manual_seed(3)
    a_scale, b_scale = (
        torch.randint(124, 131, (side, k // 32), generator=generator, dtype=torch.uint8) for side in (m, n)
    )
    c = torch.empty(m, n)
    kernel = launch(a, a_scale, b, b_scale, c, (a_kind, b_kind, a_pack, b_pack))
    for kind, values, scale, dim in ((a_kind, a_values, a_scale, 1), (b_kind, b_values, b_scale.T, 0)):
        if kind not in ("fp16", "bf16"):
            values *= (2.0 ** (scale.double() - 127)).repeat_interleave(32, dim)
    assert torch.equal(c.double(), a_values @ b_values)
    return kernel


@pytest.mark.parametrize(
    ("a", "b", "instr", "transposed"),
    [
        ("e4m3", "e4m3", (16, 16, 128), True),
        ("e2m1", "e2m1", (16, 16, 128), True),
        ("e2m1", "e5m2", (16, 16, 128), False),
        ("e4m3", "e5m2", (32, 32, 64), False),
        ("e2m1", "e2m1", (32, 32, 64), True),
        ("e5m2", "e2m1", (32, 32, 64), True),
    ],
)
def test_gluon_mfma_scaled(a, b, instr, transposed):
    """On gfx950, with a scale of its own for each row, column and 32 k."""
    emulator.activate("gfx950")
    m, n, k = sides = (64, 32, 128)
    layout = mfma_layout("gfx950", instr, transposed, 2)
    kernel = scaled(
        a, b, sides, lambda *args: kernels.gluon_mfma_scaled[(1,)](*args[:5], m, n, k, layout, *args[5], num_warps=2)
    )
    assert opcodes(kernel) == {f"v_mfma_scale_f32_{'x'.join(map(str, instr))}_f8f6f4"}


@pytest.mark.parametrize(("a", "b", "k"), [("e4m3", "e5m2", 128), ("e2m1", "e2m1", 256)])
def test_dot_scaled_on_gfx950(a, b, k):
    emulator.activate("gfx950")
    kernel = scaled(
        a,
        b,
        (64, 64, k),
        lambda *args: kernels.scaled_matmul[(1,)](*args[:5], 64, 64, k, *args[5], True, True, num_warps=4),
    )
    assert opcodes(kernel) == {"v_mfma_scale_f32_32x32x64_f8f6f4"}


# Triton 3.6 compiles no product of two scaled inputs for gfx942.
UPCAST = [("bf16", "e4m3"), ("fp16", "e2m1")] + ([] if triton.__version__.startswith("3.6.") else [("e4m3", "e5m2")])


@pytest.mark.parametrize(("a", "b"), UPCAST)
def test_dot_scaled_is_upcast_on_gfx942(a, b):
    emulator.activate("gfx942")
    m, n, k = sides = (32, 32, 64)
    has_scale = [kind not in ("fp16", "bf16") for kind in (a, b)]
    kernel = scaled(
        a, b, sides, lambda *args: kernels.scaled_matmul[(1,)](*args[:5], m, n, k, *args[5], *has_scale, num_warps=2)
    )
    (opcode,) = opcodes(kernel)
    assert opcode in ("v_mfma_f32_32x32x8_bf16", "v_mfma_f32_32x32x8_f16")
