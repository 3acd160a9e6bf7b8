"""What a name given to ``iris-harness check`` means in the real suite, and that the suite runs just that."""

import subprocess

import pytest

from harness.commands.check import Selection, select
from harness.commands.suite import child_environment, pytest_command
from harness.errors import UsageError


def test_requirements_areas_and_public_names():
    one = select("rma-put-001")
    assert one == Selection(("conformance/rma/test_put.py",), ("RMA-PUT-001",))
    assert set(select("RMA-PUT").requirements) == {"RMA-PUT-001", "RMA-PUT-002", "RMA-PUT-003"}
    assert set(select("RMA-PUT").requirements) < set(select("RMA").requirements)
    method, every = select("IrisDeviceCtx.put"), select("put")
    assert method.requirements[0] == "RMA-PUT-001", "what is about this name alone comes first"
    assert "RMA-PUT-002" not in method.requirements
    assert {*method.requirements, "RMA-PUT-002", "RMA-PUT-003"} <= set(every.requirements)


def test_tests_and_files_of_tests():
    assert select("test_put").targets == ("conformance/rma/test_put.py",)
    assert (
        select("rma/test_put.py").targets == select("conformance/rma/test_put.py").targets == select("test_put").targets
    )
    [target] = select("test_width_of_tiles").targets
    assert target == "conformance/x/test_width.py::test_width_of_tiles"
    assert select("test_put").requirements == ()


@pytest.mark.parametrize(
    ("name", "near"), [("putt", "put"), ("RMA-PTU-001", "RMA-PUT-001"), ("IrisDeviceCtx.pat", "IrisDeviceCtx.put")]
)
def test_a_name_that_is_not_there(name, near):
    with pytest.raises(UsageError, match=f"'{name}'.*near are .*{near}") as caught:
        select(name)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="give an id such as"):
        select("\u2603")


def test_the_suite_runs_just_the_requirements_in_the_order_given():
    chosen = Selection(("conformance/rma/test_put.py", "conformance/rma/test_get.py"), ("RMA-GET-001", "RMA-PUT-003"))
    options = [*chosen.options(), "--collect-only", "-q", "--ranks", "2"]
    done = subprocess.run(
        pytest_command(chosen.targets, *options),
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = [line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line]
    named = list(dict.fromkeys(files))
    assert [name.partition("::")[0] for name in named] == ["conformance/rma/test_get.py", "conformance/rma/test_put.py"]
    assert len(named) == 2, "one test each"
    assert "deselected" in done.stdout
