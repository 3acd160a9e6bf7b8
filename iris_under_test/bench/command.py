"""``main``: the command line of a file of benchmarks."""

from __future__ import annotations

import argparse
import datetime
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import triton

from .launch import launch
from .registry import DEFAULT_RANKS, RANKS_AXIS, Benchmark, registered, wanted
from .results import FORMATS, OK, SKIPPED, Result, render
from .worker import Options, Task

__all__ = ["main"]

_AXIS_OPTION = re.compile(r"--(axis|skip)_([^=]+)(=(.*))?", re.DOTALL)


def main(argv: Sequence[str] | None = None) -> list[Result]:
    """Run the registered benchmarks by the command line (``sys.argv`` by default) and print their results.

    For each world size the ranks are started once, by torch.distributed.elastic on this machine, and take all
    configurations of that size in turn, each with an ``Iris`` of its own. Times are rank 0's. Options:

    ``--benchmark_filter REGEX`` only benchmarks whose name it finds something in;
    ``--benchmark_format console|json|csv`` what is printed;
    ``--benchmark_out FILE`` also write the results there: as CSV or JSON if its name ends so, else as printed;
    ``--heap_size`` bytes per rank (2^34), ``--n_warmup`` 25, ``--n_repeat`` 100;
    ``--use_gluon`` benchmarks find it as ``state.use_gluon``;
    ``--axis_NAME=a,b`` or ``=pow2:x:y`` or ``=lin:a:b:s`` other values for an axis, ``--skip_NAME=...`` without these;
    ``--setup MODULE:FUNCTION`` called first on each rank: makes a device Triton's active one that is not by itself;
    ``--time_limit`` seconds per configuration (600), after which the ranks are ended.

    Must be called in the main thread of a file that other processes may import: behind ``if __name__ == "__main__":``.
    Returns the results in order.

    Raises:
        SystemExit: 1 if a configuration that was not skipped has no figures, 2 for a wrong command line.
    """
    parser = _parser()
    arguments, replaced, unwanted = _split(sys.argv[1:] if argv is None else list(argv), parser)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        parser.error("it starts its own ranks: run it with python, not with torchrun")
    options = Options(
        arguments.heap_size,
        arguments.n_warmup,
        arguments.n_repeat,
        arguments.use_gluon,
        arguments.setup or "",
        arguments.time_limit,
    )
    chosen = _chosen(arguments.benchmark_filter, {**replaced, **unwanted}, parser)
    try:
        tasks = [
            Task(benchmark.named(values), benchmark, values)
            for benchmark in chosen
            for values in benchmark.configurations(replaced, unwanted)
        ]
        elsewhere = DEFAULT_RANKS not in wanted(RANKS_AXIS, [DEFAULT_RANKS], replaced, unwanted)
    except ValueError as error:
        parser.error(str(error))
    if not tasks:
        parser.error("every configuration is skipped")
    started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    results = _run(tasks, elsewhere, options)
    context = {"date": started, "torch": torch.__version__, "triton": triton.__version__, **vars(arguments)}
    _publish(results, arguments.benchmark_format, arguments.benchmark_out, context)
    if any(result.status not in {OK, SKIPPED} for result in results):
        raise SystemExit(1)
    return results


def _run(tasks: Sequence[Task], elsewhere: bool, options: Options) -> list[Result]:
    """One launch per world size; results in order of the tasks. ``elsewhere``: not on ``DEFAULT_RANKS``."""
    results: dict[str, Result] = {}
    by_size: dict[int, list[Task]] = {}
    for task in tasks:
        if elsewhere and RANKS_AXIS not in task.benchmark.axes:
            results[task.name] = task.result(SKIPPED, f"runs on {DEFAULT_RANKS} ranks: it has no axis {RANKS_AXIS}")
        else:
            by_size.setdefault(task.values[RANKS_AXIS], []).append(task)
    for num_ranks, some in sorted(by_size.items()):
        results.update((result.name, result) for result in launch(num_ranks, some, options))
    return [results[task.name] for task in tasks]


def _publish(results: Sequence[Result], form: str, path: Path | None, context: dict[str, Any]) -> None:
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in context.items()}
    print(render(results, form, plain), end="", flush=True)
    if path is not None:
        by_name = {".csv": "csv", ".json": "json"}.get(path.suffix, form)
        path.write_text(render(results, by_name, plain), encoding="utf-8")


def _chosen(pattern: str, names: dict[str, str], parser: argparse.ArgumentParser) -> list[Benchmark]:
    try:
        chosen = [benchmark for benchmark in registered().values() if re.search(pattern, benchmark.name)]
    except re.error as error:
        parser.error(f"--benchmark_filter {pattern!r} is not a regular expression: {error}")
    if not chosen:
        parser.error(f"no benchmark matches {pattern!r}: there are {', '.join(registered()) or 'none'}")
    known = {RANKS_AXIS, *(name for benchmark in chosen for name in benchmark.axes)}
    for name in names:
        if name not in known:
            parser.error(f"no benchmark has an axis {name!r}: there are {', '.join(sorted(known))}")
    return chosen


def _split(
    argv: list[str], parser: argparse.ArgumentParser
) -> tuple[argparse.Namespace, dict[str, str], dict[str, str]]:
    """The options, and the texts of --axis_NAME and --skip_NAME by name."""
    named: dict[str, dict[str, str]] = {"axis": {}, "skip": {}}
    rest = []
    for argument in argv:
        match = _AXIS_OPTION.fullmatch(argument)
        if match is None:
            rest.append(argument)
        elif match[4] is None:
            parser.error(f"{argument} needs values: {argument}=...")
        else:
            named[match[1]][match[2]] = match[4]
    return parser.parse_args(rest), named["axis"], named["skip"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Runs the benchmarks of this file. --axis_NAME=VALUES and --skip_NAME=VALUES choose "
        "configurations: a,b or pow2:FROM:TO or lin:FROM:TO:STEP.",
        allow_abbrev=False,
    )
    parser.add_argument("--benchmark_filter", default="", metavar="REGEX", help="only benchmarks with such a name")
    parser.add_argument("--benchmark_format", choices=FORMATS, default=FORMATS[0], help="what is printed")
    parser.add_argument("--benchmark_out", type=_writable, metavar="FILE", help="a file for the results")
    parser.add_argument("--heap_size", type=_at_least(1), default=1 << 34, help="bytes per rank [2^34]")
    parser.add_argument("--n_warmup", type=_at_least(0), default=25, help="untimed calls [25]")
    parser.add_argument("--n_repeat", type=_at_least(1), default=100, help="timed calls [100]")
    parser.add_argument("--use_gluon", action="store_true", help="time the Gluon kernels")
    parser.add_argument("--setup", type=_target, metavar="MODULE:FUNCTION", help="called first on each rank")
    parser.add_argument("--time_limit", type=_at_least(1), default=600, help="seconds per configuration [600]")
    return parser


def _at_least(least: int) -> Any:
    def integer(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    return integer


def _target(text: str) -> str:
    if not re.fullmatch(r"[\w.]+:\w+", text):
        raise argparse.ArgumentTypeError(f"must be MODULE:FUNCTION, got {text!r}")
    return text


def _writable(text: str) -> Path:
    """Return the path of a file that can be written: checked before anything is measured."""
    path = Path(text)
    if not path.parent.is_dir() or path.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write {text}: no such folder, or a folder itself")
    return path
