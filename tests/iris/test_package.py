"""The package as a whole: what importing it does, and who may import whom."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

import pytest

import iris_under_test

ROOT = pathlib.Path(iris_under_test.__file__).parent


def imports_of(path: pathlib.Path) -> set[str]:
    """Absolute names of all modules that a file imports, at any depth."""
    package = ["iris_under_test", *path.relative_to(ROOT).parent.parts]
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) + "." if node.level else ""
            imported |= {f"{base}{node.module or ''}", *(f"{base}{node.module}.{a.name}" for a in node.names)}
    return imported


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    roots = {name.split(".")[0] for name in imports_of(path)}
    assert not roots & {"harness", "fixtures", "conformance", "reports", "command_line"}
    above = {"device": ["host", "ccl", "ops", "kernels"], "kernels": ["host", "ccl", "ops"]}
    for room in above.get(path.relative_to(ROOT).parts[0], ()):
        assert not any(name.startswith(f"iris_under_test.{room}") for name in imports_of(path)), room


def test_import_does_no_work():
    code = """
import logging, os, sys
before = dict(os.environ)
import torch, triton
descriptors = len(os.listdir("/proc/self/fd"))
import iris_under_test
from iris_under_test.ccl import Config
from iris_under_test.experimental import iris_gluon
assert dict(os.environ) == before
assert logging.getLogger("iris").handlers == [] and logging.getLogger("iris").level == logging.NOTSET
assert triton.runtime.driver._active is None
assert len(os.listdir("/proc/self/fd")) == descriptors
assert not torch.distributed.is_initialized()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent, check=False)
    assert done.returncode == 0, done.stderr


def test_public_names_exist_and_are_the_same_everywhere():
    assert all(hasattr(iris_under_test, name) for name in iris_under_test.__all__)
    from iris_under_test.ccl.all_gather import all_gather
    from iris_under_test.experimental import iris_gluon

    assert iris_under_test.ccl.all_gather is all_gather
    assert iris_gluon.IrisDeviceCtx is iris_under_test.gluon.IrisDeviceCtx
    assert iris_gluon.iris is iris_under_test.iris


def test_an_iris_needs_torch_distributed():
    with pytest.raises(RuntimeError, match=r"torch\.distributed is not initialised"):
        iris_under_test.iris(2**20)


BELOW_IRIS = ("ccl", "device", "drivers", "host", "ops", "x")


def test_nothing_below_iris_imports_it():
    """Deferred and type-only imports are imports. The parts take ``host.instance.Instance``."""
    files = [path for part in BELOW_IRIS for path in (ROOT / part).rglob("*.py")]
    importers = {
        path.name for path in files if any(name.startswith("iris_under_test.host.iris") for name in imports_of(path))
    }
    assert len(files) > 80
    assert importers == set()
    assert any(name.startswith("iris_under_test.host.iris") for name in imports_of(ROOT / "bench" / "worker.py"))
