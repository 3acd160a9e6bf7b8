"""No process outside a running rank group can connect to it: it has no listening or abstract socket for others.

The functions that search and connect also find a socket that a rank opens on purpose, so the tests can fail.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.ranks import RankCrash, RankGroup
from tests.ranks import reach

TARGETS = "tests.ranks.targets"
PLAIN = {"compile_once": False}
GLOO = re.compile(r"127\.0\.0\.1 port \d+")


@pytest.fixture(scope="module", params=[("private", "exec"), ("loopback", "fork")], ids="-".join)
def group(request: pytest.FixtureRequest, private_network: str) -> Iterator[RankGroup]:
    """Both kinds of network, and both ways to start ranks; the default, private and fork, is in all other tests."""
    network, start = request.param
    if network == "private" and private_network:
        pytest.skip(f"needs a kernel that permits a network namespace: {private_network}")
    with RankGroup(2, options={**PLAIN, "start": start}, network=network) as started:
        yield started


@pytest.mark.slow
def test_an_idle_group_is_out_of_reach(group: RankGroup) -> None:
    # What other tests have left open in this process, or have left running, is not the group's.
    before = {(each.kind, each.address) for each in reach.sockets([os.getpid()])}
    group.start()
    assert group.network in ("private", "loopback")
    opened = [each for each in reach.sockets(reach.processes_of(group)) if (each.kind, each.address) not in before]
    assert reach.reachable(opened) == []
    assert [each for each in opened if each.kind != "tcp" or not GLOO.fullmatch(each.address)] == [], "gloo's only"
    assert {each.pid for each in opened} <= set(group.pids), "controller, keeper and agent listen on nothing"
    assert opened, "gloo listens, which shows that sockets in the group's network are seen"


@pytest.mark.slow
def test_process_groups_of_a_call_are_out_of_reach_after_it(group: RankGroup) -> None:
    before = len(reach.sockets(group.pids))
    assert group.call(f"{TARGETS}:sum_over_a_new_group", 1) == [3, 3]
    opened = reach.sockets(group.pids)
    assert len(opened) > before
    assert reach.reachable(opened) == []
    assert group.call(f"{TARGETS}:sum_of_ranks", 2) == [5, 5], "the ranks' own connections are as before"


@pytest.mark.slow
def test_a_restarted_group_is_out_of_reach(group: RankGroup) -> None:
    with pytest.raises(RankCrash):
        group.call(f"{TARGETS}:leaves", 5)
    network = group.network
    assert group.call(f"{TARGETS}:sum_of_ranks", 3) == [7, 7]
    assert group.network == network
    assert reach.reachable(reach.sockets(reach.processes_of(group))) == []


@pytest.mark.slow
def test_a_socket_that_a_rank_opens_is_found(group: RankGroup) -> None:
    """A process that a rank has left behind listens on all interfaces; only the private network confines it."""
    port, name = group.call(f"{TARGETS}:leaves_a_listening_process")[0]
    expected = {("tcp", f"0.0.0.0 port {port}"), ("unix", f"@{name}")}
    planted = [
        each
        for each in reach.sockets(reach.processes_of(group))
        if (each.kind, each.address) in expected and each.pid not in group.pids
    ]
    assert {(each.kind, each.address) for each in planted} == expected
    kinds = {each.kind for each in reach.reachable(planted)}
    assert kinds == (set() if group.network == "private" else {"tcp", "unix"})


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_another_user_can_open_no_file_of_a_group(group: RankGroup) -> None:
    """The stores' files, and the way into the network, are in /proc; the same user can open them."""
    group.start()
    agent = psutil.Process(group.pids[0]).parent()
    assert agent is not None
    files = [str(path) for path in Path(f"/proc/{agent.pid}/fd").iterdir() if "memfd" in os.readlink(path)]
    files.append(f"/proc/{group.pids[0]}/ns/net")
    assert len(files) >= 3, "two stores, and the network namespace"
    code = (
        "import os, sys\n"
        "if sys.argv[1] != '0': os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))\n"
        "for path in sys.argv[2:]:\n"
        "    try: os.close(os.open(path, os.O_RDONLY)); print(path)\n"
        "    except PermissionError: pass\n"
    )
    opened = {}
    for uid in (0, reach.UNPRIVILEGED):
        command = [sys.executable, "-c", code, str(uid), *files]
        opened[uid] = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout.split()
    assert opened == {0: files, reach.UNPRIVILEGED: []}
