"""Groups that share one process's imports: they are like any other group, and nothing depends on that process."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness import children
from harness.errors import HarnessError
from harness.ranks import RankFailure, RankGroup, fork_server, forking, group, network, wire

TARGETS = "tests.ranks.targets"
PLAIN = {"compile_once": False}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(own_keepers: None) -> Iterator[fork_server.ForkServer]:
    shared = group.share_imports()
    assert shared is not None, "own_keepers hides that of the session"
    yield shared
    shared.close()


def process_of(ranks: RankGroup) -> forking.Forked:
    keeper = ranks._running.keeper
    assert keeper is not None and isinstance(keeper.process, forking.Forked), "a new interpreter"
    return keeper.process


def server_of(ranks: RankGroup) -> psutil.Process:
    parent = psutil.Process(process_of(ranks).pid).parent()
    assert parent is not None
    return parent


def is_forked(**arguments: dict[str, str]) -> bool:
    """Return True if a new group's keeper is forked; nothing is imported for it."""
    ranks = RankGroup(1, options=PLAIN, **arguments)  # type: ignore[arg-type]
    with ranks:
        ranks.prepare()
        assert ranks._running.keeper is not None
        return isinstance(ranks._running.keeper.process, forking.Forked)


def reason_against() -> str:
    return forking.usable({**network.inherited(os.environ), **group.QUIET})[1]


def test_a_forked_group_has_what_a_new_one_has(
    server: fork_server.ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "of_this_folder.py").write_text(
        "import os, signal, sys, threading\n"
        "def state(env, payload):\n"
        "    own = ('TORCHELASTIC', 'GROUP_', 'MASTER_', 'IRIS_HARNESS_AGENT')\n"
        "    variables = {name: value for name, value in os.environ.items() if not name.startswith(own)}\n"
        "    return [variables, sys.path, sys.argv, os.getcwd(), [sys.stdin.read(), os.isatty(1), os.isatty(2)],\n"
        "            [str(signal.getsignal(n)).split(' at ')[0] for n in sorted(signal.valid_signals())],\n"
        "            sys.excepthook.__qualname__, sorted(t.name for t in threading.enumerate()),\n"
        "            os.getpgid(0) == os.getsid(0)]\n"
    )  # fmt: skip
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    answers = []
    for forked in (True, False):
        if not forked:
            monkeypatch.delenv(forking.VARIABLE)
        with RankGroup(2, options=PLAIN, environment={"GLOO_SOCKET_IFNAME": "lo"}) as ranks:
            answers.append(ranks.call("of_this_folder:state"))
            assert isinstance(ranks._running.keeper.process, forking.Forked) is forked  # type: ignore[union-attr]
    for one, other in zip(*answers, strict=True):
        for shared, new in zip(one, other, strict=True):
            assert shared == new
    assert forking.VARIABLE not in answers[0][0][0] and answers[0][0][0]["TRITON_CACHE_DIR"] == str(tmp_path)


def test_groups_share_the_imports_and_leave_nothing(server: fork_server.ForkServer) -> None:
    with RankGroup(2, options=PLAIN) as first:
        assert first.call(f"{TARGETS}:rank_of") == [0, 1]
        shared = server_of(first)
        descriptors, children = len(os.listdir("/proc/self/fd")), set(shared.children(recursive=True))
        for _ in range(2):
            with RankGroup(1, options=PLAIN) as second:
                assert second.call(f"{TARGETS}:rank_of") == [0] and server_of(second) == shared
                used = psutil.Process(process_of(second).pid).cpu_times()
                assert used.user + used.system < 0.5 * shared.cpu_times().user, "it imports PyTorch itself"
        assert len(os.listdir("/proc/self/fd")) == descriptors
        assert set(shared.children(recursive=True)) == children
    server.close()
    assert not shared.is_running() and forking.VARIABLE not in os.environ
    server.close()
    assert not is_forked()


