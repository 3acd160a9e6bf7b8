"""Who may import whom, and that an import does nothing else."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("harness", "iris_under_test", "fixtures", "conformance", "reports", "tests")
MAY_IMPORT = {
    "harness": {"harness"},
    "reports": {"reports", "harness"},
    "iris_under_test": {"iris_under_test"},
    "fixtures": {"fixtures", "harness"},
    "conformance": {"conformance", "fixtures", "harness"},
}
COMMAND_LINE = ROOT / "harness" / "cli.py"
"""The one file of harness that joins the commands with the reports."""


def modules(package):
    return sorted((ROOT / package).rglob("*.py"))


def imports(path):
    """Absolute names that a file imports, wherever in it; relative ones are resolved."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_arrows_point_one_way(package):
    for path in modules(package):
        allowed = MAY_IMPORT[package] | ({"reports"} if path == COMMAND_LINE else set())
        for name in imports(path):
            top = name.partition(".")[0]
            assert top not in PACKAGES or top in allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_reports_read_evidence_and_write_files_with_nothing_else_of_the_harness():
    for path in modules("reports"):
        for name in imports(path):
            if name.startswith("harness"):
                allowed = ("harness.evidence", "harness.errors", "harness.files", "harness.printable")
                assert name.startswith(allowed), f"{path.name} imports {name}"


def test_device_code_never_imports_host_code():
    for path in modules("iris_under_test/device"):
        for name in imports(path):
            assert not name.startswith("iris_under_test.host"), f"{path.relative_to(ROOT)} imports {name}"


def test_the_lint_sees_a_planted_import(tmp_path, monkeypatch):
    planted = tmp_path / "harness" / "deep"
    planted.mkdir(parents=True)
    (planted / "bad.py").write_text("from ...iris_under_test import host\nfrom . import x\nimport reports.html\n")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert list(imports(planted / "bad.py")) == ["iris_under_test.host", "harness.deep.x", "reports.html"]


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


def module_names(*packages):
    for package in packages:
        for path in modules(package):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts[-1] != "__main__":
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


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


def test_importing_everything_changes_nothing(tmp_path):
    names = list(module_names("harness", "iris_under_test", "fixtures", "reports"))
    assert len(names) > 40
    assert json.loads(run_python(IMPORT_ALL, json.dumps(names), cwd=tmp_path).splitlines()[-1]) == {}
    assert list(tmp_path.iterdir()) == []


LIGHT = ["evidence", "isa", "telemetry", "cli", "commands.certify", "commands.replay", "doctor"]


@pytest.mark.parametrize("package", ["reports", *(f"harness.{name}" for name in LIGHT)])
def test_what_reads_and_reports_starts_without_torch_and_triton(package, tmp_path):
    code = f"import sys, {package}; print(sorted({{'torch', 'triton', 'numba', 'numpy', 'pytest'}} & set(sys.modules)))"
    assert run_python(code, cwd=tmp_path) == "[]\n"
