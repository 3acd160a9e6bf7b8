"""GEMM all-scatter: right on emulated ranks in every type, compiled for every target, and its faults are seen."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks.one_process import World
from harness import emulator
from harness.emulator.faults import DataRace
from harness.isa import fingerprint, remote_mismatch, sass
from harness.isa.compile_only import target
from tests.examples.programs import ROOT, run
from tests.iris.ranks import run_checks
from tests.isa.test_sass import code_of, disassembles

FOLDER = ROOT / "examples" / "07_gemm_all_scatter" / "gluon"
PROGRAM = "examples/07_gemm_all_scatter/gluon/benchmark.py"
SMALL = "-m 61 -n 90 -k 78 --tiles 32x32x32 --gemm_sms 3 --fewest_steps 1 --rounds 2 --heap_size 1048576"
H, BF, F, I8 = torch.float16, torch.bfloat16, torch.float32, torch.int8


@pytest.fixture
def gemm(monkeypatch):
    """Loader of the example's module ``gemm_all_scatter``: ``gemm(folder)`` imports the package in ``folder`` again."""

    def load(folder: Path = FOLDER):
        monkeypatch.setattr(sys, "path", [str(folder.parent), *sys.path])
        forget()
        return importlib.import_module("gluon.gemm_all_scatter")

    yield load
    forget()


def forget():
    """Remove the example's package from the imported modules."""
    for name in [name for name in sys.modules if name == "gluon" or name.startswith("gluon.")]:
        del sys.modules[name]


@pytest.fixture
def planted(gemm, tmp_path):
    """``planted(file, old, new)``: the module of a copy of the example with a fault in it."""

    def load(file: str, old: str, new: str):
        folder = tmp_path / "planted" / "gluon"
        shutil.copytree(FOLDER, folder)
        text = (folder / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, old
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")
        return gemm(folder)

    return load


def numbers(seed, *shape):
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed))


def wrong(module, tiling, dtype, m, n, k, *, transposed=True, ranks=2, calls=2, name="GemmAllScatter"):
    """Return how many elements of all ranks' C, and of the memory next to it, are wrong after some calls."""
    world = World(ranks, heap_size=1 << 20)
    a = numbers(0, m, k).to(dtype)
    parts = [
        numbers(1 + rank, n, k).to(dtype).T if transposed else numbers(1 + rank, k, n).to(dtype)
        for rank in range(ranks)
    ]
    out = torch.int32 if dtype == I8 else dtype
    stored = [tensor.fill_(85) for tensor in world.tensors((m, ranks * n + 8), out)]
    ops = [getattr(module, name)(rank, tiling) for rank in world.ranks]
    for _ in range(calls):
        world.run(lambda rank: ops[rank.cur_rank](stored[rank.cur_rank][:, : ranks * n], a, parts[rank.cur_rank]))
    expected = torch.full((m, ranks * n + 8), 85, dtype=out)
    expected[:, : ranks * n] = torch.cat([a.double() @ part.double() for part in parts], 1).to(out)
    assert all(not op._counters.any() for op in ops)
    return sum(int((tensor != expected).sum()) for tensor in stored)


CASES = {
    "split in 3, unevenly": (H, 64, 64, 160, {"block_k": 32, "programs": 3, "fewest_steps": 1}, True),
    "ragged, three rounds": (H, 125, 45, 77, {"block_k": 32, "programs": 3, "fewest_steps": 0, "group_m": 3}, True),
    "rows of B": (BF, 64, 64, 64, {"block_k": 32, "programs": 2}, False),
    "int8 in shallow blocks": (I8, 64, 64, 128, {"block_k": 32, "programs": 3, "fewest_steps": 0}, True),
    "int8 split in 2": (I8, 64, 64, 128, {"block_k": 64, "programs": 3, "fewest_steps": 1}, True),
    "float32 split in 2": (F, 64, 64, 64, {"block_k": 32, "programs": 3, "fewest_steps": 1}, True),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("arch", "case"),
    [
        *(("gfx942", case) for case in CASES),
        ("gfx950", "split in 3, unevenly"),
        ("gfx950", "int8 split in 2"),
        ("gfx950", "int8 in shallow blocks"),
    ],
)
def test_every_element_on_every_rank(arch, case, gemm):
    emulator.activate(arch)
    module = gemm()
    dtype, m, n, k, fields, transposed = CASES[case]
    tiling = module.Tiling(**{"block_m": 32, "block_n": 32, "group_m": 2, **fields})
    assert wrong(module, tiling, dtype, m, n, k, transposed=transposed) == 0


