"""Spills, grids, work-groups of any size and copies to LDS, as Triton compiles them."""

import pytest
import torch

from harness import emulator
from tests.emulator import memory_kernels as kernels


@pytest.fixture(params=["gfx942", "gfx950"])
def device(request):
    yield emulator.activate(request.param)
    emulator.deactivate()


def integers(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randint(-4, 5, shape, generator=generator).to(dtype)


def test_spilled_vector_registers(device):
    """A block of 4096 in one wavefront, compiled for eight wavefronts per SIMD: 64 registers, the rest in scratch."""
    a, out = integers(4096), torch.empty(4096)
    code = kernels.running_sum[(1,)](a, out, 4096, num_warps=1, waves_per_eu=8).asm["amdgcn"]
    assert "scratch_store_dword" in code
    assert "scratch_load_dword" in code
    assert torch.equal(out, a.cumsum(0) * a.flip(0) + a)


def test_spilled_accumulators(device):
    """A product whose accumulators do not fit: scratch, with several wavefronts that must not access each other's."""
    a, b, c = integers(128, 16, dtype=torch.float16), integers(16, 128, dtype=torch.float16), torch.empty(128, 128)
    code = kernels.product[(1,)](a, b, c, 128, 128, 16, num_warps=1, waves_per_eu=4).asm["amdgcn"]
    assert device.arch == "gfx950" or "scratch_store_dwordx" in code
    assert torch.equal(c, a.float() @ b.float())


@pytest.mark.parametrize("warps", [1, 2, 4, 8, 16])
def test_work_groups_of_every_size(device, warps):
    """A reduction over the whole work-group: LDS and s_barrier among up to 16 wavefronts."""
    a, out = torch.arange(2048, dtype=torch.int32), torch.empty(2048, dtype=torch.int32)
    kernels.total[(1,)](a, out, 2048, num_warps=warps)
    assert torch.equal(out, a.sum().int() + a)
    assert device.drain_launches()[-1].num_warps == warps


@pytest.mark.parametrize("grid", [(7,), (3, 5), (2, 3, 4), (1, 1, 9), (1, 6, 1)])
def test_grids_in_three_dimensions(device, grid):
    count = 1
    for size in grid:
        count *= size
    out = torch.full((count * 128,), -1, dtype=torch.int32)
    kernels.where_am_i[grid](out, 128, num_warps=2)
    assert out.tolist() == list(range(count * 128))


@pytest.mark.parametrize("grid", [(0,), (3, 0), (2, 2, 0)])
def test_a_grid_without_work_groups(device, grid):
    out = torch.full((128,), -1, dtype=torch.int32)
    kernels.where_am_i[grid](out, 128, num_warps=2)
    assert out.tolist() == [-1] * 128
    assert not device.drain_launches()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, "fp8"])
def test_copies_to_lds_and_transposing_reads(dtype, monkeypatch):
    """A pipelined product on gfx950: tiles are copied to LDS directly; 8- and 16-bit ones are read transposed."""
    monkeypatch.setenv("TRITON_HIP_USE_ASYNC_COPY", "1")
    emulator.activate("gfx950")
    try:
        narrow = torch.float8_e4m3fn if dtype == "fp8" else dtype
        a, b, c = integers(64, 128).to(narrow), integers(128, 64).to(narrow), torch.empty(64, 64)
        code = kernels.pipelined[(1,)](a, b, c, 128, 64, 64, 64, num_warps=4).asm["amdgcn"]
        lines = [line.strip() for line in code.splitlines()]
        assert any(line.startswith("buffer_load_dword") and line.endswith("lds") for line in lines)
        assert ("ds_read_b64_tr_b8" if dtype == "fp8" else "ds_read_b64_tr_b16") in code
        assert torch.equal(c, a.float() @ b.float())
    finally:
        emulator.deactivate()