def test_the_ranks_end_with_their_controller_and_the_server_with_its_session(own_keepers: None) -> None:
    code = (
        "import os, signal\nfrom harness.ranks import RankGroup, group\n"
        "shared = group.share_imports()\n"
        "ranks = RankGroup(2, options={'compile_once': False}); ranks.start()\n"
        "keeper = ranks._running.keeper.process.pid\n"
        "print(keeper, *ranks.pids, flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as session:
        assert session.stdout is not None
        started = [psutil.Process(int(pid)) for pid in session.stdout.readline().split()]
        started.append(started[0].parent())  # type: ignore[arg-type]
        assert started[-1] in psutil.Process(session.pid).children()
        session.kill()
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def test_a_keeper_that_is_killed_is_reported_with_its_signal(server: fork_server.ForkServer) -> None:
    with RankGroup(1, options=PLAIN) as ranks:
        ranks.start()
        process = process_of(ranks)
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == process.poll() == process.returncode == -signal.SIGKILL
        process.send_signal(signal.SIGKILL)  # it has ended: nothing happens


def test_a_group_goes_on_without_the_server_and_later_ones_start_interpreters(server: fork_server.ForkServer) -> None:
    with RankGroup(1, options=PLAIN) as ranks:
        assert ranks.call(f"{TARGETS}:rank_of") == [0]
        process, shared = process_of(ranks), server_of(ranks)
        shared.kill()
        shared.wait(60)
        assert ranks.call(f"{TARGETS}:rank_of") == [0]
        assert process.poll() is None
        process.kill()
        with pytest.raises(HarnessError, match="its exit status is not known, since the fork server has ended"):
            process.wait(60)
        assert not is_forked()


def test_a_server_that_ends_before_it_forks_costs_only_time(own_keepers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0" + (address := f"iris-harness-planted-{os.getpid()}"))
    listener.listen()

    def end_after_the_request() -> None:
        client, _ = listener.accept()
        listener.close()
        *_, count = wire.receive(client)
        for descriptor in wire.receive_descriptors(client, count):
            os.close(descriptor)
        client.close()

    threading.Thread(target=end_after_the_request, daemon=True).start()
    monkeypatch.setattr(forking, "usable", lambda environment: (address, ""))
    with RankGroup(1, options=PLAIN) as ranks:
        ranks.prepare()
        assert not process_of(ranks).begun()
        assert ranks.call(f"{TARGETS}:rank_of") == [0]


def test_a_module_that_the_server_cannot_import_is_reported_by_the_group(own_keepers: None) -> None:
    shared = fork_server.ForkServer(("tests.ranks.no_such_module",), group.QUIET)
    try:
        ranks = RankGroup(1, "tests.ranks.no_such_module:setup", PLAIN)
        with ranks, pytest.raises(RankFailure, match="no_such_module"):
            ranks.start()
    finally:
        shared.close()


def test_a_process_in_other_circumstances_starts_an_interpreter(
    server: fork_server.ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules read variables when they are imported; limits, masks and namespaces are inherited."""
    assert is_forked()
    for name in ("NUMBA_OPT", "TORCH_LOGS", "LD_PRELOAD", "PYTHONHASHSEED", "IRIS_HARNESS_DEVICE", "ANY_OTHER"):
        assert not is_forked(environment={name: "1"}), name
    before = os.umask(0o077)
    try:
        assert not is_forked()
        assert reason_against() == "a process forked from the server would differ from a new one: status Umask"
    finally:
        os.umask(before)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[0] - 1, files[1]))
    try:
        assert not is_forked()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
    with monkeypatch.context() as patch:  # ``undo`` would bring back the session's server, which own_keepers hides
        patch.setattr("harness.__file__", str(ROOT / "copy" / "harness" / "__init__.py"))  # a mutant's
        assert not is_forked()
    with monkeypatch.context() as patch:
        patch.setenv("NUMBA_OPT", "secret")
        patch.delenv("PATH")
        reason = "a process forked from the server would differ from a new one: variables NUMBA_OPT, variables PATH"
        assert reason_against() == reason
    assert reason_against() == "" and is_forked()


def answer_of(target: str) -> tuple[bool, str, str]:
    """Return whether a process that calls ``target`` was forked, what it printed, and what the server message."""
    output = children.memory_file("output")
    environment = {**network.inherited(os.environ), **group.QUIET}
    process = forking.start(target, [], output=output, errors=output, environment=environment)
    assert isinstance(process, forking.Forked)
    try:
        process.wait(60)
        message = ""
    except HarnessError as error:
        message = str(error)
    process.close()
    text = os.pread(output, 1 << 20, 0).decode()
    os.close(output)
    return not message, text, message


def test_a_module_of_the_server_is_not_used_in_place_of_another_one(
    server: fork_server.ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_target.py").write_text("import sys\ndef call(descriptors):\n    print(sys.path[0], end='')\n")
    assert is_forked(), "the server runs, with the search path of now"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    assert answer_of("own_target:call") == (True, str(tmp_path), "")
    for name in ("numpy", "psutil", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("")
        forked, _, message = answer_of("own_target:call")
        assert not forked
        assert message.startswith(f"the fork server refused a process: a new process imports {name} from {tmp_path}"), (
            message
        )
        (tmp_path / f"{name}.py").unlink()
    (tmp_path / "numpy").mkdir()  # no package: the search goes on behind it
    assert answer_of("own_target:call")[0]
    monkeypatch.setattr("sys.path", [*sys.path[1:], str(tmp_path)])
    (tmp_path / "psutil.py").write_text("")
    assert answer_of("own_target:call") == (True, sys.path[0], "")


def test_a_server_with_threads_states_it_and_the_group_starts_an_interpreter(
    own_keepers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "with_threads.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    shared = fork_server.ForkServer(("with_threads",), group.QUIET)
    try:
        message = answer_of("os:getcwd")[2]
        assert message == (
            "the fork server refused a process: its imports started threads (1), which a forked process would not have"
        )
        with RankGroup(1, options=PLAIN) as ranks:
            assert ranks.call(f"{TARGETS}:rank_of") == [0]
    finally:
        shared.close()


def test_a_process_in_another_namespace_starts_an_interpreter(server: fork_server.ForkServer) -> None:
    code = "import os\nfrom harness.ranks import forking, network, group\n"
    code += "known = lambda: forking.usable({**network.inherited(os.environ), **group.QUIET})\n"
    code += "first, _ = known(); refused = network.enter(); second, why = known()\n"
    code += "print(bool(first), bool(second), refused or why)"
    # Without ``env``, the process would have variables that only the C library has, which Triton's profiler sets.
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=True
    )
    first, second, why = done.stdout.strip().split(" ", 2)
    assert first == "True", done
    if second == "False":
        assert why.startswith("a process forked from the server would differ from a new one: namespaces "), done
    else:
        assert why, "the kernel refuses a namespace, and nothing has changed"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_another_user_gets_no_process(server: fork_server.ForkServer) -> None:
    assert is_forked(), "the server runs"
    address = os.environ[forking.VARIABLE].partition(" ")[0]
    ask = (
        "import os, socket, sys\nfrom harness.ranks import wire\n"
        "if sys.argv[2] != '0': os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))\n"
        "client = socket.socket(socket.AF_UNIX); client.connect('\\0' + sys.argv[1]); client.settimeout(60)\n"
        "try:\n"
        "    wire.send(client, ['os:getcwd', [], [], {}, '/', [], 2]); wire.send_descriptors(client, [1, 2])\n"
        "    print(wire.receive(client)[0] > 0)\n"
        "except (wire.WireClosedError, ConnectionError): print('refused')\n"
    )
    answers = [
        subprocess.run([sys.executable, "-c", ask, address, user], cwd=ROOT, capture_output=True, text=True, check=True)
        for user in ("0", "65534")
    ]
    assert [each.stdout.strip() for each in answers] == ["True", "refused"], answers


def test_nonsense_does_not_end_the_server(server: fork_server.ForkServer) -> None:
    address = os.environ[forking.VARIABLE].partition(" ")[0]
    for message in (b"", b"nonsense", wire.encode("no request"), wire.encode([1, 2, 3])):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"\0{address}")
            client.sendall(message)
    with RankGroup(1, options=PLAIN) as ranks:
        assert ranks.call(f"{TARGETS}:rank_of") == [0] and process_of(ranks)
