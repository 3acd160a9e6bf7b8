"""The files that iris_launch keeps of the library's kernels, if the environment names a folder."""

import json
import os

import pytest
import torch
import triton
import triton.language as tl

import iris_under_test
from harness import emulator
from iris_under_test.host.tracing import kernel_artifacts
from iris_under_test.host.tracing.kernel_artifacts import ARTIFACTS_VARIABLE, iris_launch
from tests.iris.ranks import run_checks


@triton.jit
def double(source, out, COUNT: tl.constexpr):
    """out[i] = 2 * source[i]"""
    at = tl.arange(0, COUNT)
    tl.store(out + at, 2 * tl.load(source + at))


@pytest.fixture
def launch(monkeypatch):
    """Launches ``double`` on the emulated device; checks the result and returns what iris_launch did."""
    monkeypatch.setattr(kernel_artifacts, "_kept", set())
    monkeypatch.delenv(ARTIFACTS_VARIABLE, raising=False)
    emulator.activate()

    def doing(dtype=torch.float32, grid=(1,), rank=3, algorithm="doubling"):
        source = torch.arange(64).to(dtype)
        out = torch.zeros_like(source)
        given = {"algorithm": algorithm, "rank": rank, "dtype": dtype}
        compiled = iris_launch(double, grid, source, out, 64, num_warps=1, **given)
        assert torch.equal(out, source * 2)
        return compiled

    yield doing
    emulator.deactivate()


def metadata_below(folder):
    return {path: json.loads(path.read_text()) for path in sorted(folder.rglob("metadata.json"))}


def test_nothing_is_written_unasked(launch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert launch().metadata.name == "double"
    assert list(tmp_path.iterdir()) == []


def test_stages_and_metadata(launch, tmp_path, monkeypatch):
    monkeypatch.setenv(ARTIFACTS_VARIABLE, str(tmp_path / "new" / "artifacts"))
    compiled = launch()
    ((path, records),) = metadata_below(tmp_path).items()
    assert path.parent == tmp_path / f"new/artifacts/doubling/double-float32-{compiled.hash[:12]}/rank3"
    assert {"ttir", "ttgir", "llir", "amdgcn", "hsaco"} <= set(records["stages"])
    for stage, name in records["stages"].items():
        content = compiled.asm[stage]
        assert (path.parent / name).read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert {entry.name for entry in path.parent.iterdir()} == {"metadata.json", *records["stages"].values()}
    wanted = {"kernel": "double", "algorithm": "doubling", "rank": 3, "dtype": "float32", "grid": [1]}
    assert {key: records[key] for key in wanted} == wanted
    assert records["hash"] == compiled.hash
    assert records["signature"]["source"] == "*fp32"
    assert records["constants"] == {"COUNT": "64"}
    assert records["options"]["num_warps"] == 1


def test_one_folder_per_algorithm_kernel_specialisation_and_rank(launch, tmp_path, monkeypatch):
    monkeypatch.setenv(ARTIFACTS_VARIABLE, str(tmp_path))
    launch()
    launch()
    launch(torch.float16)
    launch(rank=0)
    launch(algorithm="other/one")
    records = [(m["algorithm"], m["dtype"], m["rank"]) for m in metadata_below(tmp_path).values()]
    assert sorted(records) == [
        ("doubling", "float16", 3),
        ("doubling", "float32", 0),
        ("doubling", "float32", 3),
        ("other/one", "float32", 3),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["doubling", "other_one"]


def test_a_specialisation_is_written_once(launch, tmp_path, monkeypatch):
    monkeypatch.setenv(ARTIFACTS_VARIABLE, str(tmp_path))
    launch()
    (path,) = metadata_below(tmp_path)
    path.unlink()
    launch()
    assert not path.exists()


def test_a_grid_may_be_computed(launch, tmp_path, monkeypatch):
    monkeypatch.setenv(ARTIFACTS_VARIABLE, str(tmp_path))
    launch(grid=lambda options: (options["COUNT"] // 64,))
    (records,) = metadata_below(tmp_path).values()
    assert records["grid"] == "computed from the kernel's options"


def test_a_folder_that_cannot_be_written_is_told(launch, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(ARTIFACTS_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(
        RuntimeError, match=rf"cannot write the artifacts of doubling below .*file \({ARTIFACTS_VARIABLE}"
    ):
        launch()


def the_library_launches_so(ctx, rank, num_ranks):
    source, out = ctx.zeros(8, 32), ctx.zeros(8 * num_ranks, 32)
    ctx.ccl.all_gather(out, source)
    ctx.ccl.all_gather(out[:, :16], source[:, :16])
    ctx.ccl.all_gather(out, source, config=iris_under_test.ccl.Config(use_gluon=True))
    ctx.device_barrier()


@pytest.mark.slow
def test_collectives_and_the_barrier_of_the_devices_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv(ARTIFACTS_VARIABLE, str(tmp_path))
    assert run_checks([the_library_launches_so], 2, 2**20, emulated=True) == {"the_library_launches_so": ""}
    records = sorted((m["algorithm"], m["kernel"], m["dtype"], m["rank"]) for m in metadata_below(tmp_path).values())
    # In Gluon; contiguous, and with rows apart.
    assert records == [
        *(("all_gather", "move_gluon", "float32", rank) for rank in (0, 1)),
        *(("all_gather", "move_triton", "float32", rank) for rank in (0, 0, 1, 1)),
        *(("device_barrier", "barrier_kernel", None, rank) for rank in (0, 1)),
    ]
    assert os.listdir(tmp_path) in (["all_gather", "device_barrier"], ["device_barrier", "all_gather"])
