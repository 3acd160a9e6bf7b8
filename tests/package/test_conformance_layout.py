"""Code that several tests of the suite use is not in test files, and is imported by a literal name."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "conformance"
IMPORTS = ("import_module", "__import__")


def faults_in(source: str) -> list[str]:
    """Return the imports of the suite's test files, and the imports of its modules by a computed name."""
    tree = ast.parse(source)
    return [*_of_test_files(tree), *_by_computed_name(tree)]


def _of_test_files(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.startswith("conformance.") and any(part.startswith("test_") for part in name.split(".")):
                yield f"line {node.lineno} imports {name}"


def _by_computed_name(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        name = node.args[0]
        if called in IMPORTS and isinstance(name, ast.JoinedStr) and "conformance" in ast.unparse(name):
            yield f"line {node.lineno} imports {ast.unparse(name)}"


@pytest.mark.parametrize(
    "source",
    [
        "from conformance.rma.test_put import launch",
        "from conformance.rma import test_put",
        "def run():\n    import conformance.rma.test_put",
        "import importlib\nimportlib.import_module(f'conformance.rma.test_{op}').run(env, case)",
        "from importlib import import_module\nimport_module(f'conformance.rma.{op}')",
    ],
)
def test_each_such_import_is_detected(source: str) -> None:
    assert len(faults_in(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from conformance.rma.kernels import launch",
        "from tests.isa.test_targets import X",
        "import importlib\nimportlib.import_module(f'{env.under_test.name}.x')",
    ],
)
def test_other_imports_are_allowed(source: str) -> None:
    assert not faults_in(source)


def test_nothing_in_the_suite_imports_from_a_test_file() -> None:
    faults = [
        f"{path.relative_to(ROOT)}: {fault}"
        for path in sorted(SUITE.rglob("*.py"))
        for fault in faults_in(path.read_text(encoding="utf-8"))
    ]
    assert not faults, "move code that tests share into a module next to them, or into conformance/support"


DRAWN = sorted(path for path in SUITE.rglob("test_*.py") if "strategies" in path.read_text(encoding="utf-8"))


FORKED = """
import importlib, os, sys
import torch, triton
from fixtures import worker

for module in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        importlib.import_module(module)
        from harness.cases import registry

        print(module, *registry._TYPES, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.slow
def test_a_rank_that_imports_the_tests_alone_knows_a_case_type() -> None:
    """Check that each test module imports the type of its cases: on ranks, strategies are not imported.

    Each module is imported in a forked process in which torch is already imported.
    """
    wanted = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in DRAWN]
    done = subprocess.run([sys.executable, "-c", FORKED, *wanted], capture_output=True, text=True, check=True, cwd=ROOT)
    types = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert list(types) == wanted, done.stderr
    assert [module for module, known in types.items() if not known] == [], "must import the type of their cases"
