"""The choice for planted changes: units, references, the map, and the choice. Each test plants a change."""

import dataclasses
import json

import pytest

from command_line.gate import reach
from command_line.gate.choose import choose, groups_of_reasons
from command_line.gate.reach import suite_digests
from command_line.gate.units import Sources
from harness.errors import HarnessError, UsageError
from tests.gate import library

BOTH = ("PUT", "GET")


@pytest.fixture
def folder(tmp_path):
    return library.write(tmp_path)


def chosen(folder, known, files=(), names=BOTH, environment=None):
    units = Sources(folder / "lib").digests()
    return choose(names, known, units, suite_digests(folder / "suite"), files, "lib", "suite", environment)


def test_without_a_change_nothing_is_chosen(folder):
    choice = chosen(folder, library.map_of(folder))
    assert (dict(choice.reasons), choice.rest) == ({}, BOTH)


HOST, HELPERS, KERNELS, VENDOR = (f"lib/core/{name}.py" for name in ("host", "helpers", "kernels", "vendor"))
BODY, OTHER = "def {}(pointer):\n    pass", "def {}(pointer):\n    return"

CHANGES = {
    "a method that only PUT calls": (HOST, "return checked(n)", "return checked(n + 1)", ["PUT"]),
    "a method that only GET calls": (HOST, "        return n\n", "        return n + 1\n", ["GET"]),
    "a helper behind PUT": (HELPERS, "n < 10", "n < 11", ["PUT"]),
    "a function that nothing calls": (HELPERS, "def unused(n):\n    return n", "def unused(n):\n    return 1", []),
    "the class of both": (HOST, 'kind = "plain"', 'kind = "other"', ["GET", "PUT"]),
    "a new method of the class of both": (
        HOST, "    def get", "    def __len__(self):\n        return 1\n\n    def get", ["GET", "PUT"],
    ),
    "a constant that nothing names": (HOST, "LIMIT = 4", "LIMIT = 5", []),
    "a kernel's method, through its context": (KERNELS, "        publish_all(pointer)\n", "        pass\n", ["PUT"]),
    "a kernel's other method": (KERNELS, "tl.load(pointer)", "pass", []),
    "a function of a module that is a value": (VENDOR, BODY.format("publish"), OTHER.format("publish"), ["PUT"]),
    "another function of that module": (VENDOR, BODY.format("observe"), OTHER.format("observe"), []),
    "a name that Triton has too": (KERNELS, BODY.format("load"), OTHER.format("load"), []),
    "an import": (HOST, "from .helpers import checked", "from .helpers import unused as checked", ["PUT"]),
    "code at the top of a module": (HELPERS, "def unused", "print()\n\n\ndef unused", None),
    "a new name in the package itself": ("lib/__init__.py", '"""A library."""\n', "x = 1\n", []),
    "what one test imports": ("suite/support.py", "WORDS = 1", "WORDS = 2", ["PUT"]),
    "a test": ("suite/test_get.py", "", "x = 1\n", ["GET"]),
    "a comment": (HELPERS, "def checked(n):\n", "# Why.\n\n\ndef checked(n):\n    # Because.\n", []),
    "a docstring": (HOST, '"""Put."""', '"""Put it."""', []),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_chooses_what_reaches_it(folder, name):
    file, old, new, expected = CHANGES[name]
    known = library.map_of(folder)
    if old:
        library.edit(folder, file, old, new)
    else:
        (folder / file).write_text(new)
    choice = chosen(folder, known)
    assert sorted(choice.reasons) == (sorted(BOTH) if expected is None else expected)


def test_a_reason_names_the_unit(folder):
    known = library.map_of(folder)
    library.edit(folder, "lib/core/helpers.py", "n < 10", "n < 11")
    assert chosen(folder, known).reasons["PUT"] == ("it reaches lib/core/helpers.py:checked, which changed",)


def test_a_change_of_the_package_itself_that_is_not_new_affects_all(tmp_path):
    folder = library.write(tmp_path, lib____init__="from .core.host import Instance\n")
    known = library.map_of(folder)
    (folder / "lib/__init__.py").write_text("from .core.helpers import checked as Instance\n")
    assert set(chosen(folder, known).reasons) == set(BOTH)


def test_what_is_not_in_the_map_runs(folder):
    choice = chosen(folder, library.map_of(folder), names=(*BOTH, "NEW"))
    assert choice.reasons["NEW"] == ("what it reaches is unknown: the map does not have it",)


def test_what_could_not_be_recorded_runs(folder):
    lines = library.records(folder)
    lines[0]["problem"] = "ValueError: no"
    run = {"level": "gate", "arch": "gfx942", "triton": "1", "harness": "0"}
    known = reach.made(lines, {}, "lib", folder / "lib", folder / "suite", run)
    assert list(chosen(folder, known).reasons) == ["PUT"]


def test_without_a_map_everything_runs(folder):
    assert set(chosen(folder, None).reasons) == set(BOTH)


def test_another_triton_affects_everything(folder):
    known = library.map_of(folder)
    choice = chosen(folder, known, environment={"triton": "2"})
    assert choice.reasons["GET"] == ("triton is 2, and the map was recorded with 1",)


@pytest.mark.parametrize(
    ("file", "everything"),
    [
        ("pyproject.toml", True), ("fixtures/rig.py", True), ("harness/cases/x.py", True), ("new/thing", True),
        ("docs/gate.md", False), ("tests/gate/x.py", False), ("lib/core/host.py", False), ("suite/x.py", False),
        ("command_line/suite/run.py", True), ("command_line/bench/run.py", False), ("docsx/y.md", True),
    ],
)  # fmt: skip
def test_other_files_affect_everything_unless_no_run_depends_on_them(folder, file, everything):
    assert bool(chosen(folder, library.map_of(folder), [file]).reasons) is everything


def test_data_of_the_suite_affects_everything(folder):
    known = library.map_of(folder)
    (folder / "suite/requirements.toml").write_text("[[requirement]]")
    assert set(chosen(folder, known).reasons) == set(BOTH)


def test_data_of_the_library_affects_everything(folder):
    known = library.map_of(folder)
    (folder / "lib/table.json").write_text("{}")
    assert set(chosen(folder, known).reasons) == set(BOTH)


def test_what_touches_more_of_the_change_comes_first(folder):
    known = library.map_of(folder)
    library.edit(folder, "lib/core/host.py", 'kind = "plain"', 'kind = "other"')
    library.edit(folder, "lib/core/helpers.py", "n < 10", "n < 11")
    choice = chosen(folder, known, names=("GET", "PUT"))
    assert choice.order == ("PUT", "GET")


def test_a_map_is_read_as_it_was_written(folder, tmp_path):
    known = library.map_of(folder)
    reach.write(known, tmp_path / "map.json")
    assert reach.read(tmp_path / "map.json") == known


def test_a_recording_without_its_end_is_no_map(folder):
    run = {"level": "gate", "arch": "gfx942", "triton": "1", "harness": "0"}
    with pytest.raises(HarnessError, match="did not come to its end"):
        reach.made(library.records(folder)[:-1], {}, "lib", folder / "lib", folder / "suite", run)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda plain: plain.update(schema=1), "2 was expected"),
        (lambda plain: plain["requirements"]["PUT"].update(units="0-100000"), "does not have"),
        (lambda plain: plain["requirements"]["PUT"].update(suite="1-0"), "range 1-0 is empty"),
        (lambda plain: plain["requirements"]["PUT"].update(units="0 -1"), "does not match"),
        (lambda plain: plain["requirements"]["PUT"].update(units=[0]), "is not of type 'string'"),
        (lambda plain: plain["units"].update({"lib/core/host.py:LIMIT": "x"}), "does not match"),
        (lambda plain: plain.pop("suite"), "required property"),
    ],
)
def test_a_damaged_map_is_refused(folder, tmp_path, change, problem):
    path = tmp_path / "map.json"
    reach.write(library.map_of(folder), path)
    plain = json.loads(path.read_text())
    change(plain)
    path.write_text(json.dumps(plain))
    with pytest.raises(UsageError, match=problem):
        reach.read(path)


