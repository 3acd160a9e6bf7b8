"""Wrong input gives one line on stderr that names the value and the remedy, and status 2; nothing is started."""

import sys

import pytest

from command_line import preflight
from fixtures.options import Options
from harness.errors import UsageError
from tests import python
from tests.cli import fake_suite
from tests.evidence import samples

NODE = "conformance/rma/test_put.py::test_put[ranks=4-dtype=int8]"
"""A test of the real suite."""


def refused(done):
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("iris-harness: ")
    return line


def harness(tmp_path, *arguments, setup=""):
    """Run the command in a process that executes ``setup`` first."""
    code = f"import sys; {setup}\nfrom command_line.main import main; main(sys.argv[1:])"
    return python.run(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, env=fake_suite.environment(fake_suite.ROOT), timeout=60
    )


@pytest.mark.parametrize(
    ("arguments", "value", "remedy"),
    [
        (["--device", "tpu"], "'tpu'", "emulated, rocm, cuda"),
        (["--arch", "gfx90a"], "'gfx90a'", "gfx942"),
        (["--device", "cuda"], "CUDA build", "install"),
        (["--device", "rocm", "--arch", "gfx950"], "ROCm build", "install"),
        (["--ranks", "0"], "'0'", "1 to 32"),
        (["--ranks", "33"], "'33'", "1 to 32"),
        (["--ranks", "four"], "'four'", "1 to 32"),
        (["--ranks", "2,2"], "'2,2'", "1 to 32"),
        (["--ranks-per-gpu", "2"], "emulated has no GPUs that 2 ranks", "share"),
        (["--device", "cuda", "--ranks-per-gpu", "0"], "--ranks-per-gpu: expected a whole number", "1 to 32, got '0'"),
        (["--level", "weekly"], "'weekly'", "gate"),
        (["--implementation", "no_such_iris"], "'no_such_iris'", "--implementation"),
        (["--implementation", "os; print"], "'os; print'", "--implementation"),
        (["--output", "/proc/nowhere"], "/proc/nowhere", "--output"),
        (["--output", "a-file"], "a-file", "--output"),
        (["--seed", "x"], "'x'", "--seed: expected a whole number"),
        (["--seed", "-1"], "'-1'", "from 0 and below 2**63"),
        (["--seed", "9" * 400], "--seed: expected", "below 2**63, got '999"),
        (["--emulator-mode", "weak:" + "9" * 5000], "'weak:999", "below 2**63"),
        (["--nonsense"], "--nonsense", "--help"),
    ],
)
def test_certify(tmp_path, arguments, value, remedy):
    (tmp_path / "a-file").touch()
    line = refused(harness(tmp_path, "certify", *arguments))
    assert value in line
    assert remedy in line
    assert [path.name for path in tmp_path.iterdir()] == ["a-file"]


@pytest.mark.parametrize("package", ["torch", "triton"])
@pytest.mark.parametrize("command", [["certify"], ["replay", "case.json"]])
def test_a_missing_package(tmp_path, package, command):
    import json

    from harness.evidence.records import to_json

    (tmp_path / "case.json").write_text(json.dumps(to_json(samples.case(nodeid=NODE))))
    line = refused(harness(tmp_path, *command, setup=f"sys.modules[{package!r}] = None"))
    assert f"{package} is not installed" in line
    assert f"pip install {package}" in line


@pytest.mark.parametrize("version", ["3.5.1", "3.10.0", "3.10.0.dev20261101", "4.0", "2.3.0+rocm"])
def test_a_triton_outside_the_range(tmp_path, version):
    setup = (
        f"import importlib.metadata as m; v = m.version; m.version = lambda n: {version!r} if n == 'triton' else v(n)"
    )
    line = refused(harness(tmp_path, "certify", setup=setup))
    assert version in line
    assert "triton>=3.6,<3.10" in line


@pytest.mark.parametrize("version", ["3.6.0", "3.7.1+rocm7.2", "3.9.0"])
def test_a_triton_inside_the_range(monkeypatch, version):
    monkeypatch.setattr(preflight, "installed_version", lambda name: version)
    preflight.check_software("emulated", "gfx942")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["replay", "0123456789abcdef"], "--evidence"),
        (["replay", "0123456789abcdef", "--evidence", "evidence.jsonl"], "there is no case '0123456789abcdef'"),
        (["replay", "3", "--evidence", "evidence.jsonl"], "2 cases begin with '3'"),
        (["replay", " ", "--evidence", "evidence.jsonl"], "CASE is empty"),
        (["replay", "evidence.jsonl"], "not one JSON object"),
        (["replay", "end.json"], "no case record"),
        (["replay", "list.json"], "no case record"),
        (["report", "nowhere.jsonl"], "nowhere.jsonl"),
        (["report", "old.jsonl"], "schema 0"),
        (["report", "evidence.jsonl", "--output", "/proc/x"], "/proc/x"),
        (["frobnicate"], "frobnicate"),
        (["replay"], "CASE"),
    ],
)
def test_other_commands(tmp_path, arguments, part):
    samples.write(tmp_path / "evidence.jsonl", samples.green())
    samples.write(tmp_path / "end.json", [samples.end()])
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "old.jsonl").write_text('{"schema": 0, "record": "run"}\n')
    assert part in refused(harness(tmp_path, *arguments))


def test_no_command_lists_the_commands(tmp_path):
    done = harness(tmp_path)
    assert done.returncode == 2
    assert "certify" in done.stdout


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("device", "tpu"),
        ("arch", "gfx90a"),
        ("mode", "weak:x"),
        ("ranks", "0"),
        ("ranks", "4,4"),
        ("ranks_per_gpu", "33"),
        ("level", "weekly"),
        ("implementation", "no_such_iris"),
        ("seed", "-1"),
    ],
)
def test_a_wrong_value_has_the_message_of_the_plugin(option, value):
    good = {"device": "emulated", "arch": None, "ranks": None, "level": "gate", "implementation": "iris_under_test"}
    rest = {"seed": None, "mode": "fast", "evidence": None, "replay": None, "deadline": None}
    with pytest.raises(UsageError) as by_command:
        preflight.check_request(**{**good, option: value})
    options = {**good, **rest, option: value}
    with pytest.raises(UsageError) as by_plugin:
        Options.checked(implementation_name=options.pop("implementation"), **options)
    assert str(by_command.value) == str(by_plugin.value)


def test_a_run_on_shared_gpus_is_requested_and_repeated_as_such(tmp_path):
    from command_line.commands.replay import find_case

    request = preflight.check_request("cuda", None, "4", "gate", "iris_under_test", ranks_per_gpu=2)
    assert request.options()[-2:] == ["--ranks-per-gpu", "2"]
    recorded = samples.run(device="cuda", arch="sm_90", ranks_per_gpu=2)
    case = samples.case(nodeid=NODE)
    samples.write(tmp_path / "evidence.jsonl", [recorded, samples.plan(), samples.kernel(), case, samples.end()])
    repeated = find_case(case.id, tmp_path / "evidence.jsonl").request
    assert (repeated.device, repeated.ranks_per_gpu) == ("cuda", 2)


def test_errors_carry_the_value():
    with pytest.raises(UsageError, match="weekly"):
        preflight.check_request("emulated", None, None, "weekly", "iris_under_test")
