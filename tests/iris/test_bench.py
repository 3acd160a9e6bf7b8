"""``iris_under_test.bench``: its parts, and whole runs of ``planted_benchmarks.py``, started as users do."""

import csv
import io
import json
import os
import re
import runpy
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from iris_under_test import bench
from iris_under_test.bench import command, registry
from iris_under_test.bench.axes import parse_values
from iris_under_test.bench.results import Result, render
from iris_under_test.bench.state import check
from tests import python

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[2]
PLANTED = Path(__file__).with_name("planted_benchmarks.py")


def run(*arguments, folder=ROOT):
    """Exit status, output and errors of the file of planted benchmarks on the emulated device."""
    command_line = [sys.executable, str(PLANTED), "--setup=harness.emulator:activate", "--heap_size=65536", *arguments]
    return started(command_line, folder)


def started(command_line, folder):
    return python.run(command_line, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=240)


# Axes


def test_ranges():
    assert bench.power_of_two(3, 5) == [8, 16, 32]
    assert bench.power_of_two(0, 0) == [1]
    assert bench.linear_range(1, 7, 3) == [1, 4, 7]
    assert bench.linear_range(1, 6, 3) == [1, 4]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bench.power_of_two(3, 2), "0 <= start <= end, got 3 and 2"),
        (lambda: bench.power_of_two(-1, 2), "got -1 and 2"),
        (lambda: bench.linear_range(1, 7, 0), "step > 0, got 1, 7, 0"),
        (lambda: bench.linear_range(7, 1, 1), "got 7, 1, 1"),
        (lambda: bench.axis("n", []), "axis 'n' has no values"),
        (lambda: bench.axis("n", [1])(bench.axis("n", [2])(lambda state, ctx: None)), "two axes 'n'"),
    ],
)
def test_wrong_axes(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("text", "like", "wanted"),
    [
        ("64,128", [1], [64, 128]),
        ("pow2:3:5", [1], [8, 16, 32]),
        ("lin:1:7:3", [1], [1, 4, 7]),
        ("0.5, 2", [1.5], [0.5, 2]),
        ("true,False", [True], [True, False]),
        ("persistent", ["x"], ["persistent"]),
        ("fp16,bfloat16", ["x"], ["fp16", "bfloat16"]),
        ("fp16,bfloat16,fp32", [torch.float16], [torch.float16, torch.bfloat16, torch.float32]),
    ],
)
def test_values_of_the_command_line(text, like, wanted):
    listed = parse_values(text, like)
    assert listed == wanted
    assert [type(value) for value in listed] == [type(value) for value in wanted]


