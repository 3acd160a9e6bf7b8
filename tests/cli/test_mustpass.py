"""The lists of the groups that a complete run has: they are those of the tests, and a run has to have them."""

import json
import os
import re
import secrets
import shlex
import sys
from dataclasses import replace

import click
import pytest

from command_line import mustpass, preflight
from command_line.main import cli
from command_line.main import run as command
from command_line.preflight import check_request, with_profile
from fixtures.coverage import Coverage
from fixtures.hardware import hardware_of, profiles
from fixtures.levels import LEVELS
from fixtures.mustpass import check_plan, installed
from fixtures.options import Options
from harness.errors import HarnessError, UsageError
from harness.evidence import APIS, EXTENDED, Plan, PlannedGroup, read
from harness.evidence.mustpass import parse_list, to_text
from harness.evidence.quarantine import read_quarantine
from harness.evidence.waivers import read_waivers
from tests import python
from tests.devices import fakes
from tests.fixtures.test_options import GOOD
from tests.fixtures.test_rig import ROOT, gpus_only

__all__ = ["gpus_only"]
LISTED = [level.name for level in mustpass.LISTED]


def test_the_lists_are_those_of_the_tests():
    different = [mustpass.first_difference(path, text) for path, text in mustpass.outdated().items()]
    assert different == [], "write the lists again with: iris-harness mustpass write"


def test_each_listed_level_has_its_own_groups():
    assert LISTED == ["gate", "core", "full", "stress"]
    for name in LISTED:
        listed = installed(name)
        for profile in profiles():
            assert len(listed.groups(profile, "extended")) > 400
            assert listed.groups(profile, "published") < listed.groups(profile, "extended")
    sizes = [len(installed(name).groups("h200-8", "extended")) for name in LISTED]
    assert sizes[0] < sizes[1] < sizes[2] == sizes[3]


@pytest.fixture
def copied(monkeypatch, tmp_path):
    """Return a copy of the list of level gate, which is the only level."""
    monkeypatch.setattr(mustpass, "LISTED", (LEVELS["gate"],))
    monkeypatch.setattr(mustpass, "installed_list", lambda level: tmp_path / f"{level}.toml")
    (tmp_path / "gate.toml").write_bytes((ROOT / "conformance" / "mustpass" / "gate.toml").read_bytes())
    return tmp_path / "gate.toml"


def test_a_test_that_is_removed_or_added_is_found_and_written(copied, monkeypatch, capsys):
    """Planted: a test without its list, and a list without its test."""
    tests, original = mustpass.properties(), copied.read_text()
    barrier = next(each for each in tests if each.requirement == "CCL-BARRIER-001")
    assert command(["mustpass", "check"]) == 0
    monkeypatch.setattr(mustpass, "properties", lambda: tuple(each for each in tests if each is not barrier))
    assert command(["mustpass", "check"]) == 1
    line = capsys.readouterr().err
    assert "gate.toml has 'CCL-BARRIER-001[ranks=" in line and "write it again with iris-harness mustpass write" in line
    assert command(["mustpass", "write"]) == 0
    assert "written: mustpass/gate.toml" in capsys.readouterr().out
    assert "CCL-BARRIER-001" not in copied.read_text()
    monkeypatch.setattr(mustpass, "properties", lambda: tests)
    assert command(["mustpass", "check"]) == 1
    assert "gate.toml lacks 'CCL-BARRIER-001[ranks=" in capsys.readouterr().err
    assert command(["mustpass", "write"]) == 0
    assert copied.read_text() == original


def test_a_test_that_no_run_of_a_level_can_run_is_an_error():
    """Planted: a test for 64 ranks. A level that leaves it out could never be complete."""
    barrier = next(each for each in mustpass.properties() if each.requirement == "CCL-BARRIER-001")
    with pytest.raises(HarnessError, match=r"level gate has the group CCL-BARRIER.*needs 64 ranks"):
        mustpass.list_of(LEVELS["gate"], [replace(barrier, ranks=64)])


