"""``harness.emulator.driver.ahead``: every function that numba compiles is in its list, and modules do not wait for
each other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from triton import knobs

import harness.emulator
from harness import locks
from harness.emulator.driver import ahead
from harness.emulator.native import memory
from harness.errors import HarnessError

PROJECT = Path(__file__).resolve().parents[2]
ROOT = Path(harness.emulator.__file__).parent
ELSEWHERE = {"native/fused.py"}
"""Modules that compile what is not listed: two functions of one line, which take 0.3 s."""


def test_every_module_with_functions_is_listed():
    listed = {name.removeprefix("harness.emulator.").replace(".", "/") + ".py" for name in ahead.MODULES}
    compiling = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if re.search(r"native\.(compile_now|entry)\(", path.read_text())
    }
    assert compiling - listed == ELSEWHERE
    assert all(ahead.compilations(name) for name in ahead.MODULES), "a module without a function to compile"
    native = {path.stem for path in (ROOT / "native").glob("*.py")} - {"__init__"}
    unlisted = {f"harness.emulator.native.{stem}" for stem in native} - set(ahead.MODULES)
    assert not [name for name in unlisted if ahead.compilations(name)]


class Numba:
    """A function that takes no time to compile."""

    stats = SimpleNamespace(cache_misses=0)

    def __init__(self, module: str) -> None:
        self.py_func = SimpleNamespace(__module__=module)
        self.signatures: list[object] = []

    def compile(self, signature: object) -> None:
        self.signatures.append(signature)

    def disable_compile(self) -> None:
        """Do nothing: numba's dispatchers have this method."""


def test_a_module_is_compiled_while_another_one_is(tmp_path, monkeypatch):
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))
    monkeypatch.setattr(memory, "LOCK_LIMIT", 0.2)
    held = locks.FileLock(locks.in_cache(tmp_path, "one.lock"))
    assert held.take()
    try:
        other = Numba("other")
        memory.compile_now({other: ()})
        assert other.signatures == [()]
        with pytest.raises(HarnessError, match=r"numba's compilation .*one\.lock was not free"):
            memory.compile_now({Numba("one"): ()})
    finally:
        held.release()


@pytest.mark.nightly
def test_afterwards_no_mode_compiles_anything(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def run(*module: str) -> str:
        command = [sys.executable, "-m", *module]
        done = subprocess.run(command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    notice = "compiling its functions for this processor"
    printed = run("command_line", "cache", "compile")
    assert notice in printed and "The functions of the emulated device are compiled." in printed
    assert notice not in run("benchmarks.emulator", "--modes", "--repeat", "1", "--only", "small-put")