def test_the_triton_kernel_does_the_same(gemm):
    emulator.activate()
    tiling = gemm().Tiling(32, 32, 32, group_m=3, programs=3)
    spec = importlib.util.spec_from_file_location("triton_benchmark", FOLDER.parent / "benchmark.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert wrong(module, tiling, H, 125, 45, 77, name="TritonGemmAllScatter") == 0


def gradients(ctx, rank, num_ranks):
    gemm, matmul = operation(ctx)
    a, weights = numbers(0, 33, 40).float(), numbers(9, 33, 24 * num_ranks).float()
    parts = [numbers(1 + other, 40, 24).float() for other in range(num_ranks)]
    mine = [a.clone().requires_grad_(), parts[rank].clone().requires_grad_()]
    (matmul(*mine, gemm) * weights).sum().backward()
    whole = [tensor.clone().requires_grad_() for tensor in (a, *parts)]
    (torch.cat([whole[0] @ part for part in whole[1:]], 1) * weights).sum().backward()
    assert torch.equal(mine[0].grad, whole[0].grad), "of A: the sum over all ranks"
    assert torch.equal(mine[1].grad, whole[1 + rank].grad), "of B: this rank's columns"


def late_ranks(ctx, rank, num_ranks):
    """Nothing but the calls themselves orders what ranks do to their C before and behind them."""
    gemm, _ = operation(ctx)
    c = ctx.empty((33, 24 * num_ranks), dtype=torch.float32)
    for call in range(4):
        a = numbers(call, 33, 40).float()
        parts = [numbers(10 * call + other, 40, 24).float() for other in range(num_ranks)]
        time.sleep(0.1 * (call % num_ranks == rank))
        c.fill_(85)
        gemm(c, a, parts[rank])
        assert torch.equal(c, torch.cat([a @ part for part in parts], 1)), call


def operation(ctx):
    sys.path.insert(0, str(FOLDER.parent))
    module = importlib.import_module("gluon.gemm_all_scatter")
    gemm = module.GemmAllScatter(ctx, module.Tiling(32, 32, 32, programs=3, fewest_steps=0))
    return gemm, importlib.import_module("gluon.matmul_wrapper").matmul


@pytest.mark.nightly
def test_gradients_and_late_ranks():
    outcome = run_checks([gradients, late_ranks], 2, 1 << 20, emulated=True)
    assert outcome == {"gradients": "", "late_ranks": ""}


def test_nothing_races(gemm):
    """Two ranks' wavefronts in an order of their own, and whatever no barrier or counter orders is an error."""
    emulator.activate(mode="race", choices=0)
    module = gemm()
    tiling = module.Tiling(block_m=32, block_n=32, block_k=32, programs=3, fewest_steps=1)
    assert wrong(module, tiling, H, 64, 64, 64, calls=1) == 0


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("cdna.py", "(columns < N)[None, :])\n", "(columns < N - 1)[None, :])\n"),
        ("work.py", "end = (piece + 1) * steps // split", "end = (piece + 1) * steps // split - piece"),
    ],
)
def test_a_planted_fault_is_seen(file, old, new, planted):
    emulator.activate()
    module = planted(file, old, new)
    tiling = module.Tiling(block_m=32, block_n=32, block_k=32, programs=3, fewest_steps=1)
    assert wrong(module, tiling, H, 64, 64, 128, calls=1) > 0


def test_a_piece_that_is_counted_before_it_is_stored_is_a_race(planted):
    emulator.activate(mode="race", choices=0)
    module = planted("work.py", "    publish()\n    gl.atomic_add(counter, 1", "    gl.atomic_add(counter, 1")
    tiling = module.Tiling(block_m=32, block_n=32, block_k=32, programs=3, fewest_steps=1)
    with pytest.raises(DataRace, match="argument partials"):
        wrong(module, tiling, H, 64, 64, 64, calls=1)


def compiled(module, dtype, blocks, ranks=4, **how):
    """The kernel that the active target gets for aligned tensors, B by columns."""
    world = World(ranks, heap_size=2 << 20)
    out = torch.int32 if dtype == I8 else dtype
    c = world.tensors((256, ranks * 256), out)[0]
    a, b = torch.empty(256, 256, dtype=dtype), torch.empty(256, 256, dtype=dtype).T
    return module.GemmAllScatter(world.ranks[0], module.Tiling(*blocks))(c, a, b, **how)


