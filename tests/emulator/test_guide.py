"""The commands and snippets of docs/emulator.md are run exactly as written."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/emulator.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines()]

# Names that the snippets assume: kernels and tensors of the reader's own.
PREPARED = """
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from examples.handshake import consume as _consume, produce as _produce

@triton.jit
def kernel(x, y, n):
    offsets = tl.arange(0, 64)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) + 1, mask=offsets < n)

class Warps1:
    def __init__(self, kernel, *more):
        self.kernel, self.more = kernel, more
    def __getitem__(self, grid):
        return lambda *arguments: self.kernel[grid](*arguments, *self.more, num_warps=1)

produce, consume = Warps1(_produce, "release"), Warps1(_consume)
grid, n = (1,), 40
x, y = torch.zeros(64), torch.zeros(64)
inbox, out = torch.zeros(2, 64, dtype=torch.int32)
flag = torch.zeros(1, dtype=torch.int32)
"""
CHECKED = """
assert y.sum() == 40
assert out.tolist() == list(range(1, 65))
assert [launch.kernel for launch in driver.drain_launches()] == ["produce", "consume"]
"""


def run(arguments: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    return subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_guide_has_commands():
    assert len(COMMANDS) >= 6


@pytest.mark.nightly
@pytest.mark.parametrize("command", COMMANDS)
def test_command(command, tmp_path):
    for name in ("examples", "benchmarks", "harness", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    first, *rest = shlex.split(command)
    assert first in ("python", "iris-harness")
    if first == "iris-harness":
        rest = ["-m", "command_line", *rest]
    if "~/.triton/cache" in rest:
        # A cache with one kernel in it stands for the reader's own.
        rest[rest.index("~/.triton/cache")] = str(tmp_path / "cache")
        prepared = run([sys.executable, "examples/softmax.py"], tmp_path, TRITON_CACHE_DIR=str(tmp_path / "cache"))
        assert prepared.returncode == 0, prepared.stderr
    if "benchmarks.emulator" in rest:
        rest += ["--repeat", "1"]
    done = run([sys.executable, *rest], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() or list(tmp_path.glob("*.json"))


@pytest.mark.slow
def test_snippets(tmp_path):
    script = tmp_path / "snippets.py"
    script.write_text("\n".join([PREPARED, *blocks("python"), CHECKED]), encoding="utf-8")
    done = run([sys.executable, str(script)], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
