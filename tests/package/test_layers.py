"""The packages that each package may import; and importing a module has no other effect."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.package.import_graph import PACKAGES, circles, graph, imports, modules

ROOT = Path(__file__).resolve().parents[2]

MAY_IMPORT = {
    "harness": (),
    "iris_under_test": (),
    "reports": ("harness",),
    "certificates": ("harness",),
    "history": ("reports", "harness"),
    "fixtures": ("harness",),
    "conformance": ("fixtures", "harness"),
    "mutants": ("conformance", "fixtures", "harness"),
    "command_line": ("mutants", "conformance", "fixtures", "history", "reports", "certificates", "harness"),
    "examples": ("fixtures", "harness", "iris_under_test"),
    "benchmarks": ("command_line", "mutants", "conformance", "examples", "fixtures", "harness", "iris_under_test"),
    "tests": PACKAGES,
}

REPORTS_NEED = ("harness.evidence", "harness.errors", "harness.files", "harness.printable")

HARNESS = {
    # The rooms from the lowest to the highest, with the rooms that each may import.
    "errors": (),
    "printable": (),
    "seeds": (),
    "text": (),
    "children": (),
    "threads": (),
    "garbage": (),
    "standstill": (),
    "interpreters": ("errors",),
    "files": ("errors",),
    "locks": ("errors",),
    "compiling": ("errors",),
    "machine": ("errors", "text"),
    "runs": ("errors", "files"),
    "kept": ("errors", "locks"),
    "isa": ("errors", "locks", "kept"),
    "emulated_device": ("errors",),
    "emulator": ("errors", "threads", "standstill", "compiling", "isa", "locks", "kept", "emulated_device"),
    "adversary": ("errors", "seeds", "emulator"),
    "telemetry": ("errors", "children", "isa"),
    "devices": ("errors", "seeds", "emulator", "telemetry"),
    "emulated_machine": ("errors", "locks", "emulated_device", "emulator", "devices"),
    "evidence": ("errors", "devices"),
    "casefile": ("errors", "adversary", "evidence"),
    "cases": ("errors",),
    "oracles": ("errors", "standstill", "cases"),
    "ranks": (
        "errors",
        "text",
        "threads",
        "standstill",
        "interpreters",
        "garbage",
        "children",
        "locks",
        "machine",
        "compiling",
        "devices",
    ),
}

NAMED = {
    ("fixtures/implementation.py", "iris_under_test"): "the default of --implementation",
    ("certificates/verification.py", "fixtures"): "recorded sources are compared with those of the installed package",
    ("fixtures/tables.py", "conformance"): "the place of the suite's table of requirements",
    ("fixtures/repeat.py", "command_line"): "printed, in the command that repeats a case",
    ("mutants/planting.py", "iris_under_test"): "the folder of the library that mutants are copies of",
    ("mutants/matrix.py", "iris_under_test"): "a matrix holds a hash of the package's files",
    ("mutants/matrix.py", "command_line"): "a matrix holds a hash of the package's files",
    ("harness/evidence/circumstances.py", "command_line"): "evidence holds a hash of the package's files",
    ("harness/evidence/circumstances.py", "conformance"): "evidence holds a hash of the package's files",
    ("harness/evidence/circumstances.py", "fixtures"): "evidence holds a hash of the package's files",
    ("harness/evidence/suite.py", "conformance"): "evidence is compared with the installed table of requirements",
}
"""Packages that a file names without importing them, and why."""


def upward_imports(root):
    """Yield the imports that MAY_IMPORT does not allow, as (file, name)."""
    for package, allowed in MAY_IMPORT.items():
        for path in modules(root, [package]).values():
            file = path.relative_to(root).as_posix()
            for each in imports(path, root):
                top = each.name.partition(".")[0]
                if top in PACKAGES and top not in (package, *allowed) and (file, each.name) not in NAMED:
                    yield file, each.name


def test_arrows_point_one_way():
    assert list(upward_imports(ROOT)) == []


def test_every_exception_is_still_needed():
    for file, name in NAMED:
        assert name in {each.name for each in imports(ROOT / file, ROOT)}, f"{file} no longer names {name}"


def test_no_file_imports_itself_through_others():
    """Check that files never import each other in a circle; deferred, type-only and textual imports count too."""
    assert circles(graph(ROOT)) == []


def test_reports_read_evidence_and_write_files_with_nothing_else_of_the_harness():
    for path in modules(ROOT, ["reports"]).values():
        for each in imports(path, ROOT):
            if each.name.startswith("harness"):
                assert each.name.startswith(REPORTS_NEED), f"{path.name} imports {each.name}"


def test_the_rooms_of_the_harness_import_lower_rooms_only():
    edges = {
        (module.split(".")[1], target.split(".")[1])
        for module, targets in graph(ROOT, ["harness"]).items()
        for target in targets
        if "." in module and "." in target
    }
    assert {room for edge in edges for room in edge} <= set(HARNESS)
    assert sorted((room, other) for room, other in edges if other not in (room, *HARNESS[room])) == []


def test_the_table_of_rooms_has_an_order():
    below = []
    for room, allowed in HARNESS.items():
        assert set(allowed) <= set(below), f"{room} may import a room that comes after it"
        below.append(room)


def test_device_code_never_imports_host_code():
    for path in modules(ROOT, ["iris_under_test/device"]).values():
        for each in imports(path, ROOT):
            assert not each.name.startswith("iris_under_test.host"), f"{path.relative_to(ROOT)} imports {each.name}"


PLANTED = {
    "from ...iris_under_test import host": "iris_under_test.host",
    "import reports.html": "reports.html",
    "def f():\n    import fixtures.rig": "fixtures.rig",
    "if TYPE_CHECKING:\n    from fixtures.rig import Rig": "fixtures.rig.Rig",
    "importlib.import_module('fixtures.rig')": "fixtures.rig",
    "importlib.import_module('conformance')": "conformance",
    "importlib.util.find_spec('reports')": "reports",
    "RANKS = 'fixtures.worker'": "fixtures.worker",
    "group.call('fixtures.worker:run_case', payload)": "fixtures.worker",
    "importlib.import_module(f'conformance.rma.test_{op}')": "conformance.rma.test_*",
    "command = [python, '-m', 'pytest', '-p', 'fixtures.plugin']": "fixtures.plugin",
    "command = ['-m', 'reports']": "reports",
    "shell('python -m reports FILE')": "reports",
    "run(python, '-c', 'import sys; from fixtures import rig; rig.main()')": "fixtures.rig",
    "run(python, '-c', 'import conformance')": "conformance",
    "SUITE = 'conformance'": "conformance",
}


@pytest.mark.parametrize("code", PLANTED)
def test_a_planted_import_is_detected(tmp_path, code):
    planted = tmp_path / "harness" / "deep"
    planted.mkdir(parents=True)
    (planted / "bad.py").write_text(f"{code}\n")
    assert list(upward_imports(tmp_path)) == [("harness/deep/bad.py", PLANTED[code])]


def test_prose_and_names_of_files_are_not_imports(tmp_path):
    (tmp_path / "harness").mkdir()
    text = '"""See fixtures.rig, or python -m command_line."""\nX = 1\n"fixtures.rig"\nopen("benchmarks.py")\n'
    (tmp_path / "harness" / "good.py").write_text(text + "# from fixtures import rig\n")
    assert list(upward_imports(tmp_path)) == []


def test_a_planted_circle_is_detected(tmp_path):
    files = {
        "harness/__init__.py": "",
        "harness/one.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from harness.two import Two\n",
        "harness/two.py": "def start():\n    from harness import three\n",
        "harness/three.py": "TARGET = 'harness.one:main'\n",
        "harness/four.py": "from harness import one\n",
        "tests/five.py": "from tests import six\n",
        "tests/six.py": "import tests.five\nimport harness.four\n",
    }
    for name, code in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    assert circles(graph(tmp_path)) == [["harness.one", "harness.three", "harness.two"], ["tests.five", "tests.six"]]


IMPORT_ALL = """
import json, os, signal, sys, threading, warnings
import pkgutil, importlib

