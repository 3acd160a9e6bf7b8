"""``iris-harness bench`` as it is typed, on two emulated ranks, with faults planted in the library."""

import json
import os
import signal
import subprocess
import sys
import threading
import types
from importlib.metadata import version
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from rich.console import Console

from command_line.bench import candidates
from command_line.bench import run as loop
from command_line.bench import worker as rank_side
from command_line.bench.ops import OPS
from command_line.bench.plan import Request
from command_line.commands import bench as bench_command
from fixtures import implementation
from iris_under_test import ccl
from tests import python

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("all_gather", "--device", "emulated", "--sizes", "16KiB", "--cus", "2:4", "--backends", "nccl,gluon")
PLANTED = (*SMALL, "--implementation", "planted_iris")
EMULATED = ("--device", "emulated", "--backends", "triton", "--repeat", "1")


def command(*arguments):
    return [sys.executable, "-m", "command_line", "bench", *arguments]


def environment(fault=""):
    paths = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "tests" / "bench"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": paths, "PLANTED": fault, "COLUMNS": "120"}


def run(folder, *arguments, fault=""):
    return python.run(command(*arguments), cwd=folder, env=environment(fault), timeout=300)


def read(folder):
    return json.loads((folder / "out" / "bench" / "bench.json").read_text())


def statuses(plain):
    return {(cell["backend"], cell["cus"]): cell["status"] for size in plain["sizes"] for cell in size["cells"]}


@pytest.mark.nightly
def test_a_run_leaves_everything(tmp_path):
    """Of a library, for once, whose ops return no handle: they are complete behind its device_barrier."""
    from matplotlib import image

    requested = ("--sizes", "4KiB:16KiB:x4", "--repeat", "2", "--dtype", "bf16", "--seed", "5")
    done = run(tmp_path, *PLANTED, *requested, fault="bare")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not a bandwidth of any GPU" in done.stdout
    folder = tmp_path / "out" / "bench"
    figures = {"all_gather-4KiB-cus.png", "all_gather-16KiB-cus.png", "all_gather-sizes.png"}
    assert {path.name for path in folder.iterdir()} == {".lock", "bench.json", "bench.csv", *figures}
    for name in figures:
        picture = image.imread(folder / name)[:, :, :3]
        assert picture.shape[0] > 300
        assert picture.shape[1] > 500
        assert np.ptp(picture) > 0.9
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20, f"{name} shows nothing"
    plain = read(tmp_path)
    assert plain["request"]["seed"] == 5
    assert plain["request"]["dtype"] == "bf16"
    assert plain["backends"] == {"nccl": "torch.distributed (gloo)", "gluon": "gluon"}
    assert plain["finished"] > plain["started"]
    assert plain["stopped"] is None
    assert plain["environment"]["packages"]["torch"] == version("torch")
    assert [size["bytes"] for size in plain["sizes"]] == [4096, 16384]
    for size in plain["sizes"]:
        assert len(size["cells"]) == 3
        for cell in size["cells"]:
            assert cell["status"] == "ok"
            assert [len(ranks) for ranks in cell["times_us"]] == [2, 2]
            assert all(time > 0 for ranks in cell["times_us"] for time in ranks)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", ["element", "late"])
def test_a_wrong_output_turns_its_cell_red(tmp_path, fault):
    """``late`` is right a moment after the calls: the check comes before that moment."""
    done = run(tmp_path, *PLANTED, "--repeat", "1", fault=fault)
    assert done.returncode == 1, done.stdout + done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("wrong: ")]
    assert line.startswith(
        "wrong: gluon with 4 CUs at 16 KiB: rank 1: 1 of 8,192 elements are wrong; the first (row 0 of 32, "
    )
    assert statuses(read(tmp_path)) == {("nccl", None): "ok", ("gluon", 2): "ok", ("gluon", 4): "wrong"}


@pytest.mark.nightly
def test_work_on_old_inputs_is_seen(tmp_path):
    done = run(tmp_path, *PLANTED, "--repeat", "1", fault="stale")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "rank 0: 4,096 of 8,192 elements are wrong; the first (row 16 of 32, column 0) " in done.stdout
    assert statuses(read(tmp_path))["gluon", 4] == "wrong"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("fault", "case"), [("raise", "planted: no all_gather on rank 1"), ("exit", "rank 1 ended: exit status 7")]
)
def test_ranks_that_fail_cost_one_cell(tmp_path, fault, case):
    done = run(tmp_path, *PLANTED, "--repeat", "2", fault=fault)
    assert done.returncode == 1, done.stdout + done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("failed: ")]
    assert line.startswith("failed: gluon with 4 CUs at 16 KiB: ")
    assert case in line
    assert statuses(read(tmp_path)) == {("nccl", None): "ok", ("gluon", 2): "ok", ("gluon", 4): "failed"}


