"""Compile the kernels of the conformance suite for a GPU that this machine does not have, and check their code.

    python -m tests.isa.suite_for cuda 90 --examples 30                        # everything
    python -m tests.isa.suite_for cuda 90 --only isa cache_modifiers --machine-code 1

One rank draws the suite's cases and runs them on a driver that compiles and enqueues nothing, so results are wrong and
not looked at; what the tests of the code find is. Prints one JSON object: how many ``cases`` ran and ``kernels`` were
compiled, ``errors`` (what was raised, by its text) and ``findings`` of the code. ``--machine-code N`` disassembles
every Nth launch, which costs a quarter of a second. ``--worlds 2 8`` also compiles the kernels of iris_under_test's
all_gather as that many ranks would launch them.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import itertools
import json
import os
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

import conformance
from conformance.isa.listing import expect_width
from conformance.rma.test_cache_modifiers import plain_load  # other launches are compared with it
from fixtures import findings, implementation
from fixtures.absent import Absent
from fixtures.drawing import draw_from
from fixtures.requirement import ATTRIBUTE, Property
from fixtures.worker import Env
from harness import isa
from harness.isa.compile_only import target

# They make process groups, or send to another rank: not for a rank that is alone.
NEED_PEERS = ("conformance.collectives.test_groups", "conformance.collectives.test_send_recv")
FOLDERS = ("rma", "atomics", "ordering", "collectives", "device", "isa", "negative")


def properties(only: list[str]) -> Iterator[Property]:
    """Return every property that some GPU can run, or those whose names contain one of the texts in ``only``."""
    for folder in FOLDERS:
        path = os.path.join(os.path.dirname(conformance.__file__), folder)
        for module in pkgutil.iter_modules([path], f"conformance.{folder}."):
            if module.name in NEED_PEERS:
                continue
            for name, value in vars(importlib.import_module(module.name)).items():
                held = getattr(value, ATTRIBUTE, None)
                full = f"{module.name}.{name}"
                if held is not None and held.device is None and (not only or any(text in full for text in only)):
                    yield held


def run(held: Property, examples: int, check: Callable[..., None]) -> None:
    """Call ``check(function, case)`` for cases of every parametrisation."""
    for values in itertools.product(*held.parameters.values()):
        parameters = dict(zip(held.parameters, values, strict=True))
        extra = {name: parameters[name] for name in list(inspect.signature(held.function).parameters)[2:]}
        drawn: list[tuple[Any, int]] = []

        def keep(case: Any, kernel: int, drawn: list[tuple[Any, int]] = drawn) -> None:
            drawn.append((case, kernel))

        draw_from(held.cases(1, **parameters), examples, held.requirement, keep)
        for case, _ in drawn:
            if "sendrecv" not in getattr(case, "arguments", ()):  # see NEED_PEERS
                held.function(check, case, **extra)


def gathers(env: Env, ranks: int) -> None:
    """Launch all_gather in both languages as one of ``ranks`` ranks would; its remote stores must be 16 bytes wide."""
    plans = importlib.import_module("iris_under_test.ccl.plans")
    groups = importlib.import_module("iris_under_test.host.groups")
    pads, words = torch.zeros(ranks, dtype=torch.int64), torch.zeros(1, ranks, dtype=torch.int32)
    members = groups.Members(tuple(range(ranks)), 0, env.context, pads, words, None, None)
    iris = env.under_test.iris(heap_size=1 << 20)
    for gluon in (True, False):
        config = env.under_test.config(block_size_m=8, block_size_n=256, use_gluon=gluon)
        for dtype in (torch.float16, torch.float32):
            # Both whole tensors, and rows with something between them.
            for rows in (lambda count, width: (count, width), lambda count, width: (count, 2 * width)):
                source, target = (iris.zeros(rows(count, 256), dtype=dtype)[:, :256] for count in (8, 8 * ranks))
                _, launch = plans.prepare_move(plans.PLANS["all_gather"], target, source, iris, members, config)
                launch()
    checks = findings.Findings(0)
    launched = env.launched()
    expect_width(checks, launched, "store", 0, counted=False)
    for one in launched:
        checks.true(f"no spills in {one.kernel} of {ranks} ranks", not isa.of_launch(one).scratch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", choices=("cuda", "hip"))
    parser.add_argument("arch")
    parser.add_argument("--examples", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--machine-code", type=int, default=0)
    parser.add_argument("--implementation", default="iris_under_test")
    parser.add_argument("--worlds", type=int, nargs="*", default=[])
    options = parser.parse_args()

    summary: dict[str, Any] = {"cases": 0, "kernels": 0, "errors": {}, "findings": {}}
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    arch = int(options.arch) if options.arch.isdigit() else options.arch
    with target(options.backend, arch) as driver:
        env = Env(
            0,
            1,
            Absent(driver, options.machine_code, (plain_load.fn.__name__,)),
            implementation.load(options.implementation),
        )
        current = ""

        def note(self: findings.Findings, subject: str, got: Any, wanted: Any) -> None:
            summary["findings"].setdefault(f"{subject}: got {got}, wanted {wanted}", current)

        findings.Findings.note = note

        def check(function: Callable[..., Any], case: Any, deadline: float | None = None, **data: Any) -> None:
            nonlocal current
            current, summary["cases"] = f"{function.__module__} {case} {data or ''}".rstrip(), summary["cases"] + 1
            env.begin()
            try:
                function(env, case, **data)
            except Exception as error:  # noqa: BLE001 - every error is reported
                env.fault = env.fault or error
            if env.fault is not None:
                summary["errors"].setdefault(f"{type(env.fault).__name__}: {env.fault}"[-2000:], current)

        check.ranks = 1  # type: ignore[attr-defined] # of a Check
        for held in properties(options.only):
            run(held, options.examples, check)
        for ranks in options.worlds:
            check(gathers, ranks)
        summary["kernels"] = len(driver.compiled)
    print(json.dumps(summary, indent=1), flush=True)
    # The library's heaps are unmapped by the process's end.
    os._exit(0)


if __name__ == "__main__":
    main()
