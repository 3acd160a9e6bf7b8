"""Child processes inherit the emulated device: spawned, by subprocess, and workers of pytest-xdist."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from harness import emulated_device, emulator
from harness.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import torch, triton, triton.language as tl

@triton.jit
def double(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i) * 2)

def test_double():
    x, y = torch.arange(64), torch.zeros(64, dtype=torch.int64)
    double[(1,)](x, y, 64)
    assert torch.equal(y, 2 * x)
    driver = triton.runtime.driver.active
    assert driver.arch == "gfx950", driver
    assert triton.backends.backends["amd"].driver.is_active()
    print(driver.arch, driver.watch.name if driver.watch else "fast")

if __name__ == "__main__":
    test_double()
"""


@triton.jit
def double(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i) * 2)


def _child(queue):
    x, y = torch.arange(64), torch.zeros(64, dtype=torch.int64)
    double[(1,)](x, y, 64)
    queue.put((triton.runtime.driver.active.arch, torch.equal(y, 2 * x)))


def environment():
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@pytest.fixture
def inheriting():
    """Activate the device so that child processes inherit it."""
    before = environment()
    emulator.activate("gfx950", mode="check", inherit=True)
    yield
    emulator.deactivate()
    assert environment() == before, "deactivate restores the environment"


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "test_program.py"
    file.write_text(PROGRAM)
    return file


def python(*arguments, **options):
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300, **options
    )


def test_subprocess(inheriting, program):
    done = python("-c", f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, {str(program)!r}]))")
    assert (done.returncode, done.stdout) == (0, "gfx950 check\n"), f"a child of a child: {done.stderr}"
    lean = python("-c", "import sys; print('triton' in sys.modules, 'torch' in sys.modules, 'numpy' in sys.modules)")
    assert lean.stdout == "False False False\n", "nothing is imported that the child does not use"


def test_without_it_a_child_has_no_device(program):
    emulator.activate("gfx950")
    try:
        assert emulated_device.VARIABLE not in os.environ
        done = python(program)
    finally:
        emulator.deactivate()
    assert done.returncode != 0
    assert "0 active drivers" in done.stderr or "no GPU" in done.stderr or "driver" in done.stderr


def test_spawned(inheriting):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_child, args=(queue,))
    process.start()
    try:
        assert queue.get(timeout=240) == ("gfx950", True)
    finally:
        process.join(60)
        process.kill()
    assert process.exitcode == 0


@pytest.mark.nightly
def test_workers_of_xdist(inheriting, program):
    pytest.importorskip("xdist")
    done = python("-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", program, cwd=program.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_activate_again_replaces_it():
    before = environment()
    emulator.activate("gfx942", inherit=True)
    assert os.environ[emulated_device.VARIABLE] == "gfx942"
    emulator.activate("gfx950", mode="weak", choices=7, inherit=True)
    assert os.environ[emulated_device.VARIABLE] == "gfx950 weak 7"
    assert os.environ["PYTHONPATH"].count(str(emulated_device.STARTUP)) == 1
    emulator.activate("gfx942")
    assert environment() == before
    emulator.deactivate()


def test_what_cannot_be_passed_is_refused():
    for arguments in ({"mode": "check", "strict_barriers": True}, {"kind": emulator.EmulatedDriver}):
        with pytest.raises(ValueError, match="inherit passes the arch, the mode and a seed"):
            emulator.activate("gfx942", inherit=True, **arguments)
    assert emulated_device.VARIABLE not in os.environ
    emulator.deactivate()


@pytest.mark.parametrize("text", ["", "gfx942 weak x", "gfx942 weak 7 8"])
def test_a_variable_of_another_form(text, program):
    with pytest.raises(UsageError, match="expected ARCH"):
        emulated_device.Inherited.parse(text)
    path = os.pathsep.join([str(emulated_device.STARTUP), str(ROOT)])
    done = python("-c", "print('ran')", env={**os.environ, emulated_device.VARIABLE: text, "PYTHONPATH": path})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("iris-harness emulate: IRIS_HARNESS_DEVICE: expected ARCH [MODE [SEED]]")
    assert done.stderr.count("\n") == 1