@pytest.mark.parametrize(
    ("text", "like", "message"),
    [
        ("fp8", [torch.float16], "there is no dtype 'fp8'"),
        ("many", [1, 2], "'many' is not a value of the kind of 1, 2"),
        ("pow2:3", [1], "write pow2:FROM:TO or lin:FROM:TO:STEP"),
        ("lin:a:b:c", [1], "a, b, c must be integers"),
        ("pow2:5:3", [1], "got 5 and 3"),
    ],
)
def test_values_that_are_none(text, like, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_values(text, like)


# Registration


@pytest.fixture
def fresh(monkeypatch):
    """No benchmark is registered."""
    monkeypatch.setattr(registry, "_registered", {})


def test_the_outermost_axis_varies_slowest(fresh):
    @bench.register
    @bench.axis("a", [1, 2])
    @bench.axis("b", ["x", "y"])
    def two(state, ctx):
        pass

    listed = registry.registered()["two"].configurations({}, {})
    assert listed == [{"num_ranks": 8, "a": a, "b": b} for a in (1, 2) for b in ("x", "y")]
    assert registry.registered()["two"].function is two


def test_other_values_and_values_left_out(fresh):
    @bench.axis("num_ranks", [2, 4])
    @bench.register
    @bench.axis("n", [1, 2, 3])
    def one(state, ctx):
        pass

    listed = registry.registered()["one"].configurations({"num_ranks": "2", "n": "lin:5:7:1"}, {"n": "6", "m": "1"})
    assert listed == [{"num_ranks": 2, "n": 5}, {"num_ranks": 2, "n": 7}]


def test_a_name_is_registered_once(fresh):
    def same(state, ctx):
        pass

    bench.register(same)
    with pytest.raises(ValueError, match="there is a benchmark 'same' already"):
        bench.register(same)


def test_world_sizes_are_positive_integers(fresh):
    @bench.register
    @bench.axis("num_ranks", [0])
    def none(state, ctx):
        pass

    with pytest.raises(ValueError, match="num_ranks must be positive integers, got 0"):
        registry.registered()["none"].configurations({}, {})


# State


def state(**options):
    return bench.State({"num_ranks": 2}, **{"n_warmup": 1, "n_repeat": 1, "use_gluon": False, **options})


def test_an_axis_that_there_is_not():
    with pytest.raises(KeyError, match="no axis 'n': there are num_ranks"):
        state()["n"]


def test_numbers_of_any_kind_are_plain_ones():
    """The results are written as JSON, which knows no numpy."""
    filled = state()
    filled.set_bytes(np.prod((4, 8)))
    filled.set_flops(np.float32(2))
    filled.add_counter("largest", torch.tensor([1, 3]).max())
    filled.set_repeat(np.int32(3))
    assert (
        json.dumps([filled.bytes, filled.flops, filled.counters, filled.n_repeat]) == '[32, 2.0, {"largest": 3.0}, 3]'
    )
    with pytest.raises(ValueError, match="could not convert"):
        filled.add_counter("name", "text")


def test_exec_twice():
    filled = state()
    filled.exec(lambda: None)
    with pytest.raises(RuntimeError, match=r"called state\.exec twice"):
        filled.exec(lambda: None)


def test_neither_exec_nor_skip():
    with pytest.raises(RuntimeError, match=r"without a call of state\.exec or state\.skip"):
        check(state())


def test_gluon_asked_for_in_vain():
    filled = state(use_gluon=True)
    filled.exec(lambda: None)
    with pytest.raises(RuntimeError, match=r"never looks at state\.use_gluon"):
        check(filled)
    assert filled.use_gluon
    check(filled)


# The command line


@pytest.fixture
def nothing_runs(monkeypatch, fresh):
    """Two benchmarks, and a failure should ranks be started."""

    @bench.register
    @bench.axis("num_ranks", [2])
    @bench.axis("n", [1, 2])
    def first(state, ctx):
        pass

    @bench.register
    def second(state, ctx):
        pass

    monkeypatch.setattr(command, "launch", lambda *given: pytest.fail("ranks were started"))
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--benchmark_filter=third"], "no benchmark matches 'third': there are first, second"),
        (["--benchmark_filter=("], "is not a regular expression"),
        (["--axis_m=1"], "no benchmark has an axis 'm': there are n, num_ranks"),
        (["--skip_m=1"], "no benchmark has an axis 'm'"),
        (["--axis_n"], "--axis_n needs values"),
        (["--axis_n=x"], "'x' is not a value of the kind of 1, 2"),
        (["--axis_num_ranks=0"], "num_ranks must be positive integers, got 0"),
        (["--benchmark_filter=second", "--axis_num_ranks=many"], "'many' is not a value of the kind of 8"),
        (["--benchmark_filter=first", "--skip_n=1,2"], "every configuration is skipped"),
        (["--n_repeat=0"], "must be at least 1, got 0"),
        (["--n_warmup=-1"], "must be at least 0, got -1"),
        (["--heap_size=0"], "must be at least 1, got 0"),
        (["--benchmark_format=xml"], "invalid choice: 'xml'"),
        (["--benchmark_out=/nowhere/at/all.csv"], "no such folder"),
        (["--setup=harness.emulator"], "must be MODULE:FUNCTION, got 'harness.emulator'"),
        (["--n_rep=3"], "unrecognized arguments: --n_rep=3"),
    ],
)
def test_a_wrong_command_line_is_told_before_anything_runs(nothing_runs, capsys, arguments, message):
    with pytest.raises(SystemExit) as end:
        bench.main(arguments)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_not_under_torchrun(nothing_runs, capsys, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "some")
    with pytest.raises(SystemExit):
        bench.main([])
    assert "it starts its own ranks" in capsys.readouterr().err


def test_a_launch_per_world_size_and_results_in_order(nothing_runs, monkeypatch, capsys):
    launched = []

    def launch(num_ranks, tasks, options):
        launched.append((num_ranks, [task.name for task in tasks], options.n_repeat, options.heap_size))
        return [task.result("ok") for task in tasks]

    monkeypatch.setattr(command, "launch", launch)
    listed = bench.main(["--axis_num_ranks=4,2", "--axis_n=1", "--n_repeat=7"])
    assert launched == [(2, ["first/num_ranks=2/n=1"], 7, 1 << 34), (4, ["first/num_ranks=4/n=1"], 7, 1 << 34)]
    assert [(result.name, result.status) for result in listed] == [
        ("first/num_ranks=4/n=1", "ok"),
        ("first/num_ranks=2/n=1", "ok"),
        ("second/num_ranks=8", "skipped"),
    ]
    assert "runs on 8 ranks: it has no axis num_ranks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], "ok"),
        (["--axis_num_ranks=8"], "ok"),
        (["--axis_num_ranks=2, 8"], "ok"),
        (["--axis_num_ranks=pow2:1:3"], "ok"),
        (["--axis_num_ranks=lin:2:7:1"], "skipped"),
        (["--axis_num_ranks=4", "--skip_num_ranks=2"], "skipped"),
        (["--skip_num_ranks=8"], "skipped"),
        (["--skip_num_ranks=4"], "ok"),
    ],
)
def test_a_benchmark_without_the_axis_runs_on_eight_ranks(nothing_runs, monkeypatch, arguments, wanted):
    monkeypatch.setattr(command, "launch", lambda ranks, tasks, options: [task.result("ok") for task in tasks])
    assert [result.status for result in bench.main(["--benchmark_filter=sec", *arguments])] == [wanted]


