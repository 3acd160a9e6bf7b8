"""Circumstances in a run record: all that could have changed the run, without names of users and machines."""

import getpass
import platform

import pytest

from harness.evidence import commit_of, harness_state, plain_arguments, relevant_variables, sources_of


def test_the_harness_is_recorded_with_its_sources():
    state = harness_state()
    assert set(state["packages"]) == {"harness", "fixtures", "conformance", "reports", "command_line"}
    assert state["packages"]["fixtures"] == {"commit": commit_of("fixtures"), "sha256": sources_of("fixtures")}
    assert len({package["sha256"] for package in state["packages"].values()}) == 5


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
    variables = relevant_variables(
        {
            "PYTEST_ADDOPTS": "-k put --junitxml=/home/someone/x.xml -p no:xdist",
            "TRITON_CACHE_DIR": "someone",
            "LD_PRELOAD": "libc.so.6 some/lib.so",
            "PYTHONPATH": "/home/someone:other",
            "PYTHONOPTIMIZE": "2",
            "CUDA_VISIBLE_DEVICES": "0,1",
            "NCCL_DEBUG": f"info {platform.node()}",
            "TORCH_LOGS": getpass.getuser(),
            "NCCL_HOSTID": "rack-7",
            "TRITON_NEW_SWITCH": "1",
            "OMP_NUM_THREADS": "1",
            "HOME": "/home/someone",
            "SHELL": "/bin/sh",
            "IRIS_HARNESS_RUN": "0123",
            "OMP_SCHEDULE": "x" * 10_000,
        }
    )
    assert variables == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "LD_PRELOAD": "<path> <path>",
        "NCCL_DEBUG": "info <host>",
        "NCCL_HOSTID": "<set>",
        "OMP_NUM_THREADS": "1",
        "OMP_SCHEDULE": "x" * 300,
        "PYTEST_ADDOPTS": "-k put --junitxml=<path> -p no:xdist",
        "PYTHONOPTIMIZE": "2",
        "PYTHONPATH": "<path>:<path>",
        "TORCH_LOGS": "<user>",
        "TRITON_CACHE_DIR": "<path>",
        "TRITON_NEW_SWITCH": "1",
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


@pytest.mark.parametrize(
    "name",
    [
        "PYTORCH_AUTH", "TORCH_PASSWD", "HIP_PASS", "AMD_APIKEY", "IRIS_ACCESS_KEY", "TRITON_KEY", "IRIS_token",
        "NCCL_COOKIE", "HSA_CREDENTIALS", "ROCM_CLIENT_SECRET", "TRITON_SOMETHING_NEW", "LD_SOMETHING",
    ],
)  # fmt: skip
def test_a_value_that_may_be_a_secret_is_not_recorded(name):
    assert relevant_variables({name: "hunter2"}) == {name: "<set>"}


def test_a_switch_with_the_name_of_a_secret_is_not_recorded():
    assert relevant_variables({"IRIS_PASSWORD": "1", "IRIS_TOKEN": ""}) == {"IRIS_PASSWORD": "<set>", "IRIS_TOKEN": ""}


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("--token=abc", "--token=<set>"),
        ("--api-key=abc def", "--api-key=<set>"),
        ("-oproxy_password=abc", "-oproxy_password=<set>"),
        ("my_secret = abc", "my_secret =<set>"),
        ("Authorization: Bearer abc", "Authorization:<set>"),
        ("https://user:pa55@host", "<url>"),
        ("--proxy=https://user:pa55@host/x?y=z", "--proxy=<url>"),
        ("'/home/u'", "'<path>'"),
        ('--x="/home/u/my file"', '--x="<path>"'),
        ("@/home/u/x", "@<path>"),
        ("-c/home/u", "-c<path>"),
        ("-c~/u", "-c<path>"),
        ("conformance/../../home/u", "conformance/<path>"),
        ("(/home/u)", "(<path>"),
        ("/home/u/t.py::test_x[ranks=2]", "<path>::test_x[ranks=2]"),
        ("conformance/rma/test_keys.py::test_x[a/b]", "conformance/rma/test_keys.py::test_x[a/b]"),
        ("--cov=conformance/rma", "--cov=conformance/rma"),
    ],
)
def test_secrets_and_paths_in_an_argument(word, shown):
    assert plain_arguments([word]) == (shown,)
    if "'" not in word and '"' not in word and " " not in word:
        assert relevant_variables({"PYTEST_ADDOPTS": f"-q {word} -x"}) == {"PYTEST_ADDOPTS": f"-q {shown} -x"}


def test_a_secret_in_an_argument_of_its_own():
    arguments = ["--password", "abc", "--token", "-x", "-k", "token", "--auth-file", "x"]
    assert plain_arguments(arguments) == ("--password", "<set>", "--token", "-x", "-k", "token", "--auth-file", "<set>")
    assert relevant_variables({"PYTEST_ADDOPTS": "--password 'a b' -x"}) == {"PYTEST_ADDOPTS": "--password <set> -x"}
