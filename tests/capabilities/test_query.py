"""A library is queried in a child process: what is there, what is missing, and what is judged in doubt."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from tests.capabilities.libraries import NAMES, queried, word, write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


def test_names_of_the_package_of_classes_and_of_modules(folder: Path) -> None:
    answer = queried(write(folder))
    assert {name for name in answer.states if word(answer, name) == "missing"} == {"get", "Iris.free", "ccl.broadcast"}
    assert answer.states["put"] == "present: (pointer, value, mask=None)"
    assert answer.states["ccl.all_gather"] == "present: (output, input, ctx)", "the function, not the module"
    assert answer.lacking(["put", "Iris.heap"]) is None
    assert answer.lacking(["put", "get", "ccl.broadcast"]) == "needs get, ccl.broadcast"
    assert "small_iris" not in sys.modules, "this process does not import it"


def test_a_need_may_have_a_parameter_of_the_test(folder: Path) -> None:
    answer = queried(write(folder))
    assert answer.lacking(["ccl.{op}"], {"op": "all_gather"}) is None
    assert answer.lacking(["ccl.{op}"], {"op": "broadcast"}) == "needs ccl.broadcast"
    assert answer.lacking(["ccl.{op}"]) is None, "without parameters only needs that all groups have count"


def test_a_parameter_of_a_function_is_a_capability(folder: Path) -> None:
    answer = queried(write(folder), "iris(allocator_type)", "iris(protocol)", "put(mask)", "nothing(mask)")
    states = {name: word(answer, name) for name in answer.states}
    assert states["iris(allocator_type)"] == states["put(mask)"] == "present"
    assert states["iris(protocol)"] == states["nothing(mask)"] == "missing"


def test_an_op_that_raises_is_there_so_that_it_is_judged(folder: Path) -> None:
    """Planted: a library cannot make a red requirement unsupported by what an op does when it is called."""
    name = write(
        folder, init="def iris(): ...\ndef put(*a, **k):\n    raise NotImplementedError('not on this device')\n"
    )
    assert word(queried(name), "put") == "present"


@pytest.mark.parametrize(
    "init",
    [
        "raise ImportError('no device')",
        "import no_such_module_of_the_library",
        "import os\nos._exit(0)",
        "import sys\nsys.exit('no device')",
    ],
)
def test_an_import_that_fails_makes_nothing_unsupported(folder: Path, init: str) -> None:
    answer = queried(write(folder, init=init))
    assert all(answer.lacking([name]) is None for name in NAMES.names), answer.states


def test_a_module_that_cannot_be_imported_is_not_a_missing_module(folder: Path) -> None:
    name = write(folder)
    (folder / name / "ccl" / "__init__.py").write_text("raise RuntimeError('broken')", encoding="utf-8")
    answer = queried(name)
    assert word(answer, "ccl.all_gather") == "unknown" and "RuntimeError: broken" in answer.states["ccl.all_gather"]
    assert word(answer, "put") == "present"


def test_output_of_the_library_is_not_taken_for_an_answer(folder: Path) -> None:
    answer = queried(write(folder, init='print(\'{"put": ["missing", ""]}\')\ndef iris(): ...\ndef put(): ...\n'))
    assert word(answer, "put") == "present"


DELEGATING = """
class _Inner:
    heap = zeros = None

class Iris:
    def __init__(self, size=1):
        self._inner = _Inner()
    def __getattr__(self, name):
        return getattr(self.__dict__["_inner"], name)

def iris(size=1):
    return Iris(size)
"""


@pytest.mark.slow
def test_an_instance_is_asked_for_what_its_class_does_not_show(folder: Path) -> None:
    name = write(folder, init=DELEGATING)
    assert {word(queried(name), member) for member in ("Iris.zeros", "Iris.free")} == {"unknown"}
    answer = queried(name, device=("emulated", "gfx942", "fast"))
    assert (word(answer, "Iris.zeros"), word(answer, "Iris.free")) == ("present", "missing")


def test_members_stay_unknown_if_no_instance_can_be_made(folder: Path) -> None:
    name = write(folder, init=DELEGATING.replace("return Iris(size)", "raise RuntimeError('no fabric')"))
    answer = queried(name, device=("emulated", "gfx942", "fast"))
    assert word(answer, "Iris.free") == "unknown" and "RuntimeError: no fabric" in answer.states["Iris.free"]
    assert answer.lacking(["Iris.free"]) is None