@disassembles
@pytest.mark.parametrize(
    ("dtype", "blocks", "instruction"),
    [
        (H, (128, 256, 64), "HGMMA.64x256x16.F32"),
        pytest.param(BF, (256, 128, 64), "HGMMA.64x128x16.F32.BF16", marks=pytest.mark.nightly),
        (I8, (128, 128, 128), "IGMMA.64x128x32.S8.S8"),
        pytest.param(F, (128, 128, 32), "HGMMA.64x128x8.F32.TF32", marks=pytest.mark.nightly),
    ],
)
def test_hopper_multiplies_by_wgmma_and_sends_16_bytes(dtype, blocks, instruction, gemm, tmp_path):
    with target("cuda", 90):
        code = code_of(tmp_path, compiled(gemm(), dtype, blocks))
    print_ = sass.read(code.sass, code.listing)
    assert remote_mismatch(print_, "store", 16) is None
    # Triton 3.9 lets idle warps keep 24 registers, and ptxas puts up to four words of theirs on the stack, once, six
    # with int8.
    assert print_.scratch <= (24 if dtype == I8 else 16), "registers are spilled"
    products = [match.start() for match in re.finditer(r"[HI]GMMA\.", code.sass)]
    assert not re.search(r"STL|LDL", code.sass[products[0] : products[-1]])
    assert set(re.findall(r"[HI]GMMA\.\S+", code.sass)) == {instruction}
    assert "UTMALDG" in code.sass, "A and B come by TMA"


@pytest.mark.parametrize(
    ("backend", "arch", "sent"),
    [
        ("cuda", 90, '"SENT": _rows_of_16_bytes(n, width,'),
        ("hip", "gfx942", '"SENT": _rows_of_16_bytes(n, sent,'),
    ],
)
def test_rows_that_are_sent_by_8_bytes_are_seen(backend, arch, sent, planted):
    module = planted("gemm_all_scatter.py", sent, sent[:-1] + " // 2,")
    with target(backend, arch):
        listing = compiled(module, H, (64, 64, 64)).asm["ptx" if backend == "cuda" else "amdgcn"]
    assert re.match(r"remote store accesses are \d+ x 8 bytes wide", remote_mismatch(fingerprint(listing), "store", 16))


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [2, 8])
def test_hopper_has_few_rows_on_their_way(ranks, gemm):
    """One fence more than the kernel without remote stores: after the stores to all members, before the next ones."""
    with target("cuda", 90):
        op = gemm()
        sends, keeps = (compiled(op, H, (256, 128, 64), ranks, local=local).asm["ptx"] for local in (False, True))
    stores = r"st\.global[^;]*\.v4\.b32"
    pieces = sends.split("fence.acq_rel.sys")
    assert len(pieces) == len(keeps.split("fence.acq_rel.sys")) + 1
    assert any(len(re.findall(stores, piece)) >= ranks for piece in pieces[:-1])


@pytest.mark.parametrize(
    ("arch", "dtype", "instruction"),
    [
        ("gfx942", H, "v_mfma_f32_16x16x16_f16"),
        pytest.param("gfx950", H, "v_mfma_f32_16x16x32_f16", marks=pytest.mark.nightly),
        pytest.param("gfx950", I8, "v_mfma_i32_16x16x64_i8", marks=pytest.mark.nightly),
    ],
)
def test_cdna_multiplies_by_mfma_and_sends_16_bytes(arch, dtype, instruction, gemm):
    with target("hip", arch):
        listing = compiled(gemm(), dtype, (256, 64, 64)).asm["amdgcn"]
    print_ = fingerprint(listing)
    assert remote_mismatch(print_, "store", 16) is None
    assert (print_.vgpr_spills, print_.scratch) == (0, 0)
    assert set(re.findall(r"v_s?mfma\w+", listing)) == {instruction}


def test_the_last_round_is_split_so_that_all_programs_have_work(gemm):
    tiling = gemm().Tiling(256, 128, 64)
    assert tiling.schedule(8192, 1152, 36864, 132) == (132, 5), "2 rounds, and 24 tiles in 5 pieces"
    assert tiling.schedule(8192, 1152, 40, 132) == (132, 1), "K is too short"
    assert tiling.schedule(256, 128, 36864, 132) == (36, 36), "one tile, in pieces of 16 blocks"
    assert tiling.schedule(8192, 4224, 64, 132) == (132, 1), "whole rounds"


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"block_m": 48}, "block_m .* got 48"), ({"block_k": 16}, "block_k .* got 16"), ({"programs": 0}, "got 0")],
)
def test_a_tiling_that_cannot_be(fields, message, gemm):
    with pytest.raises(ValueError, match=message):
        gemm().Tiling(**fields)