def test_source_that_is_not_python_is_named(folder):
    (folder / "lib/core/host.py").write_text("def f(:\n")
    with pytest.raises(UsageError, match=r"lib/core/host\.py:1 is not Python source"):
        Sources(folder / "lib")


def test_on_another_device_a_unit_that_no_requirement_reaches_may_be_reached_by_all(folder):
    known = library.map_of(folder)
    library.edit(folder, HELPERS, "def unused(n):\n    return n", "def unused(n):\n    return 1")
    units, suite = Sources(folder / "lib").digests(), suite_digests(folder / "suite")
    choice = choose(BOTH, known, units, suite, elsewhere="the map is of device emulated")
    assert set(choice.reasons) == set(BOTH)
    assert choice.reasons["PUT"] == (f"{HELPERS}:unused changed, and the map is of device emulated",)


def test_a_map_that_was_recorded_with_the_change_hides_nothing(folder):
    library.edit(folder, "lib/core/host.py", "return checked(n)", "return checked(n + 1)")
    (folder / "suite/test_get.py").write_text((folder / "suite/test_get.py").read_text() + "x = 1\n")
    known = library.map_of(folder)
    units, files = Sources(folder / "lib").digests(), ("lib/core/host.py", "suite/test_get.py")
    since = {"lib/core/host.py:Instance.put": "changed"}
    suite = suite_digests(folder / "suite")
    choice = choose(BOTH, known, units, suite, files, "lib", "suite", since_base=since)
    assert sorted(choice.reasons) == ["GET", "PUT"]
    assert choice.reasons["PUT"] == ("it reaches lib/core/host.py:Instance.put, which changed",)
    assert choice.reasons["GET"] == ("its test imports suite/test_get.py, which changed",)


