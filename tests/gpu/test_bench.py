"""``iris-harness bench`` on GPUs: device graphs, their check, and what happens where a backend cannot be captured."""

from __future__ import annotations

import json

import pytest

from command_line.bench.ops import MOST_CALLS, OPS
from tests.bench import test_command as typed
from tests.gpu import rig

REASON = rig.absent("cuda") or rig.reason()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

SMALL = (
    "all_gather",
    "--device",
    "cuda",
    "--ranks",
    "2",
    "--sizes",
    "256KiB:4MiB:x16",
    "--cus",
    "4:8",
    "--repeat",
    "5",
)


def results(folder):
    return json.loads((folder / "out" / "bench" / "bench.json").read_text())


def test_every_backend_is_captured_and_right(tmp_path):
    done = typed.run(tmp_path, *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    plain = results(tmp_path)
    assert "NCCL" in plain["backends"]["nccl"]
    assert "warning" not in plain
    assert len(plain["rig"]["gpus"]) == 2
    for size in plain["sizes"]:
        assert size["captured"], size["note"]
        assert [cell["status"] for cell in size["cells"]] == ["ok"] * 6
        assert 1 <= size["calls"] <= MOST_CALLS
        for cell in size["cells"]:
            assert 0 < cell["busbw_gbs"] < 1000, "no NVLink carries more"


def test_a_wrong_output_of_a_graph_is_seen(tmp_path):
    done = typed.run(tmp_path, *SMALL, "--backends", "nccl,gluon", "--implementation", "planted_iris", fault="element")
    assert done.returncode == 1, done.stdout + done.stderr
    plain = results(tmp_path)
    assert all(size["captured"] for size in plain["sizes"])
    assert [line.split(":")[1].strip() for line in done.stdout.splitlines() if line.startswith("wrong: ")] == [
        "gluon with 4 CUs at 256 KiB",
        "gluon with 4 CUs at 4 MiB",
    ]


def test_a_graph_that_works_on_old_inputs_is_seen(tmp_path):
    done = typed.run(tmp_path, *SMALL, "--backends", "nccl,gluon", "--implementation", "planted_iris", fault="stale")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "wrong: gluon with 4 CUs at 256 KiB: rank " in done.stdout


def test_every_op_is_captured_and_right(tmp_path):
    done = typed.run(tmp_path, "all", *SMALL[1:], "--cus", "auto", "--dtype", "bf16")
    assert done.returncode == 0, done.stdout + done.stderr
    for op in OPS:
        for size in json.loads((tmp_path / "out" / "bench" / f"{op}-bf16" / "bench.json").read_text())["sizes"]:
            assert size["captured"], size["note"]
            assert [cell["status"] for cell in size["cells"]] == ["ok"] * 4


def test_nccl_can_be_given_few_ctas(tmp_path):
    done = typed.run(tmp_path, *SMALL, "--sizes", "64MiB", "--cus", "1,8", "--backends", "nccl,nccl-ctas")
    assert done.returncode == 0, done.stdout + done.stderr
    [size] = results(tmp_path)["sizes"]
    free, _, one, eight = (cell["busbw_gbs"] for cell in size["cells"])
    assert one < eight
    assert one < 0.7 * free


def test_a_table_is_tuned(tmp_path):
    done = typed.run(tmp_path, "all_reduce", *SMALL[1:5], "--sizes", "8KiB,1MiB", "--tune", "table.json")
    assert done.returncode == 0, done.stdout + done.stderr
    entries = json.loads((tmp_path / "table.json").read_text())["entries"]
    assert [(entry["bytes"], entry["use_gluon"]) for entry in entries] == [
        (8192, False), (1 << 20, False), (8192, True), (1 << 20, True),
    ]  # fmt: skip
    assert all("NVIDIA" in entry["measured"] for entry in entries)


def test_where_one_backend_cannot_be_captured_none_is(tmp_path):
    done = typed.run(tmp_path, *SMALL, "--backends", "nccl,gluon", "--implementation", "planted_iris", fault="host")
    assert done.returncode == 0, done.stdout + done.stderr
    for size in results(tmp_path)["sizes"]:
        assert not size["captured"]
        assert "gluon with 4 CUs cannot be" in size["note"]
        assert [cell["status"] for cell in size["cells"]] == ["ok"] * 4


def test_more_memory_than_the_gpus_have(tmp_path):
    done = typed.run(tmp_path, *SMALL, "--sizes", "512GiB")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "512 GiB needs" in line
    assert "the GPU's memory is" in line