@pytest.mark.nightly
def test_a_hang_costs_its_deadline_and_one_cell(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tests" / "bench")
    monkeypatch.setenv("PLANTED", "sleep")
    monkeypatch.setattr(loop, "EMULATED_DEADLINE", 15.0)
    request = Request(
        op="all_gather",
        device="emulated",
        arch="gfx942",
        ranks=2,
        sizes=(4096,),
        cus=(4, 2),
        backends=("gluon",),
        repeat=1,
        implementation="planted_iris",
    )
    [results] = bench_command.run([request], tmp_path, Console(quiet=True))
    hung, fine = results.sizes[0].cells
    assert (hung.status, fine.status) == ("failed", "ok")
    assert hung.detail.startswith("no answer from ranks")
    assert "planted_iris/__init__.py" in hung.detail, "the report names the place where rank 1 sleeps"


@pytest.mark.slow
def test_a_library_that_cannot_be_set_up(tmp_path):
    done = run(tmp_path, *PLANTED, fault="setup")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the ranks could not be set up" in done.stdout
    assert "planted: no heap" in done.stdout
    assert set(statuses(read(tmp_path)).values()) == {"not run"}


@pytest.mark.nightly
def test_a_library_whose_ops_never_say_that_they_are_complete(tmp_path):
    done = run(tmp_path, *PLANTED, "--cus", "2", "--repeat", "1", fault="barrier")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "all_gather returned no handle, and there is no device_barrier" in done.stdout


@pytest.mark.nightly
def test_several_ops_in_one_run_and_what_they_must_not_do(tmp_path):
    """reduce_scatter's output has elements that are another rank's; broadcast's input is its output."""
    ops = ("reduce_scatter,broadcast", "--sizes", "4KiB", "--implementation", "planted_iris")
    done = run(tmp_path, *ops, *EMULATED, fault="early more")
    assert done.returncode == 1, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("wrong: ")]
    assert lines[0].startswith(
        "wrong: triton at 4 KiB: rank 1: 1 of 2,048 elements are wrong; the first (row 0 of 32, "
    )
    assert lines[1].startswith(
        "wrong: triton at 4 KiB: rank 1: 2,048 of 2,048 elements are wrong; the first (row 0 of "
    )
    folder = tmp_path / "out" / "bench"
    assert {path.name for path in folder.iterdir()} == {".lock", "reduce_scatter-fp16", "broadcast-fp16"}
    for name in ("reduce_scatter", "broadcast"):
        [size] = json.loads((folder / f"{name}-fp16" / "bench.json").read_text())["sizes"]
        assert [cell["status"] for cell in size["cells"]] == ["wrong"]


@pytest.mark.nightly
def test_every_op_on_both_sides(tmp_path):
    backends = ("--backends", "nccl,triton,gluon")
    done = run(tmp_path, "all", *EMULATED, "--sizes", "4KiB", "--dtype", "bf16", *backends)
    assert done.returncode == 0, done.stdout + done.stderr
    for op in OPS:
        [size] = json.loads((tmp_path / "out" / "bench" / f"{op}-bf16" / "bench.json").read_text())["sizes"]
        assert {cell["backend"]: cell["status"] for cell in size["cells"]} == dict.fromkeys(
            ("nccl", "triton", "gluon"), "ok"
        )


