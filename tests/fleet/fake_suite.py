"""A suite of nine groups whose cases run nothing, with the real plugin around them.

The plugin is the real one (collection, shards, plan, evidence); only the fixtures that start ranks are replaced.
Files in the folder CONTROL choose what a group does: ``hold-NODE`` makes it wait, ``fail-NAME`` fail where it runs, and
``fail-NAME-NODE`` on one node only; ``dead-NODE`` makes the ranks not start. A group that begins makes ``waits-NODE``,
and each that runs is a line of ``ran``.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DTYPES = ("bf16", "fp16", "fp32", "fp64", "int16", "int32", "int64", "int8")
PUT, HOST = "RMA-PUT-001", "HOST-INIT-001"
GROUPS = {f"{HOST}[ranks=2]", *(f"{PUT}[ranks=2,dtype={dtype}]" for dtype in DTYPES)}
MANDATORY = {f"{HOST}[ranks=2]", f"{PUT}[ranks=2,dtype=bf16]"}

_PLUGIN = f"""
import os, pathlib, time
exec(compile(pathlib.Path({str(ROOT / "fixtures" / "plugin.py")!r}).read_text(), "plugin.py", "exec"))
from harness.evidence import Case, Group, Verdict, case_id

CONTROL, NODE = pathlib.Path(os.environ["CONTROL"]), os.environ.get("SLURMD_NODENAME", "here")

collected.compile_ahead = lambda config, items: None


class FakeCheck:
    def __init__(self, node, ledger):
        self.node, self.ledger = node, ledger

    def run(self, held, values):
        group, end = group_of(self.node), time.monotonic() + 120
        (CONTROL / f"waits-{{NODE}}").touch()
        while (CONTROL / f"hold-{{NODE}}").exists() and time.monotonic() < end:
            time.sleep(0.05)
        with open(CONTROL / "ran", "a") as log:
            log.write(f"{{NODE}} {{group}}\\n")
        name = group.rpartition("=")[2].rstrip("]")
        dead = (CONTROL / f"dead-{{NODE}}").exists()
        bad = (CONTROL / f"fail-{{name}}").exists() or (CONTROL / f"fail-{{name}}-{{NODE}}").exists()
        verdict = Verdict.UNKNOWN if dead else Verdict.FAIL if bad else Verdict.PASS
        drawn = {{"type": "Nothing", "fields": {{}}}}
        identity = case_id(held.requirement, group, drawn)
        self.ledger.case(
            Case(identity, held.requirement, group, self.node.nodeid, drawn, 0, "generate", verdict, "none",
                 message="planted" if dead or bad else ""), {{}}
        )
        failing = identity if dead or bad else None
        message = "planted" if failing else ""
        self.ledger.group(
            Group(group, held.requirement, verdict, 1, failing_case=failing, message=message, seconds=0.1)
        )
        assert not failing, "planted"


@pytest.fixture(scope="session")
def rank_group(request):
    return request.param


@pytest.fixture
def check(request, rank_group):
    return FakeCheck(request.node, ledger_of(request.config))
"""


def make_suite(folder: Path) -> Path:
    """Write the packages ``conformance`` and ``fixtures`` into ``folder``."""
    for name in ("conformance", "fixtures"):
        (folder / name).mkdir(parents=True)
    real = ROOT / "fixtures"
    table_of_it = str(folder / "conformance" / "requirements.toml")
    both = f"__path__ = [*__path__, {str(real)!r}]\n"
    both += f"import pathlib\nimport fixtures.tables as _tables\n_tables.SUITE = pathlib.Path({table_of_it!r})\n"
    (folder / "fixtures" / "__init__.py").write_text((real / "__init__.py").read_text() + both)
    (folder / "fixtures" / "plugin.py").write_text(_PLUGIN)
    (folder / "conformance" / "__init__.py").touch()
    table = ""
    for name in (PUT, HOST):
        table += f'[[requirement]]\nid = "{name}"\nstatement = "It does."\nsource = "here"\ncovers = []\n'
    (folder / "conformance" / "requirements.toml").write_text(table)
    (folder / "conformance" / "certify.ini").write_text((ROOT / "conformance" / "certify.ini").read_text())
    (folder / "conformance" / "test_all.py").write_text(
        f"""
from fixtures.requirement import requirement


@requirement("{HOST}", cases=lambda ranks: [])
def test_host(check, case):
    pass


@requirement("{PUT}", cases=lambda ranks, dtype: [], dtype={DTYPES!r})
def test_put(check, case):
    pass
"""
    )
    return folder


def environment(suite: Path, control: Path, base: dict[str, str]) -> dict[str, str]:
    """Return the environment in which the command line uses this suite."""
    return {**base, "PYTHONPATH": os.pathsep.join([str(suite), str(ROOT)]), "CONTROL": str(control), "COLUMNS": "160"}