def test_a_list_is_the_same_after_writing_and_reading():
    for name in LISTED:
        text = (ROOT / "conformance" / "mustpass" / f"{name}.toml").read_text()
        assert to_text(parse_list(text.encode(), name)) == text


@pytest.mark.parametrize(
    "content",
    [b"\xff", b"suite = ", b"", b"profiles = 3\npart = []", b"suite = 1\nlevel = 'gate'\nprofiles = {}\npart = []"],
)
def test_a_file_that_is_not_a_list(content):
    with pytest.raises(UsageError, match=r"^core is not"):
        parse_list(content, "core")


# -- a run ----------------------------------------------------------------------------------------------------------


IN_CI = (("gate", EXTENDED), ("core", "published"))


def plan_of(tmp_path, *arguments, **environment):
    """Return the evidence of the plan that a run writes, and its output; None if it was refused."""
    file = tmp_path / "evidence.jsonl"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.fixtures.plan_only", "-q"]
    done = python.run(
        [*command, "conformance", "--evidence", str(file), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        timeout=300,
    )
    return read(file) if file.exists() else None, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("level", "api"),
    [
        pytest.param(level, api, marks=pytest.mark.slow if (level, api) in IN_CI else pytest.mark.nightly)
        for level in LISTED
        for api in APIS
    ],
)
def test_a_run_on_the_emulated_device_plans_its_list(tmp_path, level, api):
    recorded, output = plan_of(tmp_path, "--level", level, "--profile", "emulated-gfx942", "--api", api)
    assert recorded is not None, output
    assert set(recorded.plan) == installed(level).groups("emulated-gfx942", api)
    assert (recorded.runs[0].level, recorded.runs[0].profile, recorded.complete) == (level, "emulated-gfx942", True)
    if level != "stress":
        assert list(installed(level).problems(recorded)) == []


@pytest.mark.slow
@pytest.mark.usefixtures("gpus_only")
@pytest.mark.parametrize(("profile", "device", "arch", "name"), [
    pytest.param("h200-8", "cuda", "sm_90", "NVIDIA H200", marks=pytest.mark.nightly),
    ("mi300x-8", "rocm", "gfx942", "AMD Instinct MI300X"),
])  # fmt: skip
def test_a_run_on_eight_gpus_plans_its_list(tmp_path, profile, device, arch, name):
    build = {**fakes.ROCM, **fakes.KFD} if device == "rocm" else {}
    facts = fakes.facts(fakes.gpus(8, tag=secrets.token_hex(4), device=device, arch=arch, name=name), **build)
    options = ("-p", "tests.fixtures.fake_gpus", "--device", device, "--arch", arch, "--profile", profile)
    recorded, output = plan_of(tmp_path, *options, "--level", "core", FAKE_GPUS=json.dumps(facts))
    assert recorded is not None, output
    assert set(recorded.plan) == installed("core").groups(profile, "extended")
    assert list(installed("core").problems(recorded)) == []


