"""The selection by a name passed to ``iris-harness check`` in the real suite, and that only the selection runs."""

import subprocess
from pathlib import Path

import pytest

from command_line.commands.check import Selection, select
from command_line.suite.process import child_environment, pytest_command
from harness.errors import UsageError


def test_requirements_areas_and_public_names():
    one = select("rma-put-001")
    assert one == Selection(("conformance/rma/test_put.py",), ("RMA-PUT-001",))
    assert set(select("RMA-PUT").requirements) == {"RMA-PUT-001", "RMA-PUT-002", "RMA-PUT-003"}
    assert set(select("RMA-PUT").requirements) < set(select("RMA").requirements)
    method, every = select("IrisDeviceCtx.put"), select("put")
    assert method.requirements[0] == "RMA-PUT-001", "a requirement that covers only this name comes first"
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


def test_tests_that_a_file_derives_from_its_table_of_ops():
    file = "conformance/collectives/test_operations.py"
    by_call = "conformance/calls/test_collectives.py"  # of libraries that are called through an adapter
    assert select("test_all_gather").targets == (f"{by_call}::test_all_gather", f"{file}::test_all_gather")
    assert select("CCL-ALLGATHER-001") == Selection((file,), ("CCL-ALLGATHER-001",))
    fused = select("FUSED-ALLREDUCE-001").targets
    assert fused == ("conformance/ops/test_operations.py",)
    with pytest.raises(UsageError, match="no requirement"):
        select("test_rows")
    with pytest.raises(UsageError, match="no requirement"):
        select("test_sendrecv")  # an op of the table without derived tests


def test_a_derived_transfer(monkeypatch):
    """Check that an op of ``rma/operations.py`` with a requirement has a derived test, and one with its own file
    none."""
    read_text = Path.read_text

    def with_push(path, *args, **kwargs):
        text = read_text(path, *args, **kwargs)
        of_rma = path.match("rma/operations.py")
        return f'{text}\nPUSH = Transfer("push", {{}}, None, None, requirement="RMA-PUSH")\n' if of_rma else text

    monkeypatch.setattr(Path, "read_text", with_push)
    assert select("test_push").targets == ("conformance/rma/test_operations.py::test_push",)
    assert select("test_put").targets == ("conformance/rma/test_put.py",)


@pytest.mark.parametrize(
    ("name", "near"), [("putt", "put"), ("RMA-PTU-001", "RMA-PUT-001"), ("IrisDeviceCtx.pat", "IrisDeviceCtx.put")]
)
def test_an_unknown_name(name, near):
    with pytest.raises(UsageError, match=f"'{name}'.*similar names are .*{near}") as caught:
        select(name)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="give an id such as"):
        select("\u2603")


@pytest.mark.nightly
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
