import getpass
import hashlib
import os
import platform
import subprocess

import pytest

from harness.evidence import capture_environment, commit_of, digest_of, environment


def test_versions_are_those_that_run():
    captured = capture_environment()
    assert captured["python"] == platform.python_version()
    assert captured["packages"]["torch"]
    assert captured["packages"]["triton"]
    assert captured["cpus"] >= 1


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


def test_the_digest_is_over_names_in_order_and_contents(tmp_path):
    for name in ("b/c.py", "b-c.py", "B.toml", "b/__pycache__/c.cpython-311.pyc", "old.pyc", "b/.hidden", "é.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "elsewhere").symlink_to(tmp_path / "b")
    (tmp_path / "nowhere").symlink_to(tmp_path / "none")
    (tmp_path / "also.py").symlink_to(tmp_path / "b" / "c.py")
    listed = {"B.toml": "B.toml", "also.py": "b/c.py", "b/.hidden": "b/.hidden", "b/c.py": "b/c.py", "b-c.py": "b-c.py"}
    listed["é.txt"] = "é.txt"
    text = "".join(f"{name} {hashlib.sha256(of.encode()).hexdigest()}\n" for name, of in listed.items())
    assert digest_of(tmp_path) == hashlib.sha256(text.encode()).hexdigest()


def test_a_file_is_read_again_when_it_has_changed_and_only_then(tmp_path, monkeypatch):
    """Also where the change leaves size and time of modification as they were."""
    file = tmp_path / "a.py"
    file.write_text("one")
    before = digest_of(tmp_path)
    monkeypatch.setattr(environment, "_digests", {})
    monkeypatch.setattr(environment, "_SETTLED", -1.0)
    assert digest_of(tmp_path) == before
    [state] = environment._digests
    environment._digests[state] = "kept"
    assert digest_of(tmp_path) != before, "it is not read again"
    times = file.stat()
    while file.stat().st_ctime_ns == times.st_ctime_ns:  # the clock of files has ticks
        file.write_text("two")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    changed = digest_of(tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.py").write_text("two")
    assert changed == digest_of(tmp_path / "b") != before


def test_two_changes_at_the_same_time_are_both_seen(tmp_path):
    """Nothing is kept of a file that has just changed: the next change may leave even its time as it is."""
    digests = set()
    for n in range(10):
        (tmp_path / "a.py").write_text(str(n))
        digests.add(digest_of(tmp_path))
    assert len(digests) == 10
