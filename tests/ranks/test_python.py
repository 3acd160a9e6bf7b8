"""Programs that tests run as forks: like those that a new interpreter runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.ranks import forking
from tests import python

SHOW = """
import atexit, json, os, signal, sys, threading
atexit.register(print, "at exit")
threading.Timer(0.2, print, ["of a thread"]).start()
print(json.dumps([sys.argv, sys.path, os.getcwd(), __name__, sys.stdin.read(), os.environ["PLANTED"],
                  [str(signal.getsignal(number)).split(" at ")[0] for number in sorted(signal.valid_signals())],
                  sys.dont_write_bytecode]))
print("to stderr", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Return a function that returns whether a program was forked: no interpreter is then started for it."""
    ran = []
    real = subprocess.run
    python._installed()
    monkeypatch.setattr(subprocess, "run", lambda *words, **options: ran.append(words) or real(*words, **options))

    def is_forked(*words: str, **options: object) -> bool:
        before = len(ran)
        python.run([sys.executable, *words], **options)  # type: ignore[arg-type]
        return len(ran) == before

    return is_forked


@pytest.mark.parametrize("form", ["-c", "-m", "script"])
def test_a_forked_program_is_like_one_in_an_interpreter(tmp_path: Path, form: str) -> None:
    (tmp_path / "shown.py").write_text(SHOW)
    start = {"-c": ["-c", SHOW], "-m": ["-m", "shown"], "script": ["shown.py"]}[form]
    more = {"PYTHONPATH": f"{tmp_path / 'further'}", "PLANTED": "value", "PYTHONDONTWRITEBYTECODE": "1"}
    for status, hangup in ((0, signal.SIG_DFL), (7, signal.SIG_IGN)):
        before = [signal.signal(number, hangup) for number in (signal.SIGHUP, signal.SIGPIPE)]
        try:
            answers = [
                python.run([sys.executable, *start, str(status)], cwd=tmp_path, env={**os.environ, **more}, shared=way)
                for way in (True, False)
            ]
        finally:
            for number, handler in zip((signal.SIGHUP, signal.SIGPIPE), before, strict=True):
                signal.signal(number, handler)
        one, other = ([done.returncode, done.stderr, *done.stdout.splitlines()] for done in answers)
        assert one[0] == status and len(one) == 5
        states = [json.loads(each.pop(2)) for each in (one, other)]
        assert one == other and states[0] == states[1], "argv, path, folder, name, input, variable, signals, bytecode"


def test_an_exception_and_a_message_are_those_of_an_interpreter() -> None:
    failed = python.run([sys.executable, "-c", "raise ValueError('planted')"])
    assert failed.returncode == 1 and failed.stderr.endswith("ValueError: planted\n")
    left = python.run([sys.executable, "-c", "raise SystemExit('a message')"])
    assert (left.returncode, left.stdout, left.stderr) == (1, "", "a message\n")


@pytest.mark.parametrize("shared", [True, False])
def test_a_program_that_does_not_end_is_killed(tmp_path: Path, shared: bool) -> None:
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); print('begun', flush=True); time.sleep(600)"
    with pytest.raises(subprocess.TimeoutExpired) as expired:
        python.run([sys.executable, "-c", code], cwd=tmp_path, timeout=5.0, shared=shared)
    assert expired.value.stdout == "begun\n"
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_where_a_fork_would_differ_an_interpreter_runs(tmp_path: Path, forked: Callable[..., bool]) -> None:
    words = ("-c", "import sys, torch; sys.exit(0)")
    environment = {name: value for name, value in os.environ.items() if name != forking.VARIABLE}
    assert forked(*words, env=environment), python.usable(environment)
    assert forked(*words, cwd=tmp_path, env={**environment, "PYTHONPATH": str(tmp_path)})
    assert not forked(*words, env={**environment, "NUMBA_OPT": "1"})
    (tmp_path / "torch.py").write_text("")
    assert not forked(*words, cwd=tmp_path, env=environment), "the program's own module"


def test_a_session_in_the_background_of_a_script_forks_too(tmp_path: Path) -> None:
    """Such a job ignores SIGINT and SIGQUIT, and with nohup SIGHUP too; some tests leave other handlers of them."""
    test = tmp_path / "test_it.py"
    test.write_text(
        "import os, signal, sys\n"
        "from tests import python\n"
        "code = 'import signal; print(signal.getsignal(signal.SIGHUP).name)'\n"
        "def test_it():\n"
        "    for handler in (signal.SIG_IGN, signal.SIG_DFL):\n"
        "        signal.signal(signal.SIGQUIT, handler)\n"
        "        signal.signal(signal.SIGHUP, handler)\n"
        "        assert python.usable(os.environ)[1] == ''\n"
        "        assert python.run([sys.executable, '-c', code]).stdout == handler.name + '\\n'\n"
    )
    options = ["-q", "-n", "1", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if name not in (forking.VARIABLE, python.VARIABLE)}
    done = subprocess.run(
        ["sh", "-c", 'trap "" HUP; "$@" & wait $!', "sh", sys.executable, "-m", "pytest", *options, str(test)],
        cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