def test_what_the_compiler_adds_does_not_fit(gemm):
    emulator.activate()
    module = gemm()
    world = World(1, heap_size=1 << 16)
    op = module.GemmAllScatter(world.ranks[0], module.Tiling(32, 32, 512))
    (c,), a = world.tensors((32, 32), H), torch.ones(32, 32, dtype=H)
    with pytest.raises(ValueError, match=r"block_k=512.* is too large: out of resource: shared memory"):
        op(c, a, a)


def test_sums_of_split_tiles_stay_where_they_are(gemm):
    """A captured graph goes on using them when a larger product has come."""
    emulator.activate()
    module = gemm()
    world = World(1, heap_size=1 << 16)
    op = module.GemmAllScatter(world.ranks[0], module.Tiling(32, 32, 32, programs=5, fewest_steps=1))
    places = set()
    for rows, pieces in ((32, 2), (7 * 32, 2)):
        assert op.tiling.schedule(rows, 32, 64, 304)[1] == pieces
        (c,), a, b = world.tensors((rows, 32), H), torch.ones(rows, 64, dtype=H), torch.ones(64, 32, dtype=H)
        world.run(lambda rank, c=c, a=a, b=b: op(c, a, b))
        assert (c == 64).all()
        places |= {tensor.data_ptr() for (_, split), tensor in op._partials.items() if split}
    assert len(places) == 1


def test_tensors_that_do_not_fit(gemm):
    emulator.activate()
    module = gemm()
    world = World(2, heap_size=1 << 16)
    op = module.GemmAllScatter(world.ranks[0], module.Tiling(512, 64, 64))
    (c, _), a, b = world.tensors((32, 64), H), torch.ones(32, 8, dtype=H), torch.ones(8, 32, dtype=H)
    for arguments, message in (
        ((c, a, b.float()), "no product of torch.float16 and torch.float32"),
        ((c.float(), a, b), "into torch.float32"),
        ((c, a, b.T), r"got \(32, 8\) and \(32, 8\)"),
        ((c[:, :32], a, b), r"c must be \(32, 64\) .* got \(32, 32\)"),
        ((c.T.contiguous().T, a, b), r"strides \(1, 32\)"),
        ((c.clone(), a, b), "c must be on the symmetric heap"),
        ((c, a, b), "blocks of 512 x 64 x 64 need 73,728 bytes, gfx942 has 65,536"),
    ):
        with pytest.raises(ValueError, match=message):
            op(*arguments)


@pytest.mark.nightly
def test_the_benchmark_validates_measures_and_traces(tmp_path):
    done = run(f"python {PROGRAM} -v -b -t -d {SMALL}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Validation successful!") == 2
    report = json.loads((tmp_path / "log.json").read_text(encoding="utf-8"))
    (result,) = report["results"]
    assert (report["ranks"], result["tiling"]["block_m"], result["wrong"]) == (2, 32, 0)
    assert result["kernel"]["pieces"] == 3, "4 tiles, 3 programs"
    assert set(result["ms"]) == {"fused", "products", "transfer"}
    assert all(0 < times["p10"] <= times["median"] <= times["p90"] for times in result["ms"].values())
    events = json.loads((tmp_path / result["trace"]).read_text(encoding="utf-8"))["traceEvents"]
    # On each of 2 ranks 3 whole tiles go to 2 ranks, and 3 programs send a part of the fourth.
    assert sum(event["ph"] == "X" for event in events) == 2 * (3 * 2 + 3)


@pytest.mark.nightly
def test_the_benchmark_says_when_a_rank_gets_nothing(tmp_path):
    start = 'if __name__ == "__main__":\n    main(GemmAllScatter, '
    silent = (
        "class Silent(GemmAllScatter):\n"
        "    def launch(self, c, a, b, **options):\n"
        "        return super().launch(c, a, b, local=True, traced=False)\n\n\n"
    )
    change = (start, silent + start.replace("GemmAllScatter", "Silent"))
    done = run(f"torchrun --standalone --nproc_per_node=2 {PROGRAM} -v {SMALL}", tmp_path, change=change)
    assert done.returncode == 1
    # Of the other rank's half of C, all but what happens to be right.
    assert re.search(r"32x32x32: 27\d\d of 5490 elements are wrong", done.stderr), done.stderr