names = json.loads(sys.argv[1])
import torch, triton, numpy, hypothesis, pytest, multiprocessing, logging

def state():
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(sys.path),
        "signals": {str(n): str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1,
        signal.SIGALRM)}, "excepthook": str(sys.excepthook),
        "threads": threading.active_count(),
        "warnings": len(warnings.filters),
        "dtype": str(torch.get_default_dtype()),
        "errors": str(numpy.geterr()),
        "start": multiprocessing.get_start_method(allow_none=True),
        "log": [str(handler) for handler in logging.getLogger().handlers],
        "driver": type(triton.runtime.driver.__dict__.get("_active")).__name__,
        "floats": hypothesis.strategies.floats.__module__,
        "cuda": torch.cuda.is_initialized(),
        "distributed": torch.distributed.is_initialized(),
        "files": sorted(os.listdir(".")),
    }

before = state()
for name in names:
    importlib.import_module(name)
after = state()
print(json.dumps({key: [str(before[key]), str(after[key])] for key in before if before[key] != after[key]}))
assert not after["cuda"] and not after["distributed"]
"""


def run_python(code, *arguments, cwd):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_importing_everything_changes_nothing(tmp_path):
    packages = (
        "harness", "iris_under_test", "fixtures", "reports", "certificates", "history", "command_line", "mutants",
    )  # fmt: skip
    names = [name for name in modules(ROOT, packages) if not name.endswith("__main__")]
    assert len(names) > 40
    assert json.loads(run_python(IMPORT_ALL, json.dumps(names), cwd=tmp_path).splitlines()[-1]) == {}
    assert list(tmp_path.iterdir()) == []


LIGHT = [
    "reports", "certificates", "harness.evidence", "harness.isa", "harness.telemetry", "command_line.main",
]  # fmt: skip


@pytest.mark.parametrize("package", LIGHT)
def test_reading_and_reporting_work_without_torch_and_triton(package, tmp_path):
    code = f"import sys, {package}; print(sorted({{'torch', 'triton', 'numba', 'numpy', 'pytest'}} & set(sys.modules)))"
    assert run_python(code, cwd=tmp_path) == "[]\n"


def test_the_list_of_commands_is_printed_without_torch_and_triton(tmp_path):
    code = """
import contextlib, io, sys
from command_line.main import main
sys.argv = ["iris-harness", "--help"]
with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
    main()
print("certify" in shown.getvalue(), sorted({"torch", "triton", "numba", "numpy"} & set(sys.modules)))
"""
    assert run_python(code, cwd=tmp_path) == "True []\n"