def test_reasons_count_what_they_do_not_name(folder):
    known = library.map_of(folder)
    library.edit(folder, "lib/core/helpers.py", "n < 10", "n < 11")
    library.edit(folder, "lib/core/host.py", 'kind = "plain"', 'kind = "other"')
    (folder / "suite/support.py").write_text("WORDS = 2\n")
    reasons = chosen(folder, known).reasons["PUT"]
    assert reasons == (
        "it reaches lib/core/helpers.py:checked, which changed and 1 more",
        "its test imports suite/support.py, which changed",
    ), "the function before the class around it"


def test_a_method_is_named_before_its_class(folder):
    known = library.map_of(folder)
    library.edit(folder, HOST, 'kind = "plain"', 'kind = "other"')
    library.edit(folder, HOST, "return checked(n)", "return checked(n + 1)")
    assert chosen(folder, known).reasons["PUT"] == (
        "it reaches lib/core/host.py:Instance.put, which changed and 1 more",
    )
    library.edit(folder, HOST, "return checked(n + 1)", "return checked(n)")
    library.edit(folder, KERNELS, "    table.publish(pointer)\n", "    pass\n")
    reasons = chosen(folder, known).reasons["PUT"]
    assert reasons == ("it reaches lib/core/kernels.py:publish_all, which changed and 1 more",), "so is a function"


def test_all_changed_files_of_a_test_are_counted(folder):
    known = library.map_of(folder)
    for file in ("suite/support.py", "suite/test_put.py"):
        (folder / file).write_text((folder / file).read_text() + "x = 1\n")
    (reason,) = chosen(folder, known).reasons["PUT"]
    assert reason.startswith("its test imports suite/") and reason.endswith(", which changed and 1 more")


def test_what_touches_the_change_comes_before_what_is_unknown(folder):
    known = library.map_of(folder)
    library.edit(folder, HELPERS, "n < 10", "n < 11")
    assert chosen(folder, known, names=("NEW", *BOTH)).order == ("PUT", "NEW", "GET")


