"""What a run record says of what could have changed the run, and that it names nobody."""

import getpass
import platform

from harness.evidence import commit_of, harness_state, plain_arguments, relevant_variables, sources_of


def test_the_harness_is_recorded_with_its_sources():
    state = harness_state()
    assert set(state["packages"]) == {"harness", "fixtures", "conformance", "reports"}
    assert state["packages"]["fixtures"] == {"commit": commit_of("fixtures"), "sha256": sources_of("fixtures")}
    assert len({package["sha256"] for package in state["packages"].values()}) == 4


def test_sources_outside_a_checkout_show_an_edit(tmp_path, monkeypatch):
    for place in ("one", "two"):
        package = tmp_path / place / "loose_package"
        (package / "__pycache__").mkdir(parents=True)
        (package / "__init__.py").write_text("x = 1\n")
        (package / "table.toml").write_text(place)
        (package / "__pycache__" / "x.pyc").write_text(place)
    seen = []
    for place, table in (("one", "same"), ("two", "same"), ("two", "edited")):
        (tmp_path / place / "loose_package" / "table.toml").write_text(table)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(tmp_path / place)
            assert commit_of("loose_package") is None
            seen.append(sources_of("loose_package"))
    assert seen[0] == seen[1] != seen[2]
    assert sources_of("no_such_module_anywhere") is None


def test_variables_that_matter_are_kept_without_paths_secrets_and_names():
    found = relevant_variables(
        {
            "PYTEST_ADDOPTS": "-k put --junitxml=/home/someone/x.xml -p no:xdist",
            "TRITON_CACHE_DIR": "someone",
            "LD_PRELOAD": "libc.so.6 some/lib.so",
            "PYTHONPATH": "/home/someone:other",
            "PYTHONOPTIMIZE": "2",
            "CUDA_VISIBLE_DEVICES": "0,1",
            "IRIS_TOKEN": "hunter2",
            "NCCL_HOSTID": platform.node(),
            "TORCH_OWNER": getpass.getuser(),
            "OMP_NUM_THREADS": "1",
            "HOME": "/home/someone",
            "SHELL": "/bin/sh",
            "IRIS_HARNESS_RUN": "0123",
            "AMD_LOG": "x" * 10_000,
        }
    )
    assert found == {
        "AMD_LOG": "x" * 300,
        "CUDA_VISIBLE_DEVICES": "0,1",
        "IRIS_TOKEN": "<set>",
        "LD_PRELOAD": "<path> <path>",
        "NCCL_HOSTID": "<host>",
        "OMP_NUM_THREADS": "1",
        "PYTEST_ADDOPTS": "-k put --junitxml=<path> -p no:xdist",
        "PYTHONOPTIMIZE": "2",
        "PYTHONPATH": "<path>:<path>",
        "TORCH_OWNER": "<user>",
        "TRITON_CACHE_DIR": "<path>",
    }


def test_arguments_without_paths():
    arguments = [
        "/opt/x/pytest",
        "--evidence=/home/someone/e.jsonl",
        "conformance/rma/test_put.py",
        "-k",
        "a or b",
        "~/x",
    ]
    assert plain_arguments(arguments) == (
        "<path>", "--evidence=<path>", "conformance/rma/test_put.py", "-k", "a or b", "<path>"
    )  # fmt: skip
