"""The base dependencies suffice to verify a certificate, and the extra ``device`` for the emulator, the bundled library
and ``iris-harness emulate``.

The environments are real ones, without pip: links to the installed packages that pyproject.toml and their own
requirements name, and to nothing else.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from command_line.main import COMMANDS, DEVICE_MODULES, NEEDS, SUITE_MODULES
from tests.certificates.run import Signer, records
from tests.package.test_pyproject import PROJECT

ROOT = Path(__file__).resolve().parents[2]
BLOCKED = {"hypothesis", "pytest", "xdist", "rich", "matplotlib", "msgpack"}
EXTRAS = PROJECT["project"]["optional-dependencies"]


def closure(lines):
    """The installed distributions that these requirements name, directly or through others."""
    names, waiting = {}, [Requirement(line) for line in lines]
    while waiting:
        requirement = waiting.pop()
        if requirement.name in names or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        names[requirement.name] = distribution = importlib.metadata.distribution(requirement.name)
        waiting += [Requirement(line) for line in distribution.requires or ()]
    return names.values()


def environment(folder, lines):
    """Make an environment with these requirements only, and return its interpreter."""
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for distribution in closure(lines):
        for top in {path.parts[0] for path in distribution.files} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(distribution.locate_file(top))
    (site / "iris.pth").write_text(f"{ROOT}\n")
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment with the extra ``device`` only."""
    return environment(tmp_path_factory.mktemp("small"), [*PROJECT["project"]["dependencies"], *EXTRAS["device"]])


@pytest.fixture(scope="module")
def verifier(tmp_path_factory):
    """The interpreter of an environment with the base dependencies only."""
    return environment(tmp_path_factory.mktemp("smallest"), PROJECT["project"]["dependencies"])


def run(python, *arguments, cwd):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [python, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_environment_lacks_what_only_the_suite_needs(python, tmp_path):
    code = f"import importlib.util as u; print(sorted(m for m in {sorted(BLOCKED)} if u.find_spec(m)))"
    assert run(python, "-c", code, cwd=tmp_path).stdout == "[]\n"


@pytest.mark.nightly
def test_a_program_runs_on_the_emulated_device(python, tmp_path):
    done = run(
        python, "-m", "command_line", "emulate", "--mode", "check", "--", "python", ROOT / "examples/gpu_softmax.py",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("AMD Instinct MI300X, cuda:0: largest difference ")


def test_the_library_imports(python, tmp_path):
    done = run(
        python,
        "-c",
        "import harness.emulator, iris_under_test.ccl, iris_under_test.ops, iris_under_test.x",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_help_lists_every_command(python, tmp_path):
    done = run(python, "-m", "command_line", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
    assert done.stdout.count("iris-harness[suite]") == len(COMMANDS) - len(NEEDS)


def test_a_certificate_is_verified_with_the_base_dependencies_only(verifier, tmp_path):
    modules = sorted({*BLOCKED, *DEVICE_MODULES})
    code = f"import importlib.util as u; print([m for m in {modules} if u.find_spec(m)])"
    assert run(verifier, "-c", code, cwd=tmp_path).stdout == "[]\n"
    signer = Signer.at(tmp_path / "signer")
    signer.certificate(records(), "certificate.zip")
    certificate, key = signer.folder / "certificate.zip", signer.folder / "signer.key.pub"
    done = run(verifier, "-m", "command_line", "verify", certificate, "--key", key, cwd=tmp_path)
    assert done.returncode == 3 and "No check failed" in done.stdout, done.stdout + done.stderr
    made = run(verifier, "-m", "command_line", "key", "new", "--output", tmp_path / "new.key", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    refused = run(verifier, "-m", "command_line", "emulate", "--", "true", cwd=tmp_path)
    assert refused.returncode == 2 and "pip install 'iris-harness[device]'" in refused.stderr


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - set(NEEDS)))
def test_a_command_of_the_suite_names_the_extra_in_one_line(python, tmp_path, name):
    done = run(python, "-m", "command_line", name, "--ranks", "2", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'iris-harness[suite]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_commands_look_for_what_the_extras_bring():
    modules = {"pytest-xdist": "xdist", "pyyaml": "yaml"}
    for extra, looked_for in (("device", DEVICE_MODULES), ("suite", SUITE_MODULES)):
        names = {Requirement(line).name for line in EXTRAS[extra]} - {"py-spy", "iris-harness"}  # py-spy is a program
        assert set(looked_for) == {modules.get(name, name) for name in names}


@pytest.mark.nightly
def test_doctor_reports_the_packages_of_the_suite(tmp_path):
    done = run(sys.executable, "-m", "command_line", "doctor", "--json", cwd=tmp_path)
    names = {package["name"] for package in json.loads(done.stdout)["packages"]}
    assert {"numba", "hypothesis", "jsonschema"} <= names
    assert "amdsmi" not in names