def test_a_unit_that_is_known_to_be_reached_affects_only_those_that_reach_it(folder):
    """Also a public name, and also on another device."""
    known = library.map_of(folder)
    name = "lib/__init__.py:put"
    put = dataclasses.replace(known.requirements["PUT"], units=known.requirements["PUT"].units | {name})
    known = dataclasses.replace(known, requirements={**known.requirements, "PUT": put})
    units, suite = Sources(folder / "lib").digests(), suite_digests(folder / "suite")
    for unit in (name, f"{HELPERS}:checked"):
        for elsewhere in ("", "this run is on rocm"):
            choice = choose(
                BOTH, known, units, suite, (), "lib", "suite", elsewhere=elsewhere, since_base={unit: "changed"}
            )
            assert (list(choice.reasons), choice.everything) == (["PUT"], ()), unit


@pytest.mark.parametrize(
    ("library_folder", "suite_folder", "file", "reasons"),
    [
        ("lib", "python/suite", "python/suite/test_get.py", ["GET"]),
        ("lib", "python/suite", "python/other.py", ["GET", "PUT"]),
        ("lib", "python/suite", "new/thing", ["GET", "PUT"]),
        ("lib", None, "suite/test_get.py", ["GET", "PUT"]),  # a folder of the library's repository
        ("lib", None, "README.md", []),
        ("", "suite", "pyproject.toml", ["GET", "PUT"]),  # the repository does not have the library
    ],
)
def test_files_are_those_of_the_library_or_of_the_suite_by_their_folders(
    folder, library_folder, suite_folder, file, reasons
):
    units, suite = Sources(folder / "lib").digests(), suite_digests(folder / "suite")
    choice = choose(BOTH, library.map_of(folder), units, suite, [file], library_folder, suite_folder)
    assert sorted(choice.reasons) == reasons


def test_a_reason_is_stated_once_for_all_its_requirements(folder):
    choice = chosen(folder, None)
    [(reason, names)] = groups_of_reasons(choice).items()
    assert reason.startswith("there is no map") and names == BOTH
    assert choice.everything == (reason,)


def test_what_a_map_recorded_with_the_change_does_not_show(folder):
    """The units that differ from the base count as well."""
    known = library.map_of(folder)
    units, suite = Sources(folder / "lib").digests(), suite_digests(folder / "suite")
    unit = "lib/core/helpers.py:checked"
    choice = choose(BOTH, known, units, suite, (), "lib", "suite", since_base={unit: "changed"})
    assert list(choice.reasons) == ["PUT"] and choice.rest == ("GET",) and choice.everything == ()


@pytest.mark.parametrize(("word", "everything"), [("changed", True), ("removed", True), ("new", False)])
def test_on_another_device_all_may_reach_a_unit_that_none_is_known_to_reach(folder, word, everything):
    known = library.map_of(folder)
    units, suite = Sources(folder / "lib").digests(), suite_digests(folder / "suite")
    since_base = {"lib/core/helpers.py:unused": word}
    for elsewhere in ("", "this run is on rocm"):
        choice = choose(BOTH, known, units, suite, (), "lib", "suite", elsewhere=elsewhere, since_base=since_base)
        assert bool(choice.everything) is (everything and bool(elsewhere)), choice.everything
        assert set(choice.reasons) == (set(BOTH) if choice.everything else set())


@pytest.mark.parametrize(
    ("unit", "word", "everything"),
    [
        ("lib/__init__.py:removed", "removed", True), ("lib/__init__.py:added", "new", False),
        ("lib/core/__init__.py:gone", "changed", True), ("lib/top.py:gone", "changed", True),
        ("lib/core/deep.py:gone", "changed", False),
        ("lib/core/table.json:", "new", True),
    ],
)  # fmt: skip
def test_a_public_name_that_none_is_known_to_reach_affects_all(folder, unit, word, everything):
    known = library.map_of(folder)
    units, suite = Sources(folder / "lib").digests(), suite_digests(folder / "suite")
    choice = choose(BOTH, known, units, suite, (), "lib", "suite", since_base={unit: word})
    assert bool(choice.everything) is everything, choice.everything