# Results


def test_figures():
    result = Result("name", "name", {}, "ok", times_ms=[1.0, 2.0, 6.0], bytes=6_000_000, flops=3e9)
    assert result.summary() == {
        "mean_ms": 3.0,
        "median_ms": 2.0,
        "min_ms": 1.0,
        "max_ms": 6.0,
        "bandwidth_gb_s": pytest.approx(2.0),
        "tflops": pytest.approx(1.0),
    }
    assert set(Result("name", "name", {}, "failed", "why").summary().values()) == {None}


def test_tables_have_the_axes_of_all():
    results = [
        Result("a", "a", {"n": 1}, "ok", times_ms=[2.0], counters={"hits": 3.0}),
        Result("b", "b", {"m": "x"}, "failed", "first\nlast, of commas"),
    ]
    rows = list(csv.DictReader(io.StringIO(render(results, "csv", {}))))
    assert [(row["n"], row["m"], row["mean_ms"], row["hits"], row["detail"]) for row in rows] == [
        ("1", "", "2.0", "3.0", ""),
        ("", "x", "", "", "last, of commas"),
    ]
    lines = render(results, "console", {}).splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["benchmark", "n", "m", "mean_ms"],
        ["a", "1", "-", "2"],
        ["b", "-", "x", "-"],
    ]


# Whole runs


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """All of them in one run, that which hangs near the end: the results by name, the context, the run, its folder."""
    folder = tmp_path_factory.mktemp("bench")
    done = run(
        "--axis_num_ranks=2",
        "--time_limit=8",
        "--n_warmup=2",
        "--n_repeat=3",
        "--benchmark_format=csv",
        "--benchmark_out=results.json",
        folder=folder,
    )
    listed = json.loads((folder / "results.json").read_text(encoding="utf-8")) if done.returncode == 1 else {}
    return {row["name"]: row for row in listed.get("benchmarks", ())}, listed.get("context"), done, folder


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("n", [64, 128])
def test_a_benchmark_that_does_well(planted, dtype, n):
    row = planted[0][f"well/num_ranks=2/dtype={dtype}/n={n}"]
    assert (row["status"], row["detail"], row["device"]) == ("ok", "", "emulated gfx942")
    assert row["axes"] == {"num_ranks": 2, "dtype": dtype, "n": n}
    assert len(row["times_ms"]) == 3
    assert row["n_warmup"] == 2
    assert row["bytes"] == n * (2 if dtype == "float16" else 4)
    assert row["bandwidth_gb_s"] == pytest.approx(row["bytes"] / 1e9 / (sum(row["times_ms"]) / 3 / 1e3))
    assert row["tflops"] == pytest.approx(2 / (row["mean_ms"] / 1e3))
    assert row["counters"] == {"elements": n}


def test_its_own_counts_go_first(planted):
    row = planted[0]["its_own_counts/num_ranks=2"]
    assert (row["status"], row["n_warmup"], len(row["times_ms"])) == ("ok", 0, 4)


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("skipped/num_ranks=2/why=too small", "skipped", "it is too small"),
        ("without_exec/num_ranks=2", "failed", "RuntimeError: the benchmark returned without a call of state.exec"),
        ("raises_on_rank_1/num_ranks=2", "failed", "rank 1: ArithmeticError: planted on rank 1"),
        ("raises_when_timed/num_ranks=2", "failed", "ZeroDivisionError: division by zero"),
        ("wrong_on_rank_1/num_ranks=2", "failed", "rank 1: RuntimeError: the result is wrong: check_fn returned False"),
        ("counts_differ/num_ranks=2", "failed", "rank 1: skip None, warm-up 2, repeat 4"),
        ("more_than_the_heap/num_ranks=2", "failed", "Heap out of memory"),
        ("with_gluon/num_ranks=2", "ok", ""),
        ("on_eight_ranks/num_ranks=8", "skipped", "runs on 8 ranks"),
    ],
)
def test_what_goes_wrong_is_told_and_the_next_goes_on(planted, name, status, message):
    listed, _, done, _ = planted
    assert name in listed, done.stderr[-4000:]
    assert listed[name]["status"] == status
    assert message in listed[name]["detail"]


