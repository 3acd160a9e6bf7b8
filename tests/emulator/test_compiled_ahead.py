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
from harness.emulator import compilation
from harness.emulator.driver import ahead
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
        if re.search(r"compilation\.(compile_now|entry)\(", path.read_text())
    }
    assert compiling - listed == ELSEWHERE
    assert all(ahead.units(name) for name in ahead.MODULES), "a module without a function to compile"
    native = {path.stem for path in (ROOT / "native").glob("*.py")} - {"__init__"}
    unlisted = {f"harness.emulator.native.{stem}" for stem in native} - set(ahead.MODULES)
    assert not [name for name in unlisted if ahead.units(name)]


class Numba:
    """A function that takes no time to compile."""

    def __init__(self, module: str, folder: Path, source: str = __file__) -> None:
        code = SimpleNamespace(co_filename=source)
        self.py_func = SimpleNamespace(__module__=module, __name__="f", __qualname__="f", __code__=code)
        self.stats = SimpleNamespace(cache_misses=0, cache_path=str(folder))
        self.signatures: list[object] = []

    def compile(self, signature: object) -> None:
        self.signatures.append(signature)

    def disable_compile(self) -> None:
        """Do nothing: numba's dispatchers have this method."""


def test_a_module_is_compiled_while_another_one_is(tmp_path, monkeypatch):
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))
    monkeypatch.setattr(compilation, "LOCK_LIMIT", 0.2)
    with locks.held(locks.in_cache(tmp_path, "one.lock"), 1.0, "this test"):
        other = Numba("other", tmp_path)
        compilation.compile_now({other: ()})
        assert other.signatures == [()]
        with pytest.raises(HarnessError, match=r"numba's compilation .*one\.lock was not free"):
            compilation.compile_now({Numba("one", tmp_path): ()})


def test_what_is_on_disk_is_loaded_while_its_module_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))
    monkeypatch.setattr(compilation, "LOCK_LIMIT", 0.2)
    (source := tmp_path / "source.py").write_text("")
    (changed := tmp_path / "changed.py").write_text("# changed")

    def function(file: Path = source) -> Numba:
        return Numba("one", tmp_path, str(file))

    assert not compilation.is_compiled(function())
    compilation.compile_now({function(): ()})
    assert compilation.is_compiled(function())
    with locks.held(locks.in_cache(tmp_path, "one.lock"), 1.0, "this test"):
        compilation.compile_now({function(): ()})
        assert not compilation.is_compiled(function(changed))
        with pytest.raises(HarnessError, match=r"one\.lock was not free"):
            compilation.compile_now({function(changed): ()})
    compilation.compile_now({function(changed): ()})
    assert not compilation.is_compiled(function()), "numba keeps the code of the last source only"


def test_a_compilation_that_fails_leaves_no_marker(tmp_path, monkeypatch):
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))
    function = Numba("one", tmp_path)
    function.compile = lambda signature: 1 / 0
    with pytest.raises(ZeroDivisionError):
        compilation.compile_now({function: ()})
    assert not compilation.is_compiled(function)


def test_only_what_is_on_disk_is_loaded_before_a_fork(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def run(code: str) -> str:
        begin = "from harness.emulator.driver import ahead; from harness.emulator.native import banks, flows, scalar\n"
        command = [sys.executable, "-c", begin + code]
        done = subprocess.run(command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=True)
        assert "compiling its functions" not in done.stderr or "compile_module" in code
        return done.stdout

    run("[ahead.compile_module(module.__name__) for module in (banks, scalar)]")
    loaded = "[module.__name__ for module in (banks, flows, scalar) if all(f.signatures for f in module._SIGNATURES)]"
    names = run(f"ahead.load_compiled(); print(*{loaded})").split()
    assert names == ["harness.emulator.native.banks", "harness.emulator.native.scalar"]


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
