"""The debug build: without its switches the code is as if it were not there; its checks, and what the suite sees of
checks that are wrong."""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from conformance.negative import test_debug_build as suite
from conformance.support.cases import HostCase
from harness import emulator

ROOT = Path(__file__).resolve().parents[2]
DEBUG, OPS, GLUON = "device/debug.py", "device/triton/ops.py", "device/gluon/context.py"


def python(code: str, package: str | Path = ROOT, **environment: str) -> str:
    """Return the output of ``code`` in its own process, with the library and the tests at ``package`` first."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True, text=True, timeout=300, check=False, cwd=package,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def changed(folder: Path, *changes: tuple[str, str, str]) -> Path:
    """A copy of the library in ``folder`` with each (file, pattern, replacement) made, at least once."""
    for path in (ROOT / "iris_under_test").rglob("*.py"):
        name = path.relative_to(ROOT / "iris_under_test").as_posix()
        text = path.read_text(encoding="utf-8")
        for file, pattern, replacement in changes:
            if file == name:
                text, count = re.subn(pattern, replacement, text)
                assert count, (file, pattern)
        target = folder / "iris_under_test" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return folder


HASHES = """
from tests.iris import kernels, triton_kernels as triton
print(kernels.rma("put", "fp16").sha256, kernels.atomic("cas", "i32").sha256)
for target in triton.TARGETS:
    print(target, [triton.rma(form, "put", "fp16", target).sha256 for form in triton.FORMS])
print([triton.atomic("function", op, "i32").sha256 for op in ("add", "max")])
"""
DEBUG_HASHES = """
from harness import emulator
from tests.iris import kernels, triton_kernels as triton
emulator.activate()
print(kernels.rma("put", "fp16").sha256)
print([triton.rma(form, "put", "fp16").sha256 for form in triton.FORMS])
"""


@pytest.mark.nightly
def test_without_a_switch_the_code_is_the_same_as_without_the_checks(tmp_path):
    """Instruction by instruction, on gfx942, gfx950 and sm_90; and with the switch it is another."""
    call = r"\n +check\(.*\)(?=\n)"
    bare = changed(tmp_path, (GLUON, call, ""), (OPS, call, ""))
    source = "".join((bare / "iris_under_test" / file).read_text() for file in (GLUON, OPS))
    assert not re.search(r"^ +check\(", source, re.MULTILINE)
    ours = python(HASHES)
    assert len(ours.splitlines()) == 5
    assert python(HASHES, bare) == ours
    debug = re.findall(r"\w{64}", python(DEBUG_HASHES, IRIS_DEBUG="1"))
    assert len(set(debug)) == 2, "the two forms in Triton are one code"
    assert not any(code in ours for code in debug)


PUT = """
import torch, triton, triton.language as tl
import iris_under_test as iris
from harness import emulator

@triton.jit
def kernel(bases, data, rank):
    iris.store(data + 100, 1, 0, rank, bases)

emulator.activate()
heap = torch.zeros(101, dtype=torch.int32)
bases = torch.tensor([400, 0, 0, 1, heap.data_ptr()])[4:]
try:
    kernel[(1,)](bases, heap, 0)
    print("no fault")
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.nightly
def test_the_switches(tmp_path):
    """One source and one cache: each build finds its own code."""
    script = tmp_path / "put.py"
    script.write_text(PUT)
    run = f"import runpy; runpy.run_path({str(script)!r})"
    assert python(run) == "no fault\n"
    for environment in ({"IRIS_DEBUG": "True"}, {"TRITON_DEBUG": "1"}):
        printed = python(run, **environment)
        assert printed.splitlines()[-1].startswith("DeviceAssert"), printed
        for words in ("iris store: pointer outside the heap, in kernel at", "put.py:8'", "touched: 403", "heap: 400"):
            assert words in printed, printed
    assert python(run, IRIS_DEBUG="0") == "no fault\n"


class Instance:
    """The second rank's, which is the one that acts: what the suite's check needs of an Iris."""

    def __init__(self, ranks: int) -> None:
        # Mapped, as real heaps are: malloc's memory may lie too low for an address 8 GiB below it.
        self.heap = torch.frombuffer(mmap.mmap(-1, suite.HEAP), dtype=torch.int32)
        context = [suite.HEAP, 0, 1, ranks, *[self.heap.data_ptr()] * ranks, *[0] * 17]
        self.context, self.ranks = torch.tensor(context)[2:], ranks

    def zeros(self, *_, **__):
        return self.heap

    def get_heap_bases(self):
        return self.context[2 : 2 + self.ranks]

    def get_device_context(self):
        return self.context

    def close(self):
        pass


def finding(form: str) -> str:
    """Return the findings of the suite's check in the library of this process; "" if there are none."""
    from iris_under_test import DeviceContext
    from iris_under_test.device.triton import ops
    from iris_under_test.gluon import IrisDeviceCtx

    emulator.activate().write = lambda text: None
    device = SimpleNamespace(torch_device=torch.device("cpu"), synchronize=lambda: None, lanes=64)
    under_test = SimpleNamespace(
        iris=lambda heap_size: Instance(2), triton_context=DeviceContext, function=lambda op: getattr(ops, op)
    )
    env = SimpleNamespace(
        rank=1,
        world_size=2,
        device=device,
        under_test=under_test,
        device_context=IrisDeviceCtx,
        settle=lambda: None,
        warps=lambda wavefronts: wavefronts,
    )
    actual = [suite.run(env, HostCase("debug", (form, ops))) for ops in suite.OPS]
    return "".join(f"{finding['what']}: {finding['got']}\n" for finding in actual if finding is not None)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "form", "message"),
    [
        (DEBUG, r"last < heap_size", "last <= heap_size + 3", "gluon", "access outside every known allocation"),
        (DEBUG, r", -_lowest\(-place, mask\)", ", -_lowest(-place, None)", "function", "touched: 65539 in the fault"),
        (OPS, r'\n +check\(pointer.*"atomic_or"\)', "", "context", "atomic_or"),
    ],
)
def test_the_suite_finds_wrong_checks(tmp_path, file, pattern, replacement, form, message):
    planted = changed(tmp_path, (file, pattern, replacement))
    actual = python(f"from tests.iris.test_debug_build import finding; print(finding({form!r}))", planted)
    assert actual.strip() and message in actual, actual
