"""Machine code that numba keeps on disk is compiled anew when a function that it calls has changed in another file."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from harness.emulator import stamps
from harness.emulator.driver import single
from harness.emulator.native import raw, words
from harness.emulator.watch.check import compiled

HARNESS = Path(stamps.__file__).parents[1]
TAKE = """
import sys, types
package = types.ModuleType("harness.emulator")  # without what it imports, for seconds less
package.__path__ = ["harness/emulator"]
sys.modules["harness.emulator"] = package
import numpy as np
from harness.emulator.native import local, record
local.prepare()
source = np.arange(record.VECTORS // 8 + 64)
target = np.zeros_like(source)
local.take(target.ctypes.data, source.ctypes.data, 0, 0)
print(int(target[1]), sum(local.take.stats.cache_hits.values()))
"""


def test_code_of_a_changed_helper_is_not_used_again(tmp_path: Path) -> None:
    """``take`` calls ``copy`` of another file, which is changed to copy nothing."""
    shutil.copytree(HARNESS, tmp_path / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    native = tmp_path / "harness/emulator/native"

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "-c", TAKE],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert run() == "1 0"
    with (native / "mfma.py").open("a") as file:
        file.write("\n# take does not call this file\n")
    assert run() == "1 1"
    text = (native / "raw.py").read_text()
    copies = "cgutils.raw_memcpy(builder, *places, args[2], 1)"
    assert text.count(copies) == 1
    (native / "raw.py").write_text(text.replace(copies, "pass"))
    assert run() == "0 0"


def test_the_stamp_covers_every_function_of_other_files_that_compiled_code_can_call() -> None:
    names = [name for name in sys.modules if name.startswith("harness.emulator.native.")]
    assert len(names) > 20
    assert not [function for name in names for function in _not_covered(sys.modules[name])]
    assert not _not_covered(single) + _not_covered(compiled)


def test_a_function_of_a_file_that_is_not_imported_is_named() -> None:
    """The test above can fail."""
    module = ModuleType("words")
    module.__file__, module.copy = words.__file__, raw.copy  # type: ignore[attr-defined]
    assert _not_covered(module) == ["words.copy is of raw.py"]


def _not_covered(module: ModuleType) -> list[str]:
    """Name numba's functions in a module's namespace whose file is not in the stamp of the module's file."""
    sources = stamps.sources_of(Path(inspect.getfile(module)))
    missing = []
    for name, value in vars(module).items():
        # a function that is compiled, and one that emits code
        function = getattr(value, "py_func", None) or getattr(value, "_defn", None)
        if inspect.isfunction(function) and (home := Path(inspect.getfile(function))) not in sources:
            missing.append(f"{module.__name__}.{name} is of {home.name}")
    return missing
