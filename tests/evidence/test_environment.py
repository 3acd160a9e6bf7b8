import getpass
import platform
import subprocess

import pytest

from harness.evidence import capture_environment, commit_of


def test_versions_are_those_that_run():
    environment = capture_environment()
    assert environment["python"] == platform.python_version()
    assert environment["packages"]["torch"]
    assert environment["packages"]["triton"]
    assert environment["cpus"] >= 1


def test_no_name_of_machine_or_user():
    assert platform.node() not in str(capture_environment())
    assert f"/{getpass.getuser()}/" not in str(capture_environment())


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm first"):
        subprocess.run(["git", "-C", str(tmp_path), *command.split()], check=True)
    monkeypatch.syspath_prepend(tmp_path)
    return package


def test_the_commit_of_a_checkout(checkout):
    commit = commit_of("some_package")
    assert len(commit) == 40
    (checkout / "__init__.py").write_text("edited = True\n")
    assert commit_of("some_package") == commit + "+changes"


def test_no_commit_outside_a_checkout(tmp_path, monkeypatch):
    (tmp_path / "loose_module.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert commit_of("loose_module") is None
    assert commit_of("no_such_module_anywhere") is None
