"""Fresh interpreters and reserved processes: the same function, arguments, files, environment, output and end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

PROGRAM = """
import json, os, subprocess, sys
from harness import children, interpreters

interpreters.reserve(int(sys.argv[1]))
output, errors = children.memory_file("output"), children.memory_file("errors")
read, write = os.pipe()
environment = {**os.environ, "PLANTED": "value", "PYTHONUNBUFFERED": "1"}
process = interpreters.start(
    sys.argv[2], [3, {"a": [None, True]}], output=output, errors=errors, environment=environment, descriptors=[write]
)
os.close(write)
try:
    status = process.wait(60)
except subprocess.TimeoutExpired:
    raise SystemExit("the process does not end")
text = [os.pread(file, 1 << 20, 0).decode() for file in (output, errors)]
kinds = type(process).__name__
print(json.dumps([kinds, status, process.poll(), *text, os.read(read, 100).decode(), sys.path]))
"""
TARGET = """
import os, sys, time

def speak(descriptors, number, words):
    [descriptor] = descriptors
    os.write(descriptor, f"{number} {words}".encode())
    same = os.getsid(0) == os.getpid()
    print(os.environ["PLANTED"], "HOME" in os.environ, same, sys.stdin.read() == "", sys.path)
    print("to stderr", file=sys.stderr)

def fail(descriptors, *others):
    raise ValueError("planted")

def leave(descriptors, *others):
    sys.exit(7)
"""


def started(tmp_path: Path, reserved: int, function: str) -> list[object]:
    (tmp_path / "interpreters_target.py").write_text(TARGET)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(reserved), f"interpreters_target:{function}"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: list[object] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(("reserved", "kind"), [(0, "Popen"), (1, "Reserved"), (3, "Reserved")])
def test_a_function_runs_in_a_process_of_its_own(tmp_path: Path, reserved: int, kind: str) -> None:
    made, status, again, output, errors, written, path = started(tmp_path, reserved, "speak")
    assert (made, status, again) == (kind, 0, 0)
    assert output == f"value {'HOME' in os.environ} True True {path}\n" and errors == "to stderr\n"
    assert written == "3 {'a': [None, True]}"


@pytest.mark.parametrize("reserved", [0, 1])
def test_an_exception_and_an_exit_are_those_of_an_interpreter(tmp_path: Path, reserved: int) -> None:
    _, status, _, _, errors, _, _ = started(tmp_path, reserved, "fail")
    assert status == 1 and str(errors).endswith("ValueError: planted\n"), errors
    _, status, _, _, errors, _, _ = started(tmp_path, reserved, "leave")
    assert (status, errors) == (7, "")


def test_reserved_processes_end_with_the_process_that_made_them() -> None:
    program = """
        import sys
        from harness import interpreters
        interpreters.reserve(3)
        print(*(process.pid for process, _ in interpreters._waiting), flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as maker:
        assert maker.stdin is not None
        assert maker.stdout is not None
        reserved = [psutil.Process(int(word)) for word in maker.stdout.readline().split()]
        assert len(reserved) == 3 and all(process.is_running() for process in reserved)
        maker.kill()
    assert psutil.wait_procs(reserved, 30)[1] == []


def test_a_process_with_threads_reserves_none() -> None:
    program = """
        import threading
        from harness import interpreters
        from harness.errors import HarnessError
        event = threading.Event()
        threading.Thread(target=event.wait, daemon=True).start()
        try:
            interpreters.reserve(1)
        except HarnessError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "a process with 2 threads cannot reserve processes: expected 1 thread\n"
