"""A suite of a few groups that behaves as told, run by the real command line through the real pytest.

``make_suite`` writes a folder with packages ``conformance`` and ``fixtures`` of its own: the plugin there writes
evidence as the contract of fixtures.plugin says, so that commands are tested without an emulator. What it does is
chosen by the environment variable FAKE.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

PLUGIN = """
import json, os, signal, subprocess, sys, time
import pytest
from harness.evidence import Case, Difference, End, Group, Store, Verdict, read
from tests.evidence import samples

FAKE = os.environ.get("FAKE", "pass")


def pytest_addoption(parser):
    for name in ("device", "arch", "ranks", "profile", "implementation", "evidence", "seed", "replay"):
        parser.addoption("--" + name)


def pytest_configure(config):
    if FAKE == "usage":
        raise pytest.UsageError("the plugin does not like this")
    config.store = Store(config.getoption("--evidence"), samples.RUN)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: "put" not in item.name)  # in the order of the plan


def pytest_collection_finish(session):
    option = session.config.getoption
    if FAKE == "no-plan":
        return
    session.config.store.append(
        samples.run(
            device=option("--device"),
            arch=option("--arch"),
            profile=option("--profile"),
            seed=int(option("--seed") or 20),
            ranks=tuple(map(int, (option("--ranks") or "4").split(","))),
            implementation={"name": option("--implementation")},
        )
    )
    session.config.store.append(samples.plan())
    session.config.store.append(samples.kernel())


def pytest_runtest_logreport(report):
    pass


def pytest_runtest_call(item):
    store = item.config.store
    requirement = samples.PUT if "put" in item.name else samples.ADD
    group = samples.PUT_GROUP if "put" in item.name else samples.ADD_GROUP
    if item.config.getoption("--replay"):
        print("replays", json.load(open(item.config.getoption("--replay")))["id"])
    if "add" in item.name:
        if FAKE == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if FAKE == "hang" or FAKE == "deaf":
            if FAKE == "deaf":
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
            with open("straggler.part", "w") as note:
                note.write(str(child.pid))
            os.rename("straggler.part", "straggler")
            time.sleep(600)
        if FAKE == "fail":
            bad = samples.failing_case()
            store.append(bad)
            store.append(Group(group, requirement, Verdict.FAIL, 1, failing_case=bad.id))
            return
        if FAKE == "gap":
            return
    store.append(samples.case(1, requirement=requirement))
    store.append(Group(group, requirement, Verdict.PASS, 1))


def pytest_sessionfinish(session, exitstatus):
    status = 1 if FAKE == "fail" else int(exitstatus)
    session.exitstatus = status
    if FAKE == "internal":
        raise RuntimeError("planted internal error")
    session.config.store.append(samples.end(status))
    session.config.store.close()
"""

TESTS = """
import pytest

@pytest.mark.parametrize("dtype", ["{dtype}"])
def test_{op}(dtype):
    pass
"""


def make_suite(folder: Path) -> Path:
    """Write the packages into ``folder``."""
    for name in ("conformance", "fixtures"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    for kind, op, dtype in (("rma", "put", "fp16"), ("atomics", "add", "int32")):  # the node ids of samples.plan()
        (folder / "conformance" / kind).mkdir()
        (folder / "conformance" / kind / f"test_{op}.py").write_text(TESTS.format(op=op, dtype=dtype))
    (folder / "fixtures" / "plugin.py").write_text(PLUGIN)
    return folder


def environment(suite: Path, fake: str = "pass", **extra: str) -> dict[str, str]:
    """The environment in which ``python -m harness`` finds this suite, whatever the current folder."""
    paths = os.pathsep.join([str(suite), str(ROOT)])
    return {**os.environ, "PYTHONPATH": paths, "FAKE": fake, "COLUMNS": "120", **extra}


def command(*arguments: Any) -> list[str]:
    return [sys.executable, "-m", "harness", *map(str, arguments)]


def run(suite: Path, cwd: Path, *arguments: Any, fake: str = "pass", **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment(suite, fake, **extra),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