@pytest.mark.nightly
def test_a_table_is_tuned_and_used(tmp_path, monkeypatch):
    """Two candidates, of which one is the library's own choice from then on."""
    monkeypatch.setattr(candidates, "SHAPES", ((1 << 60, ((2048, 4, 16),)),))
    monkeypatch.setattr(candidates, "LL", ((1 << 60, ((4096, 4, 32),)),))
    requested = {"device": "emulated", "arch": None, "ranks": 2, "sizes": "4KiB", "cus": None, "backends": "triton"}
    rest = {"dtype": "fp16", "repeat": 1, "seed": 0, "eager": False, "implementation": "iris_under_test"}
    table = tmp_path / "tables" / "mine.json"
    requests = bench_command.check_requests("all_gather", tune=table, **requested, **rest)
    results = bench_command.run(requests, tmp_path, Console(quiet=True), table)
    assert bench_command.conclude(results, tmp_path, Console(quiet=True), table) == 0
    [entry] = json.loads(table.read_text())["entries"]
    assert entry["config"]["comm_sms"] == (32 if "protocol" in entry["config"] else 16)
    assert "whose times are not those of a GPU" in entry["measured"]
    done = python.run(
        command("all_gather", "--sizes", "4KiB", *EMULATED),
        cwd=tmp_path,
        env={**environment(), "IRIS_CCL_TUNING": str(table)},
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table.write_text("{")
    done = python.run(
        command("all_gather", "--sizes", "4KiB", *EMULATED),
        cwd=tmp_path,
        env={**environment(), "IRIS_CCL_TUNING": str(table)},
        timeout=300,
    )
    assert done.returncode == 1, "a bad table is an error of the op"
    assert "mine.json cannot be read as a table of configurations" in done.stdout


@pytest.mark.usefixtures("own_keepers")
@pytest.mark.nightly
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_keeps_what_it_has(tmp_path, number, status):
    long = command(*PLANTED, "--sizes", "4KiB:8KiB", "--repeat", "100")
    controller = subprocess.Popen(
        long,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    below = []
    guard = threading.Timer(120, controller.kill)
    guard.start()
    try:
        for line in controller.stdout:
            if "8 KiB: begins" in line:
                break
        below = psutil.Process(controller.pid).children(recursive=True)
        controller.send_signal(number)
        message, _ = controller.communicate(timeout=60)
    finally:
        guard.cancel()
        controller.kill()
        controller.wait()
    assert controller.returncode == status, message
    assert "Stopped before the end" in message
    assert len(below) >= 3
    assert not psutil.wait_procs(below, timeout=30)[1]
    plain = read(tmp_path)
    assert plain["stopped"] == number.name
    assert plain["finished"] is None
    first, second = plain["sizes"]
    assert [len(cell["times_us"]) for cell in first["cells"]] == [100, 100, 100]
    assert all(len(cell["times_us"]) < 100 for cell in second["cells"])


@pytest.mark.parametrize(
    ("arguments", "case", "remedy"),
    [
        (["all_shuffle"], "'all_shuffle'", "all_gather"),
        (["all_gather,broadcast,all_gather"], "different names", "all_gather,broadcast"),
        (["all", "--dtype", "fp16,fp16"], "different names", "fp16,fp16"),
        (["all_gather", "--tune", "a-file"], "a-file", "another file"),
        (["all_gather", "--tune", "t.json", "--cus", "4"], "--tune", "leave --cus out"),
        (["all_gather", "--tune", "folder/t.json", "--dtype", "fp8"], "'fp8'", "fp16"),
        (["all_gather", "--tune", "folder/t.json", "--backends", "nccl"], "--tune", "gluon and triton"),
        (["all_gather", "--backends", "nccl-ctas", "--cus", "4"], "nccl-ctas", "leave it out"),
        (["all_gather", "--backends", "nccl,mpi"], "'mpi'", "nccl, nccl-ctas, gluon, triton"),
        (["all_gather", "--sizes", "2MB"], "'2MB'", "2MiB:512MiB"),
        (["all_gather", "--sizes", "4MiB:2MiB"], "'4MiB:2MiB'", "smaller"),
        (["all_gather", "--device", "emulated", "--sizes", "2MiB:512MiB"], "512 MiB", "--sizes"),
        (["all_gather", "--cus", "many"], "'many'", "4:128"),
        (["all_gather", "--ranks", "0"], "0", "1 to 32"),
        (["all_gather", "--ranks", "two"], "'two'", "1 to 32"),
        (["all_gather", "--dtype", "fp8"], "'fp8'", "fp16"),
        (["all_gather", "--repeat", "0"], "0", "rounds"),
        (["all_gather", "--device", "tpu"], "'tpu'", "emulated"),
        (["all_gather", "--device", "rocm", "--ranks", "2"], "rocm", "install"),
        (["all_gather", "--implementation", "no_such_iris"], "'no_such_iris'", "--implementation"),
        (["all_gather", "--output", "/proc/nowhere"], "/proc/nowhere", "--output"),
        (["all_gather", "--output", "a-file"], "a-file", "--output"),
        ([], "OP", "--help"),
    ],
)
def test_bad_input_is_one_line(tmp_path, arguments, case, remedy):
    (tmp_path / "a-file").touch()
    device = [] if "--device" in arguments else ["--device", "emulated"]
    done = run(tmp_path, *arguments, *device)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("iris-harness: ")
    assert case in line
    assert remedy in line
    assert [path.name for path in tmp_path.iterdir()] == ["a-file"]


def test_help_says_what_a_size_and_a_bandwidth_are():
    done = run(ROOT, "--help")
    text = " ".join(done.stdout.split())
    assert "A size is the larger of one rank's input and output in bytes" in text
    assert "(ranks - 1) / ranks" in text
    assert "1e9 bytes" in text


# A rank's report of a wrong output


def difference(output, expected):
    return rank_side._difference(output, expected)


def test_the_first_difference_is_named_with_its_values():
    expected = torch.arange(32, dtype=torch.int16).reshape(8, 4)
    output = expected.clone()
    output[5, 2] = -2
    output[7, 3] = 0
    message = difference(output, expected)
    assert message == ("2 of 32 elements are wrong; the first (row 5 of 8, column 2) holds 0xfffe instead of 0x16")


def test_poison_that_is_still_there_is_told():
    expected = torch.arange(8, dtype=torch.int32).reshape(4, 2)
    output = expected.clone()
    output[1:] = expected[1:].bitwise_not()
    assert difference(output, expected).startswith("6 of 8 elements are wrong; the first (row 1 of 4, column 0)")
    assert difference(output, expected).endswith("was never written")


def test_what_is_right_by_now_was_not_complete():
    expected = torch.zeros(4, 2, dtype=torch.float16)
    assert "not complete" in difference(expected.clone(), expected)


def test_differences_are_found_behind_the_first_piece(monkeypatch):
    monkeypatch.setattr(rank_side, "_PIECE", 8)
    expected = torch.zeros(20, dtype=torch.int32)
    output = expected.clone()
    output[13] = output[19] = 1
    assert rank_side._differing(output, expected) == (2, 13)
    assert rank_side._differing(expected, expected) == (0, -1)


# What is checked behind the calls


@pytest.mark.parametrize("right", [True, False])
def test_nobody_needs_the_input_any_more_when_the_output_is_compared(right):
    """An output that still is the input, in other clothes, is wrong: the input is overwritten first."""
    expected = torch.arange(8, dtype=torch.int32)
    source = expected + 1
    output = expected.clone() if right else expected - 1
    assert bool(rank_side._check(output, source, expected)) is right
    assert torch.equal(source, (expected + 1).bitwise_not())
    late = expected.clone()
    assert not rank_side._check(late.view(2, 4), late, expected.view(2, 4))


def test_in_place_the_output_is_compared_first_and_then_overwritten():
    output = torch.arange(8, dtype=torch.int32)
    assert rank_side._check(output, output, output.clone())
    assert torch.equal(output, torch.arange(8, dtype=torch.int32).bitwise_not())


# On which tensors


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
@pytest.mark.parametrize("theirs", [False, True])
def test_both_sides_work_on_all_of_a_size(op, theirs):
    """Of buffers for larger ones the start; in place there is one tensor."""
    layout = op.layout(1 << 14, 2, 2)
    buffers = [torch.zeros(1 << 16, dtype=torch.uint8) for _ in range(2)]
    rank = types.SimpleNamespace(dtype="fp16", op=op, _layout=layout)
    output, source = rank_side.Bench._shaped(rank, buffers, theirs)
    shapes = layout.shapes(theirs)
    assert (output.shape, output.data_ptr()) == (shapes[0], buffers[0].data_ptr())
    if op.in_place(theirs):
        assert source is output
    else:
        assert (source.shape, source.data_ptr()) == (shapes[1], buffers[1].data_ptr())
    assert max(output.nbytes, source.nbytes) == layout.size == 1 << 14


# Which Config a cell has


def default_config(**changes):
    requested = {"element_size": 2, "world_size": 4, "nbytes": 1 << 20, "use_gluon": False, "comm_sms": None, **changes}
    return implementation.load("iris_under_test").default_config("all_gather", **requested)


def test_a_library_that_is_asked_for_nothing_chooses_by_itself():
    assert default_config() is None


def test_a_library_tells_what_it_uses_without_a_config(monkeypatch):
    def reported(op, *, element_size, world_size, nbytes, use_gluon):
        assert (op, element_size, world_size, nbytes) == ("all_gather", 2, 4, 1 << 20)
        return ccl.Config(comm_sms=100, num_warps=8, use_gluon=use_gluon)

    monkeypatch.setattr(ccl, "tuned_config", reported)
    assert default_config(use_gluon=True) == ccl.Config(comm_sms=100, num_warps=8, use_gluon=True)
    assert default_config(comm_sms=8) == ccl.Config(comm_sms=8, num_warps=8)


def test_a_library_that_does_not_has_the_defaults_of_its_config(monkeypatch):
    monkeypatch.delattr(ccl, "tuned_config")
    assert default_config(comm_sms=24) == ccl.Config(comm_sms=24)
    assert default_config(use_gluon=True) == ccl.Config(use_gluon=True)
