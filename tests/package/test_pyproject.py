"""Settings that must not be loosened by accident."""

import re
import sys
from pathlib import Path

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_pytest_is_strict():
    options = PROJECT["tool"]["pytest"]["ini_options"]
    assert {"--strict-markers", "--strict-config"} <= set(options["addopts"])
    assert options["xfail_strict"] is True
    assert options["filterwarnings"][0] == "error"
    assert 0 < options["faulthandler_timeout"] <= 600
    assert options["junit_family"] == "xunit2"


def test_every_ignored_warning_has_a_reason_and_a_message():
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    for number, line in enumerate(lines):
        if line.strip().startswith('"ignore:'):
            assert lines[number - 1].strip().startswith("#"), line
            assert re.match(r'"ignore:[^:]{10,}:\w', line.strip()), f"too broad: {line}"


def test_types_are_checked_strictly():
    settings = PROJECT["tool"]["mypy"]
    assert settings["strict"] is True
    host_side = {f"iris_under_test.{part}" for part in ("host", "drivers", "bench")}
    assert set(settings["packages"]) == {
        "command_line",
        "harness",
        "fixtures",
        "reports",
        "certificates",
        "mutants",
        "history",
        *host_side,
    }
    ignored = [o["module"] for o in settings["overrides"] if o.get("ignore_errors")]
    kernels = ["iris_under_test.device.*", "iris_under_test.kernels.*", "iris_under_test.x.*"]
    assert ignored == [[*kernels, "iris_under_test.host.device_barrier", "iris_under_test.host.tracing.events"]]


def test_every_package_that_ships_says_that_it_has_types():
    shipped = [name.removesuffix("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]]
    assert [name for name in shipped if not (ROOT / name / "py.typed").is_file()] == []
    data = PROJECT["tool"]["setuptools"]["package-data"]
    assert [name for name in shipped if "py.typed" not in data[name]] == []


def test_constraints_pin_everything_exactly_and_lie_in_range():
    pins = {}
    for line in (ROOT / "constraints-ci.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            [pin] = requirement.specifier
            # torch's CPU build leaves Triton open, so pip takes this release; the build on PyPI requires an older one.
            assert pin.operator == ("<=" if requirement.name == "triton" else "=="), line
            pins[requirement.name.lower().replace("_", "-")] = pin.version
    extras = PROJECT["project"]["optional-dependencies"]
    for line in [
        *PROJECT["project"]["dependencies"],
        *extras["device"],
        *extras["suite"],
        *extras["dev"],
        *extras["docs"],
    ]:
        wanted = Requirement(line)
        if wanted.name not in ("tomli", PROJECT["project"]["name"]):
            assert wanted.specifier.contains(pins[wanted.name.lower().replace("_", "-")]), line


def test_only_supported_tritons_are_accepted():
    [triton] = [
        Requirement(line) for line in PROJECT["project"]["optional-dependencies"]["device"] if line.startswith("triton")
    ]
    assert [triton.specifier.contains(v) for v in ("3.5.1", "3.6.0", "3.9.0", "3.10.0")] == [False, True, True, False]


def test_data_files_are_packaged():
    data = PROJECT["tool"]["setuptools"]["package-data"]
    for package, patterns in data.items():
        folder = ROOT / package.replace(".", "/")
        for pattern in patterns:
            assert list(folder.glob(pattern)), f"{package}: {pattern} matches nothing"
    packaged = set()
    for package, patterns in data.items():
        for pattern in patterns:
            packaged.update((ROOT / package.replace(".", "/")).glob(pattern))
    for folder in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]:
        for path in (ROOT / folder.rstrip("*")).rglob("*"):
            if path.is_file() and path.suffix not in {".py", ".pyc"} and "__pycache__" not in path.parts:
                assert path in packaged, f"{path.relative_to(ROOT)} would be missing from an installed package"


def test_every_folder_of_code_is_a_package():
    for folder in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]:
        for path in (ROOT / folder.rstrip("*")).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), f"{path.parent.relative_to(ROOT)} is not found by setuptools"
