"""A fake suite of a few groups with selectable behaviour, run by the real command line through the real pytest.

``make_suite`` writes a folder with its own packages ``conformance`` and ``fixtures``. The plugin there writes evidence
according to the contract of fixtures.plugin, so that commands are tested without an emulator. The environment variable
FAKE selects the behaviour.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import python

ROOT = Path(__file__).resolve().parents[2]

PLUGIN = """
import dataclasses, importlib, json, os, pathlib, shutil, signal, subprocess, sys, time
import pytest
from fixtures.options import make_latest, quarantine_in, waivers_in
from harness.evidence import Case, Difference, End, Group, Store, Verdict, read, sources_of
from tests.evidence import samples

FAKE = os.environ.get("FAKE", "pass")
CLEAN = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTEST_VERSION", "PYTEST_CURRENT_TEST"}
LEFT_OUT = {f"CCL-{number}": "needs 8 ranks, this run has 4" for number in range(5)}


def pytest_addoption(parser):
    for name in ("device", "arch", "emulator-mode", "ranks", "ranks-per-gpu", "level", "profile", "implementation"):
        parser.addoption("--" + name)
    for name in ("quarantine", "waivers", "evidence", "seed", "replay", "deadline", "api", "judge", "budget"):
        parser.addoption("--" + name)
    for name in ("database",):
        parser.addoption("--" + name)


def pytest_configure(config):
    global FAKE
    if FAKE == "library":  # what the package under test is decides
        FAKE = "fail" if importlib.import_module(config.getoption("--implementation")).BROKEN else "pass"
    config.option.dist = "no"  # its evidence is that of one process, also where certify lets several groups work
    if FAKE == "usage":
        raise pytest.UsageError("the plugin does not like this")
    config.run_id = samples.RUN + os.environ.get("FAKE_RUN", "") + ("r" if config.getoption("--replay") else "")
    config.store = Store(config.getoption("--evidence"), config.run_id)
    if not config.getoption("--replay"):
        make_latest(pathlib.Path(config.getoption("--evidence")))
    pathlib.Path("arguments").write_text(" ".join(sys.argv))
    if os.environ.get("EXPECT_CLEAN"):
        assert not [name for name in os.environ if name.startswith("PYTEST_") and name not in CLEAN], os.environ
        assert not sys.flags.optimize
        assert config.rootpath == pathlib.Path(__file__).parents[1]


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: "put" not in item.name)  # in the order of the plan


def pytest_collection_finish(session):
    option = session.config.getoption
    if FAKE == "no-plan" or not session.items:
        return
    plan = samples.plan()
    if without := getattr(session.config, "without", None):
        plan = dataclasses.replace(plan, groups=tuple(group for group in plan.groups if group.group not in without))
    if getattr(session.config.option, "requirement", None):
        named = session.config.option.requirement
        plan = dataclasses.replace(plan, groups=tuple(group for group in plan.groups if group.requirement in named))
    session.config.store.append(
        samples.run(
            id=session.config.run_id,
            device=option("--device"),
            arch=option("--arch"),
            level=option("--level"),
            profile=option("--profile") or "none",
            quarantine=quarantine_in(pathlib.Path(option("--quarantine"))) if option("--quarantine") else None,
            waivers=waivers_in(pathlib.Path(option("--waivers"))) if option("--waivers") else None,
            seed=int(option("--seed") or 20),
            ranks=tuple(map(int, (option("--ranks") or "4").split(","))),
            implementation={
                "name": option("--implementation"), "sha256": sources_of(option("--implementation").partition(":")[0])
            },
        )
    )
    changes = {"left_out": LEFT_OUT} if "partial" in FAKE else {}
    changes |= {"not_applicable": {"GPU-1": "needs a GPU"}} if FAKE == "not-applicable" else {}
    if FAKE == "unsupported":
        changes |= {"unsupported": {"FREE-1": "needs Iris.free"}, "capabilities": {"Iris.free": "missing"}}
    reasons = {name for kind, given in changes.items() if kind != "capabilities" for name in given}
    further = (samples.Requirement(name, "It does.", needs=("Iris.free",)) for name in sorted(reasons))
    table = (*plan.requirements, *further)
    session.config.store.append(dataclasses.replace(plan, requirements=table, **changes))
    session.config.store.append(samples.kernel())


def pytest_runtest_logreport(report):
    pass


def pytest_runtest_call(item):
    store = item.config.store
    requirement = samples.PUT if "put" in item.name else samples.ADD
    group = samples.PUT_GROUP if "put" in item.name else samples.ADD_GROUP
    if item.config.getoption("--replay"):
        print("replays", json.loads(pathlib.Path(item.config.getoption("--replay")).read_text())["id"])
    if "add" in item.name:
        if config_budget := item.config.getoption("--budget"):
            if FAKE == "short":
                message = f"the time budget of {config_budget} s was spent"
                store.append(Group(group, requirement, Verdict.NOT_RUN, 0, message=message))
                return
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
        if FAKE.endswith("fail"):
            bad = samples.failing_case()
            store.append(bad)
            store.append(Group(group, requirement, Verdict.FAIL, 1, failing_case=bad.id))
            return
        if FAKE == "gap":
            return
    store.append(samples.case(1, requirement=requirement))
    store.append(Group(group, requirement, Verdict.PASS, 1))


