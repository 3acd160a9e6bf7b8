"""Check that a plan has the requirements of the installed suite, if the run had the same sources."""

import dataclasses

import pytest

from harness.errors import UsageError
from harness.evidence import Plan, Verdict, read, sources_of, suite
from tests.evidence import samples

TABLE = samples.plan().requirements


def install(folder, monkeypatch, *names):
    """A suite in place of the repository's, with these requirements."""
    package = folder / "conformance"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()
    text = '[[requirement]]\nid = "{}"\nstatement = "It does."\nsource = "here"\ncovers = []\n'
    (package / "requirements.toml").write_text("".join(map(text.format, names)))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(__import__("sys").modules, "conformance", raising=False)


def of_run(folder, sha256, plan=None):
    harness = {"packages": {"conformance": {"commit": None, "sha256": sha256}}}
    first, _, *rest = samples.green()
    run = dataclasses.replace(first, harness=harness)
    return read(samples.write(folder / "evidence.jsonl", [run, plan or samples.plan(), *rest]))


def test_a_plan_that_lacks_requirements_of_its_suite(tmp_path, monkeypatch):
    names = [requirement.id for requirement in TABLE]
    install(tmp_path, monkeypatch, *names)
    assert of_run(tmp_path, sources_of("conformance")).verdict() is Verdict.PASS
    install(tmp_path, monkeypatch, *names, "CCL-A-001", "CCL-B-001", "CCL-C-001", "CCL-D-001")
    evidence = of_run(tmp_path, sources_of("conformance"))
    lacking = "CCL-A-001, CCL-B-001, CCL-C-001 and 1 more"
    assert evidence.gaps() == (f"the plan lacks requirements of the suite: {lacking}",)
    assert evidence.verdict() is Verdict.UNKNOWN


def test_a_plan_with_requirements_that_its_suite_does_not_have(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, *(requirement.id for requirement in TABLE))
    more = Plan(samples.plan().groups, (*TABLE, dataclasses.replace(TABLE[0], id="X-001")), {"X-001": "no GPU"})
    evidence = of_run(tmp_path, sources_of("conformance"), more)
    assert evidence.gaps() == ("the plan has requirements that the suite does not have: X-001",)


def test_a_run_of_another_suite_is_not_compared(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "CCL-A-001")
    assert of_run(tmp_path, "0" * 64).problems == []
    assert of_run(tmp_path, None).problems == []


def test_the_suite_itself_is_found_and_compared(tmp_path):
    evidence = of_run(tmp_path, sources_of("conformance"))
    assert any("the plan lacks requirements of the suite" in gap for gap in evidence.gaps())


def test_a_run_without_requirements_of_the_suite_is_not_compared(tmp_path):
    """It has only the user's own tests, which have their own table."""
    own = tuple(dataclasses.replace(requirement, table="own.toml") for requirement in TABLE)
    evidence = of_run(tmp_path, sources_of("conformance"), dataclasses.replace(samples.plan(), requirements=own))
    assert not list(suite.differences(evidence))
    without = dataclasses.replace(evidence, statements={})
    assert not list(suite.differences(without))


def test_without_the_suite_nothing_is_compared_and_there_is_no_table(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "SUITE", "no_such_suite")
    assert not list(suite.differences(of_run(tmp_path, "0" * 64)))
    with pytest.raises(UsageError, match="the suite is not installed: the package no_such_suite is missing"):
        suite.installed_table()


def test_the_list_of_a_level_is_in_the_suite():
    assert suite.installed_list("core").is_file()
    assert suite.installed_list("core").parent.parent == suite.installed_table().parent
    for level in ("../core", "", "core.toml"):
        with pytest.raises(UsageError, match="expected the name of a level, such as core, got"):
            suite.installed_list(level)


@pytest.mark.parametrize(("api", "wanted"), [("published", "CCL-A-001"), ("extended", "CCL-A-001, CCL-B-001")])
def test_a_plan_is_compared_with_the_requirements_of_its_api(tmp_path, monkeypatch, api, wanted):
    names = [requirement.id for requirement in TABLE]
    install(tmp_path, monkeypatch, *names, "CCL-A-001", "CCL-B-001")
    table = tmp_path / "conformance" / "requirements.toml"
    first, last = (
        table.read_text().replace("[[requirement]]", '[[requirement]]\napi = "published"').rsplit("published", 1)
    )
    table.write_text(f"{first}extended{last}")
    plan = dataclasses.replace(samples.plan(), api=api)
    (problem,) = suite.differences(of_run(tmp_path, sources_of("conformance"), plan))
    assert problem == f"the plan lacks requirements of the suite: {wanted}"


def test_three_requirements_are_named_without_a_count(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, *(requirement.id for requirement in TABLE), "A-001", "B-001", "C-001")
    (problem,) = suite.differences(of_run(tmp_path, sources_of("conformance")))
    assert problem == "the plan lacks requirements of the suite: A-001, B-001, C-001"