@pytest.mark.nightly
def test_a_selection_makes_a_run_for_a_profile_partial(tmp_path):
    recorded, output = plan_of(tmp_path, "--level", "gate", "--profile", "emulated-gfx942", "-k", "test_put")
    assert recorded is not None and not recorded.complete, output


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_run_whose_suite_has_another_list_is_refused_in_one_line(tmp_path, workers):
    """Planted: a list without a test that runs. Under pytest-xdist the workers find it before any of them runs one."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.fixtures.stale_list", "-q"]
    options = ["--level", "gate", "--profile", "emulated-gfx942", "-n", str(workers)]
    done = python.run(
        [*command, "conformance/host/test_names.py", "--evidence", str(tmp_path / "evidence.jsonl"), *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert done.returncode == 4 and "INTERNALERROR" not in done.stdout, done.stdout + done.stderr
    [line] = {line for line in (done.stdout + done.stderr).splitlines() if line.startswith("ERROR: ")}
    assert "does not have: HOST-NAMES-001[ranks=4]: if the suite was changed, write its lists again" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_workers_of_a_random_level_have_one_seed(tmp_path):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-n", "2", "--level", "stress"]
    options = ["--profile", "emulated-gfx942", "--evidence", str(tmp_path / "evidence.jsonl")]
    done = python.run(
        [*command, "conformance/host/test_names.py", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    recorded = read(tmp_path / "evidence.jsonl")
    assert recorded.problems == [] and len(recorded.groups) == 4
    assert {case.seed for case in recorded.cases} == {recorded.runs[0].seed}


def the_whole_plan(**changes):
    listed = installed("gate")
    groups = [
        PlannedGroup(name, name.partition("[")[0], "test.py::test")
        for name in listed.groups("emulated-gfx942", "extended")
    ]
    return replace(Plan(tuple(groups), (), listed.not_applicable("emulated-gfx942", "extended")), **changes)


def for_profile(**changes):
    return Options.checked(**{**GOOD, "level": "gate", "profile": "emulated-gfx942", **changes})


def test_a_plan_that_differs_from_the_list_is_refused():
    """Planted: a group that is missing without a reason, one that is not listed, and a reason that is not."""
    whole = the_whole_plan()
    check_plan(whole, for_profile())
    first, *rest = whole.groups
    check_plan(replace(whole, groups=tuple(rest), left_out={first.group: "deselected"}), for_profile())
    check_plan(replace(whole, groups=tuple(rest), unsupported={first.group: "needs put"}), for_profile())
    planted = {
        "lacks groups": {"groups": tuple(rest)},
        "does not have: NEW": {"groups": (*whole.groups, PlannedGroup("NEW-001[ranks=4]", "NEW-001", "t.py::t"))},
        "calls NEW-001 not applicable": {"not_applicable": {**whole.not_applicable, "NEW-001": "needs luck"}},
        "does not call requirements not applicable": {"not_applicable": {}},
    }
    for problem, changes in planted.items():
        with pytest.raises(UsageError, match=rf"{problem}.*write its lists again with iris-harness mustpass write"):
            check_plan(replace(whole, **changes), for_profile())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mode": "check"}, "--emulator-mode check changes what a run of level gate executes"),
        ({"seed": "7"}, "--seed 7 changes"),
        ({"level": "stress", "seed": "0"}, "--seed 0 changes"),
        ({"ranks": "2"}, "--ranks 2 changes"),
        ({"deadline": "90"}, "--deadline 90 changes"),
        ({"implementation_name": "torch:symmetric-memory", "device": "cuda", "profile": "h200-8"}, "--implementation"),
        ({"device": "cuda", "profile": "h200-8", "ranks_per_gpu": "4"}, "--ranks-per-gpu 4 changes"),
        ({"arch": "gfx950"}, "emulated-gfx942 is for --device emulated --arch gfx942"),
        ({"level": "dev"}, "level dev has no list of groups"),
        ({"profile": "ci"}, "got 'ci', which is a level: use --level ci"),
        ({"profile": "mi300x"}, "expected one of emulated-gfx942, emulated-gfx950, mi300x-8"),
    ],
)
def test_options_that_change_what_a_run_for_a_profile_executes(changes, problem):
    with pytest.raises(UsageError, match=problem):
        for_profile(**changes)
    assert for_profile(ranks="4", seed="0").ranks == (4,), "what the level has may be named"


def test_a_profile_has_the_world_sizes_of_its_machine():
    assert for_profile(level="core").ranks == (4, 2)
    assert for_profile(level="core", device="cuda", profile="h200-8").ranks == (8, 2)
    few = for_profile(level="core", device="cuda", profile="h200-8").fitted(4)
    assert (few.ranks, few.left_out) == ((8, 2), ()), "refused later, for lack of GPUs"


# -- the machine ----------------------------------------------------------------------------------------------------


def request(**changes):
    given = {"device": "emulated", "arch": None, "ranks": None, "level": "gate", "implementation": "iris_under_test"}
    return check_request(**{**given, **changes})


@pytest.fixture
def machine(monkeypatch):
    def has(count, name):
        gpus = [type("Gpu", (), {"name": name})] * count
        monkeypatch.setattr(preflight.inventory, "visible", lambda device: gpus)

    return has


def test_the_emulated_device_is_a_profile():
    chosen, reason = with_profile(request(), None)
    assert (chosen.profile, chosen.ranks, reason) == ("emulated-gfx942", (4,), None)
    assert "--profile emulated-gfx942" in " ".join(chosen.options())
    assert with_profile(request(arch="gfx950"), None)[0].profile == "emulated-gfx950"


@pytest.mark.parametrize(("count", "name", "profile"), [
    (8, "NVIDIA H200", "h200-8"), (4, "NVIDIA H200", "none"), (8, "NVIDIA H100 80GB HBM3", "none"),
])  # fmt: skip
def test_which_gpus_are_a_profile(machine, count, name, profile):
    machine(count, name)
    chosen, reason = with_profile(request(device="cuda"), None)
    assert chosen.profile == profile
    assert (reason is None) == (profile != "none")
    if reason:
        assert reason == f"there is no hardware profile for {count} GPUs ({name})"


def test_amd_gpus_are_told_apart_by_their_names(machine):
    for name, arch, profile in (
        ("AMD Instinct MI300X", "gfx942", "mi300x-8"), ("AMD Instinct MI325X OAM", "gfx942", "mi325x-8"),
        ("AMD Instinct MI355X", "gfx950", "mi350-8"), ("AMD Instinct MI300A", "gfx942", "none"),
    ):  # fmt: skip
        machine(8, name)
        assert with_profile(request(device="rocm", arch=arch), None)[0].profile == profile


def test_what_changes_a_run_makes_it_one_without_a_profile():
    for changes in ({"ranks": "2"}, {"seed": "5"}, {"mode": "race"}, {"level": "ci"}):
        chosen, reason = with_profile(request(**changes), None)
        assert (chosen.profile, chosen.ranks) == ("none", (2,) if "ranks" in changes else ()) and reason
        with pytest.raises(UsageError, match=r"^--profile emulated-gfx942: "):
            with_profile(request(**changes), "emulated-gfx942")


def test_a_profile_that_is_not_this_machine(machine):
    machine(4, "NVIDIA H200")
    with pytest.raises(UsageError, match=r"--profile h200-8: this machine .* 4 GPUs \(NVIDIA H200\)"):
        with_profile(request(device="cuda"), "h200-8")


def test_the_facts_of_every_profile():
    for name in profiles():
        facts = hardware_of(name, LEVELS["full"])
        assert set(facts.ranks) == {8, 4, 2, 1} and (facts.gpus == 8) == name.endswith("-8")


def test_coverage_is_not_queried_for_a_library():
    """The lists are those of any library: what one lacks is unsupported, and no list leaves it out."""
    assert Coverage({}, for_profile()).capabilities.states == {}


PAGE = ROOT / "docs" / "levels.md"
LINES = re.findall(r"^iris-harness .*$", PAGE.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("line", LINES)
def test_the_options_of_a_command_on_the_page_exist(line):
    group, name, *words = shlex.split(line)[1:]
    context = click.Context(cli)
    cli.get_command(context, group).get_command(context, name).make_context(name, words)


def test_the_entries_on_the_page_are_read():
    waiver, quarantine = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(read_waivers(waiver.encode(), "w")) == len(read_quarantine(quarantine.encode(), "q")) == 1


def test_the_page_has_every_level_and_profile():
    text = PAGE.read_text("utf-8")
    for level in LEVELS.values():
        assert re.search(rf"^\| `{level.name}`.*\| {level.examples}\b", text, re.MULTILINE), level.name
    assert all(f"`{name}`" in text for name in profiles())