def excused(session):
    return session.config.getoption("--waivers") or session.config.getoption("--quarantine")


def pytest_sessionfinish(session, exitstatus):
    if not session.items:
        return
    red = FAKE.endswith("fail") and not excused(session)
    red = red or FAKE == "gap" or (FAKE == "short" and session.config.getoption("--budget"))
    status = 1 if red else int(exitstatus)
    session.exitstatus = status
    if FAKE == "internal":
        raise RuntimeError("planted internal error")
    session.config.store.append(samples.end(status))
    session.config.store.close()
    if blocked := os.environ.get("FAKE_BLOCKS"):  # no file can be written there
        (pathlib.Path(blocked) / "inner").mkdir(parents=True)
    if FAKE == "deleted":
        shutil.rmtree(session.config.store.path.parent)
"""

SELECTION = """
import json, pathlib
from tests.evidence import samples

def pytest_addoption(parser):
    parser.addoption("--requirement", action="append")
    parser.addoption("--group", action="append")
    parser.addoption("--order")

def pytest_collection_modifyitems(config, items):
    if config.getoption("--order"):
        config.without = set(json.loads(pathlib.Path(config.getoption("--order")).read_text())["without"])
        groups = {"put": samples.PUT_GROUP, "add": samples.ADD_GROUP}
        items[:] = [item for item in items if groups[item.name[5:8]] not in config.without]
    chosen = config.getoption("--requirement") or [samples.PUT, samples.ADD]
    if config.getoption("--group"):
        chosen = config.option.requirement = [name.partition("[")[0] for name in config.getoption("--group")]
    items[:] = [item for item in items if (samples.PUT if "put" in item.name else samples.ADD) in chosen]
"""

TABLE = """
[[requirement]]
id = "RMA-PUT-001"
statement = "put puts."
source = "here"
covers = ["IrisDeviceCtx.put"]

[[requirement]]
id = "ATOMIC-ADD-001"
statement = "atomic_add adds."
source = "here"
covers = ["atomic_add", "IrisDeviceCtx.put"]
"""

TESTS = """
import pytest

@pytest.mark.parametrize("dtype", ["{dtype}"])
def test_{op}(dtype):
    pass
"""


RECORDED = """
def contradictions(case, kernels, evidence, *, same_suite):
    return ()


def rejudged(case, evidence, *, same_suite):
    return False
"""
"""A suite that has no rule for recorded cases."""


def make_suite(folder: Path) -> Path:
    """Write the packages into ``folder``."""
    for name in ("conformance", "fixtures"):
        (folder / name).mkdir(parents=True)
    (folder / "conformance" / "__init__.py").touch()
    (folder / "conformance" / "recorded.py").write_text(RECORDED)
    # Only plugin and selection are fake; the other modules, which the command line uses, are those of the real package.
    real = ROOT / "fixtures"
    both = f"__path__ = [*__path__, {str(real)!r}]\n"
    (folder / "fixtures" / "__init__.py").write_text((real / "__init__.py").read_text() + both)
    for kind, op, dtype in (("rma", "put", "fp16"), ("atomics", "add", "int32")):  # the node ids of samples.plan()
        (folder / "conformance" / kind).mkdir()
        (folder / "conformance" / kind / f"test_{op}.py").write_text(TESTS.format(op=op, dtype=dtype))
    (folder / "conformance" / "certify.ini").write_text((ROOT / "conformance" / "certify.ini").read_text())
    (folder / "conformance" / "requirements.toml").write_text(TABLE)
    (folder / "fixtures" / "plugin.py").write_text(PLUGIN)
    (folder / "fixtures" / "selection.py").write_text(SELECTION)
    return folder


def environment(suite: Path, fake: str = "pass", **extra: str) -> dict[str, str]:
    """Return the environment in which ``python -m command_line`` uses this suite from any current folder."""
    paths = os.pathsep.join([str(suite), str(ROOT)])
    return {**os.environ, "PYTHONPATH": paths, "FAKE": fake, "COLUMNS": "120", **extra}


def command(*arguments: Any) -> list[str]:
    return [sys.executable, "-m", "command_line", *map(str, arguments)]


def run(suite: Path, cwd: Path, *arguments: Any, fake: str = "pass", **extra: str) -> subprocess.CompletedProcess[str]:
    return run_in(environment(suite, fake, **extra), cwd, *arguments)


def run_in(environment: dict[str, str], cwd: Path, *arguments: Any) -> subprocess.CompletedProcess[str]:
    return python.run(command(*arguments), cwd=cwd, env=environment, timeout=120)
