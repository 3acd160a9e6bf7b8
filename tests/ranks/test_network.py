"""The network of a rank group: the choice, the message of a refusal, and the effects of entering one."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from harness.errors import UsageError
from harness.ranks import RankGroup, network
from tests.ranks import reach

# Enters a network as the user that the first argument names, and prints what that changed. The imports come first:
# the other user may not be able to read them.
_ENTER = """
import ctypes, json, os, socket, stat, sys, tempfile
from harness.ranks import network
user, capability = int(sys.argv[1]), int(sys.argv[2])
folder = tempfile.mkdtemp()
libc = ctypes.CDLL(None)
if user != os.getuid():
    os.chown(folder, user, user)
    os.setgroups([]); os.setgid(user); os.setuid(user)
    libc.prctl(4, 1, 0, 0, 0)  # as a process that another user's program started is
if capability == 0 and os.getuid() == 0:
    network._drop_capabilities()
os.chmod(folder, 0o500)
before = os.readlink("/proc/self/ns/net")
refused = network.enter()
state = {"refused": refused, "moved": os.readlink("/proc/self/ns/net") != before, "ids": [os.getuid(), os.getgid()]}
try:
    open(folder + "/file", "w").close()
    state["writes"] = True
except PermissionError:
    state["writes"] = False
with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as caller:
    state["loopback"] = caller.connect_ex(server.getsockname())
os.chmod(folder, 0o700)
state["owner"] = os.stat(folder).st_uid
if state["writes"]:
    os.unlink(folder + "/file")
os.rmdir(folder)
print(json.dumps(state))
"""


def _enter(user: int, capability: int = 1) -> dict[str, Any]:
    command = [sys.executable, "-c", _ENTER, str(user), str(capability)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    return dict(json.loads(done.stdout))


def test_entering_changes_the_network_and_nothing_else() -> None:
    """As an ordinary user: where the kernel refuses, nothing has changed at all."""
    user = os.getuid() or reach.UNPRIVILEGED
    state = _enter(user)
    assert state["moved"] == (state["refused"] == "")
    assert state["ids"][0] == state["owner"] == user
    assert not state["writes"], "a folder that is read-only stays so"
    assert state["loopback"] == 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give its capabilities up")
def test_root_of_a_container_keeps_its_network_and_its_power_over_files() -> None:
    state = _enter(0, capability=0)
    assert (state["moved"], state["refused"]) == (False, "this process is root without the capability CAP_SYS_ADMIN")


def test_the_caller_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(network.VARIABLE, raising=False)
    assert network.chosen(None) is None
    monkeypatch.setenv(network.VARIABLE, "loopback")
    assert network.chosen(None) == "loopback"
    assert network.chosen("private") == "private"
    monkeypatch.setenv(network.VARIABLE, "host")
    with pytest.raises(UsageError, match=f"{network.VARIABLE}: expected 'private' or 'loopback', got 'host'"):
        RankGroup(1)
    with pytest.raises(UsageError, match="network: expected 'private' or 'loopback', got 'public'"):
        RankGroup(1, network="public")


def test_a_refusal_is_an_error_only_for_one_who_insists(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "harness.ranks")
    assert network.decide(None, "", with_nccl=True) == "private"
    assert network.decide("private", "", with_nccl=True) == "private"
    assert caplog.messages == []
    assert network.decide(None, "no namespaces", with_nccl=False) == "loopback"
    assert caplog.messages == ["the ranks use the loopback interface: no namespaces"]
    with pytest.raises(UsageError, match=r"no namespaces\. Run as .* or choose 'loopback'"):
        network.decide("private", "no namespaces", with_nccl=False)


def test_what_stays_open_of_nccl_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert network.decide("loopback", "", with_nccl=True) == "loopback"
    assert "every user of this machine can connect to NCCL's sockets" in caplog.text


def test_a_caller_cannot_bind_ranks_to_another_interface() -> None:
    with pytest.raises(UsageError, match=r"environment: GLOO_SOCKET_IFNAME must be 'lo' .*, got 'eth0'"):
        RankGroup(1, environment={"GLOO_SOCKET_IFNAME": "eth0"})
    with pytest.raises(UsageError, match="NCCL_RAS_ENABLE"):
        RankGroup(1, options={"backend": "cpu:gloo,cuda:nccl"}, environment={"NCCL_RAS_ENABLE": "1"})
    assert RankGroup(1, environment={"GLOO_SOCKET_IFNAME": "lo"})._environment["GLOO_SOCKET_IFNAME"] == "lo"


def test_variables_that_open_more_are_not_inherited() -> None:
    given = {"TORCHELASTIC_HEALTH_CHECK_PORT": "29400", "TORCH_GLOO_LAZY_INIT": "1", "PATH": "/bin"}
    assert network.inherited(given) == {"PATH": "/bin"}