def test_exit_status_context_and_leftovers(planted):
    listed, context, done, folder = planted
    assert done.returncode == 1
    assert len(listed) == 4 + 12
    assert (context["heap_size"], context["n_repeat"], context["torch"]) == (65536, 3, torch.__version__)
    assert [row["benchmark"] for row in csv.DictReader(io.StringIO(done.stdout))] == [
        row["benchmark"] for row in listed.values()
    ]
    assert [path.name for path in folder.iterdir()] == ["results.json"]


def test_a_rank_that_hangs_ends_the_run(planted):
    listed, _, done, _ = planted
    for name in ("a_stuck", "after_it"):
        row = listed[f"{name}/num_ranks=2"]
        assert row["status"] == "not run"
        assert re.search(r"rank \d ended early", row["detail"])
    # Its stack shows where.
    assert re.search(r'planted_benchmarks.py", line \d+ in a_stuck', done.stderr)


def test_all_well_is_exit_status_0_as_the_guide_has_it(tmp_path):
    """The guide's command for the emulated device, as it stands there, with a file for the results."""
    guide = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    (line,) = [line for line in guide.splitlines() if line.startswith("python ") and "harness.emulator" in line]
    out = tmp_path / "results.csv"
    done = started([sys.executable, *line.split()[1:], f"--benchmark_out={out}"], ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = list(csv.DictReader(io.StringIO(out.read_text(encoding="utf-8"))))
    assert [(row["M"], row["N"], row["dtype"], row["status"]) for row in rows] == [
        ("8", "256", "float16", "ok"),
        ("8", "256", "bfloat16", "ok"),
    ]
    assert all(float(row["bandwidth_gb_s"]) > 0 for row in rows)


def test_the_guide_tells_every_option_and_nothing_else():
    guide = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    described = set(re.findall(r"`(--\w+)", guide)) - {"--axis_NAME", "--skip_NAME"}
    known = {option for action in command._parser()._actions for option in action.option_strings}
    assert described == known - {"-h", "--help"}


def test_the_guides_command_for_gpus_is_understood(monkeypatch, capsys):
    """Without ranks: what it would run."""
    guide = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    (line,) = [line for line in guide.splitlines() if line.startswith("python ") and "harness" not in line]
    launched = []

    def launch(num_ranks, tasks, options):
        launched.extend((num_ranks, task.values["M"], task.values["N"]) for task in tasks)
        return [task.result("ok") for task in tasks]

    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(command, "launch", launch)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    runpy.run_path(str(ROOT / "benchmarks" / "all_gather.py"), run_name="benchmarks.all_gather")
    bench.main([argument for argument in line.split()[2:] if not argument.startswith("--benchmark_out")])
    assert launched == [(2, rows, 4096) for rows in (1024, 2048, 4096) for _ in range(2)]
    capsys.readouterr()


def test_what_the_file_of_the_guide_counts_and_compares(monkeypatch):
    """In one process: two ranks' payloads, of which this one is rank 1."""
    monkeypatch.setattr(registry, "_registered", {})
    held = runpy.run_path(str(ROOT / "benchmarks" / "all_gather.py"), run_name="benchmarks.all_gather")
    made, given = [], []

    def empty(*shape, dtype):
        made.append(torch.zeros(shape, dtype=dtype))
        return made[-1]

    collectives = types.SimpleNamespace(all_gather=lambda *tensors, **options: given.append((tensors, options)))
    ctx = types.SimpleNamespace(empty=empty, get_rank=lambda: 1, get_device=lambda: "cpu", ccl=collectives)
    values = {"num_ranks": 2, "M": 4, "N": 64, "dtype": torch.float16}
    state = bench.State(values, n_warmup=0, n_repeat=1, use_gluon=False)
    held["all_gather"](state, ctx)
    mine, gathered = made
    assert (mine.shape, gathered.shape, state.bytes) == ((4, 64), (8, 64), mine.nbytes)
    state.fn()
    [((output, source), options)] = given
    assert (output is gathered, source is mine, options) == (True, True, {"async_op": True, "config": None})
    assert not state.check_fn()
    payloads = [held["payload"](rank, 4, 64, torch.float16, "cpu") for rank in range(2)]
    assert torch.equal(mine, payloads[1])
    gathered.copy_(torch.cat(payloads))
    assert state.check_fn()
    gathered.copy_(torch.cat(payloads[::-1]))
    assert not state.check_fn()
    state.preamble_fn()
    assert not gathered.any()
