"""The code of planned kernels: what is compiled, what is compared, and in which order requirements run then."""

import io
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from command_line.gate import figures, planned
from command_line.gate.choose import Choice
from command_line.gate.figures import RED
from command_line.gate.planned import Code, Planned, _Case, _Kernel, _Side
from command_line.preflight import check_request
from fixtures.planned_rank import Planner
from harness.devices.launches import GpuCode

ROOT = Path(__file__).resolve().parents[2]
REQUEST = check_request("emulated", "gfx942", "2", "ci", "iris_under_test")
TARGET = "emulated:gfx942"
LIMITS = figures.thresholds_in(figures.DEFAULT)["compiled"]
SCREEN = Console(file=io.StringIO())


# -- a rank ------------------------------------------------------------------------------------------------------------


class Function:
    def __init__(self, name):
        self.fn = SimpleNamespace(__name__=name)


def kernel(hash_):
    return SimpleNamespace(hash=hash_, name="copy", metadata_group={"copy.amdgcn": f"/{hash_}"})


def test_a_kernel_of_a_known_source_is_not_compiled():
    planner, compiled = Planner({"a"}), []

    def compile_it():
        compiled.append("b")
        return kernel("1")

    assert planner.compiled(Function("copy"), "a", compile_it) is None
    assert planner.compiled(Function("copy"), "b", compile_it).hash == "1"
    assert compiled == ["b"]
    code = {"name": "copy", "source": "b", "hash": "1", "files": {"copy.amdgcn": "/1"}}
    assert planner.drain() == [{"name": "copy", "source": "a"}, code]
    planner.launcher(None, SimpleNamespace(hash="1"))()  # a later case launches the kernel that Triton has in memory
    assert planner.drain() == [code]
    assert planner.drain() == []


def test_without_known_sources_nothing_is_compiled():
    planner = Planner(None)
    assert planner.compiled(Function("copy"), "a", pytest.fail) is None


# -- the comparison ----------------------------------------------------------------------------------------------------


def one(source, hash_=None, name="copy"):
    return _Kernel(name, source, GpuCode(hash_, name, {}) if hash_ else None)


def case(*kernels, problem="", uncompiled=False):
    return _Case("RMA-PUT-001", kernels, problem, uncompiled)


@pytest.fixture
def compare(tmp_path, monkeypatch):
    """Return a function that compares cases of base and head. The hash of a kernel states how many registers it
    spills."""
    monkeypatch.setattr(
        planned, "_figures", lambda code: {"kernel": code.name, "sha256": code.hash, "spills": int(code.hash)}
    )
    monkeypatch.setattr(planned, "_keep", lambda *arguments: None)

    def compared(*pairs, late=False):
        sides = [
            _Side({(f"group{number}", 0, TARGET): pair[side] for number, pair in enumerate(pairs)}, late=False)
            for side in (0, 1)
        ]
        monkeypatch.setattr(planned._Runs, "sides", lambda *arguments, **options: next(answers))
        answers = iter([tuple(sides), (_Side({}, late=True), sides[1]) if late else tuple(sides)])
        stop = SimpleNamespace(signal=None)
        library = Path("head", "library")
        return planned.compared(Path("base"), library, REQUEST, ["RMA-PUT-001"], tmp_path, 10, stop, LIMITS, SCREEN)

    return compared


def test_equal_sources_and_equal_code_are_the_same(compare):
    result = compare((case(one("a")), case(one("a"))), (case(one("b", "100")), case(one("c", "100"))))
    assert result.code == {"RMA-PUT-001": {"gfx942": Code(same=2)}}
    assert not result.rows and not result.notes


def test_kernels_of_one_name_are_compared_in_their_order_and_the_worst_is_shown(compare):
    before = case(one("a", "100"), one("b", "200"), one("x", name="other"))
    after = case(one("c", "101"), one("d", "300"), one("x", name="other"))
    result = compare((before, after), (before, after))
    assert result.code == {"RMA-PUT-001": {"gfx942": Code(same=1, other=2)}}
    (row,) = result.rows
    assert (row.figure, row.before, row.after, row.change) == ("spills", "200", "300 (worst of 2 kernels)", RED)


