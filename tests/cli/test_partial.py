"""A partial run is never reported as a pass, and settings outside the suite cannot make a run partial."""

from pathlib import Path

import pytest

from command_line.suite import process as child
from tests.cli import fake_suite
from tests.evidence import samples
from tests.package.test_pyproject import PROJECT

EVIL = "import pathlib; pathlib.Path({!r}).touch()\n"


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """Make a suite in folders with configuration files and plugins that would change it if they were read."""
    around = tmp_path_factory.mktemp("around")
    suite = fake_suite.make_suite(around / "suite")
    loaded = str(around / "loaded")
    for place in (around, suite, suite / "conformance"):
        (place / "conftest.py").write_text(EVIL.format(loaded))
    (around / "pytest.ini").write_text("[pytest]\naddopts = -k put\n")
    (around / "evil_plugin.py").write_text(EVIL.format(loaded))
    (around / "evil_plugin-1.0.dist-info").mkdir()
    (around / "evil_plugin-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (around / "evil_plugin-1.0.dist-info" / "entry_points.txt").write_text("[pytest11]\nevil = evil_plugin\n")
    return suite


@pytest.mark.parametrize("variables", [{"PYTEST_ADDOPTS": "-k put"}, {"PYTEST_PLUGINS": "evil_plugin"}, {}])
def test_neither_variables_nor_files_nor_plugins_change_certify(suite, tmp_path, variables):
    others = {"PYTHONOPTIMIZE": "1", "PYTHONWARNINGS": "error", "EXPECT_CLEAN": "1", "HYPOTHESIS_PROFILE": "none"}
    environment = fake_suite.environment(suite, **others, **variables)
    environment["PYTHONPATH"] += f":{suite.parent}"
    done = fake_suite.run_in(environment, tmp_path, "certify")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (suite.parent / "loaded").exists()


def test_certify_is_configured_as_the_checkout_is():
    """Check that certify.ini has the pytest options of pyproject.toml: an installed suite is as strict as the
    checkout."""
    import configparser

    ini = configparser.ConfigParser()
    ini.read(child.conformance_folder() / "certify.ini")
    options = dict(PROJECT["tool"]["pytest"]["ini_options"])
    del options["testpaths"], options["markers"]
    plain = {
        name: value if isinstance(value, list) else [str(value).lower() if value is True else str(value)]
        for name, value in options.items()
    }
    configured = {
        name: value.split() if name == "addopts" else [line for line in value.splitlines() if line]
        for name, value in ini["pytest"].items()
    }
    assert configured == plain


def test_the_child_imports_the_same_implementation(tmp_path, monkeypatch):
    (tmp_path / "some_iris").mkdir()
    (tmp_path / "some_iris" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    environment = child.child_environment("some_iris")
    assert str(tmp_path) in environment["PYTHONPATH"].split(":")
    assert Path(environment["PYTHONPATH"].split(":")[0]) == child.conformance_folder().parent


@pytest.mark.parametrize(
    ("fake", "status"), [("partial", 3), ("partial-fail", 1), ("not-applicable", 0), ("unsupported", 4)]
)
def test_a_partial_run_has_its_own_status_and_names_what_is_missing(suite, tmp_path, fake, status):
    done = fake_suite.run(suite, tmp_path, "certify", fake=fake)
    assert done.returncode == status, done.stdout + done.stderr
    again = fake_suite.run(suite, tmp_path, "report", "out/certify/evidence.jsonl")
    assert (again.returncode, again.stderr) == (done.returncode, done.stderr)
    if "partial" in fake:
        [line] = done.stderr.splitlines()
        assert line.startswith("iris-harness: partial: left out are CCL-0: needs 8 ranks, this run has 4; CCL-1")
        assert line.endswith("; and 2 more")
    else:
        assert done.stderr == ""


def test_fail_fast_stops_at_the_first_failure(suite, tmp_path):
    done = fake_suite.run(suite, tmp_path, "certify", "--fail-fast")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "-x" in (tmp_path / "arguments").read_text().split()


def test_check_runs_the_named_requirements_and_reports_that_it_certifies_nothing(suite, tmp_path):
    done = fake_suite.run(suite, tmp_path, "check", "rma")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"pass     {samples.PUT_GROUP}  1 cases" in done.stdout
    assert samples.ADD_GROUP not in done.stdout
    assert "1 of 1 selected requirements passed. The rest of the suite was not run, so nothing" in done.stdout
    words = (tmp_path / "arguments").read_text().split()
    for option in ("-x", "--requirement=RMA-PUT-001", "--ranks=2", "--seed=0"):
        name, _, value = option.partition("=")
        assert name in words, words
        assert not value or words[words.index(name) + 1] == value, words
    failed = fake_suite.run(suite, tmp_path, "check", "put", fake="fail")
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "repeat  iris-harness replay" in failed.stdout
    assert "1 of 2 selected requirements passed" in failed.stdout
    unknown = fake_suite.run(suite, tmp_path, "check", "atomic_ad")
    assert unknown.returncode == 2
    assert unknown.stderr.startswith(
        "iris-harness: no requirement, public name or test is called 'atomic_ad': similar names are"
    )
    assert "atomic_add" in unknown.stderr