def test_kernels_that_only_one_side_launches_are_listed(compare):
    result = compare((case(one("a", "5")), case(one("a", "5"), one("b", "7", "second"))))
    assert result.code == {"RMA-PUT-001": {"gfx942": Code(same=1, other=1)}}
    assert [row.sentence for row in result.rows] == ["RMA-PUT-001: second (gfx942): kernel - -> launched"]


def test_a_kernel_that_only_the_head_cannot_compile_is_broken(compare):
    wrong = case(problem="CompilationError: no", uncompiled=True)
    result = compare((case(one("a", "5")), wrong), (wrong, wrong))
    assert result.broken == ["RMA-PUT-001: a kernel no longer compiles for gfx942: CompilationError: no"]
    assert result.code["RMA-PUT-001"]["gfx942"].unknown == 2


def test_it_is_not_broken_if_the_base_was_not_compiled(compare):
    """The base may not compile either."""
    result = compare((case(one("a")), case(one("b"), problem="CompilationError: no", uncompiled=True)), late=True)
    assert result.broken == []
    assert "compared in part" in result.notes[0]


def test_a_kernel_that_was_not_compiled_in_time_is_a_note(compare):
    result = compare((case(one("a")), case(one("b", "5"))))
    assert result.code == {"RMA-PUT-001": {"gfx942": Code(unknown=1)}}
    assert result.notes == ["the sources of 1 kernel differ, and were not compiled with both libraries"]


def test_the_order_of_a_choice_follows_the_code_and_keeps_every_requirement():
    choice = Choice(dict.fromkeys("ABCDF", ("it changed",)), ("E",))
    code = {
        "A": {"gfx942": Code(same=3), "gfx950": Code(same=3)},
        "C": {"gfx942": Code(same=1), "gfx950": Code(same=1, other=2)},
        "D": {"gfx942": Code(same=1, unknown=1)},
        "F": {"gfx942": Code()},  # without kernels: the change is in code of the host
    }
    assert Planned(code).ordered(choice).order == ("C", "B", "D", "F", "A", "E")


# -- the suite ---------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_changed_kernel_is_found_for_every_target(tmp_path):
    """Whole runs of the suite with two copies of the bundled library: the head's ``put`` stores twice."""
    names = ["RMA-BOOL-001", "TRACE-HOST-001"]
    base, head = tmp_path / "base", tmp_path / "head"
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in (base, head):
        shutil.copytree(ROOT / "iris_under_test", folder / "iris_under_test", ignore=ignore)
    context = head / "iris_under_test" / "device" / "gluon" / "context.py"
    text = context.read_text()
    store = "        gl.store(remote, value, mask=mask, cache_modifier=store_cache_modifier)\n"
    place = text.index(store, text.index("def put("))
    context.write_text(text[:place] + store + text[place:])
    stop = SimpleNamespace(signal=None)
    library = head / "iris_under_test"
    result = planned.compared(base, library, REQUEST, names, tmp_path / "out", 600, stop, LIMITS, SCREEN)
    assert not result.notes and not result.broken
    assert set(result.code) == set(names)
    for arch in ("gfx942", "gfx950"):
        put, traced = (result.code[name][arch] for name in names)
        assert put.other and put.same and not put.unknown, put
        assert traced.same and not traced.other, traced
    assert {row.subject.partition(":")[0] for row in result.rows} == {"RMA-BOOL-001"}
    assert any(row.figure.startswith("accesses") and "store" in row.figure for row in result.rows)
    listings = list((tmp_path / "out" / "gfx950").iterdir())
    assert {path.name.partition(".")[2] for path in listings} == {"base.s", "head.s"}
