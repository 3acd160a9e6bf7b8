"""Leases of fake GPUs: the locks are real, and so are the processes that compete for them.

tests/gpu/test_leases.py covers the memory of real GPUs after their ranks, and the meaning of masks to CUDA.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from harness import locks
from harness.devices import occupancy, rocm
from harness.devices.gpu_kind import UnreadableError
from harness.errors import HarnessError, UsageError
from harness.ranks import RankGroup, leases
from tests.devices import fakes

ROOT = Path(__file__).parents[2]
TARGETS = "tests.ranks.targets"
LIMIT = 60


@pytest.fixture(autouse=True)
def _unreadable(monkeypatch):
    def unreadable(gpu):
        raise UnreadableError("these GPUs are not there")

    monkeypatch.setattr(leases, "memory_in_use", unreadable)
    monkeypatch.setattr(leases, "users_of", lambda gpu: [])


@pytest.fixture
def tag():
    """A tag that makes the UUIDs of one test's GPUs unique."""
    tag = secrets.token_hex(4)
    yield tag
    for path in leases.folder().glob(f"GPU-{tag}-*.lock"):  # of holders that were killed
        path.unlink()


def quiet(line: str) -> None:
    """Report nothing."""


def child(mode: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.ranks.leaseholder", mode, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def taken_together(spans: list[dict]) -> list[tuple[dict, dict]]:
    """Pairs of leases that had a GPU in common at the same time."""
    return [
        (one, other)
        for place, one in enumerate(spans)
        for other in spans[place + 1 :]
        if one["start"] < other["end"] and other["start"] < one["end"] and set(one["gpus"]) & set(other["gpus"])
    ]


def contend(tag: str, mode: str) -> list[dict]:
    """Six processes take 1 to 8 of eight GPUs again and again; every lease with its times, on one clock."""
    fighters = [child(mode, tag, count, 12) for count in (1, 2, 2, 3, 4, 8)]
    spans = []
    for fighter in fighters:
        output, _ = fighter.communicate(timeout=LIMIT)
        assert fighter.returncode == 0, output
        spans += json.loads(output)
    return spans


def test_no_gpu_has_two_holders(tag):
    spans = contend(tag, "fight")
    assert len(spans) == 6 * 12 and all(span["gpus"] for span in spans)
    assert taken_together(spans) == []


def test_a_lock_that_is_not_taken_is_noticed(tag):
    assert taken_together(contend(tag, "fight_without_locks"))


def test_all_or_nothing(tag):
    gpus = fakes.infos(4, tag=tag)
    first = child("hold", tag, 3)
    try:
        assert first.stdout.readline() == "holds\n"
        with pytest.raises(UsageError, match="no 2 of 4 GPUs were free"):
            leases.acquire(gpus, 2, 0.2, quiet)
        assert leases.holder(gpus[3]) is None, "the one that was free is free again"
    finally:
        first.kill()
        first.communicate()
    assert [leases.holder(gpu) for gpu in gpus] == [None] * 4


def test_a_process_does_not_wait_for_itself(tag):
    gpus = fakes.infos(4, tag=tag)
    first = leases.acquire(gpus, 3, 0, quiet)
    with pytest.raises(HarnessError, match="already holds 3 of 4 GPUs and requests 2 more: release"):
        leases.acquire(gpus, 2, 300, quiet)
    first.release()
    first.release()
    leases.acquire(gpus, 2, 0, quiet).release()


@pytest.mark.parametrize("count", [0, 3])
def test_more_than_there_are(tag, count):
    with pytest.raises(UsageError, match=f"cannot lease {count} of 2 GPUs: request 1 to 2"):
        leases.acquire(fakes.infos(2, tag=tag), count, 60, quiet)


def test_waiting_is_bounded_and_names_the_holder(tag):
    gpus = fakes.infos(2, tag=tag)
    holder = child("hold", tag, 2)
    try:
        assert holder.stdout.readline() == "holds\n"
        messages: list[str] = []
        started = time.monotonic()
        with pytest.raises(UsageError) as caught:
            leases.acquire(gpus, 1, 0.5, messages.append)
        assert 0.5 <= time.monotonic() - started < 5
        who = f"pid {holder.pid} holds 0, 1"
        assert messages == [f"waiting up to 0.5 s for 1 of 2 GPUs ({who})"]
        assert str(caught.value) == (
            f"no 1 of 2 GPUs were free within 0.5 s ({who}): wait for their runs to end, or choose other GPUs"
        )
    finally:
        holder.communicate("\n", timeout=LIMIT)
    leases.acquire(gpus, 2, 10, quiet).release()


def test_a_killed_holder_keeps_its_gpus_until_its_last_heir_is_gone(tag):
    (gpu,) = fakes.infos(1, tag=tag)
    holder = child("hold_with_heir", tag, 1)
    heir = int(holder.stdout.readline())
    try:
        holder.send_signal(signal.SIGKILL)
        holder.communicate(timeout=LIMIT)
        with pytest.raises(UsageError, match=f"the ranks of pid {holder.pid}, which has ended, hold 0"):
            leases.acquire([gpu], 1, 0.3, quiet)
    finally:
        os.kill(heir, signal.SIGKILL)
    leases.acquire([gpu], 1, 10, quiet).release()


def test_a_rank_group_holds_its_gpus_without_its_controller(tag):
    """The processes of a group inherit the locks: closing the controller's own ends the lease only with the group."""
    gpus = fakes.infos(2, tag=tag)
    lease = leases.acquire(gpus, 2, 0, quiet)
    environment = lease.environment({})
    with RankGroup(2, options={"compile_once": False}, environment=environment, hold=lease.descriptors) as group:
        assert group.call(f"{TARGETS}:rank_of") == [0, 1]
        for pid in group.pids:
            ours = Path(f"/proc/{pid}/environ").read_bytes()
            assert f"CUDA_VISIBLE_DEVICES={gpus[0].uuid},{gpus[1].uuid}".encode() in ours.split(b"\0")
        lease.release()
        assert [leases.holder(gpu) for gpu in gpus] == [os.getpid()] * 2
    assert [leases.holder(gpu) for gpu in gpus] == [None] * 2


def test_no_other_process_can_take_the_name_of_a_lock(tag):
    """Any user can bind any abstract name, so the lock has none; its file lies where no other user can write."""
    gpus = fakes.infos(1, tag=tag)
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(f"\0iris-harness-gpu-{gpus[0].uuid}")
        squatter.listen()
        lease = leases.acquire(gpus, 1, 0, quiet)
        (lock,) = leases.folder().glob(f"GPU-{tag}-*.lock")
        assert lock.stat().st_mode & 0o777 == 0o600
        assert lock.parent.stat().st_uid == os.getuid() and not lock.parent.stat().st_mode & 0o022
        lease.release()
    assert not lock.exists(), "a lease that ended leaves no file"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_cannot_hold_up_a_lease(tag, tmp_path, monkeypatch):
    """Another, unprivileged user tries to take the lock's file, to make the folder, and to lock the folder."""
    place = Path(tempfile.mkdtemp())
    try:
        place.chmod(0o755)
        monkeypatch.setattr(leases, "folder", lambda: locks.private_folder(place / "gpus"))
        gpus = fakes.infos(1, tag=tag)
        path = leases.folder() / f"{gpus[0].uuid}.lock"
        path.touch(0o600)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                for attempt in (lambda: os.open(path, os.O_RDONLY), lambda: os.rename(path.parent, place / "mine")):
                    with pytest.raises(PermissionError):
                        attempt()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        leases.acquire(gpus, 1, 0, quiet).release()
    finally:
        shutil.rmtree(place)


def test_a_gpu_that_another_user_uses_is_not_taken_and_its_user_is_named(tag, monkeypatch):
    gpus = fakes.infos(2, tag=tag)
    foreign = subprocess.Popen(["sleep", "600"])
    gone = subprocess.Popen(["true"])
    gone.wait(LIMIT)
    try:
        users = {0: [(foreign.pid, 1 << 30), (os.getpid(), None)], 1: [(gone.pid, None)]}
        monkeypatch.setattr(leases, "users_of", lambda gpu: users[gpu.index])
        real = psutil.Process.uids
        foreigners = {foreign.pid: SimpleNamespace(real=54321)}
        monkeypatch.setattr(psutil.Process, "uids", lambda self: foreigners.get(self.pid) or real(self))
        messages: list[str] = []
        lease = leases.acquire(gpus, 1, 0, messages.append)
        assert [gpu.index for gpu in lease.gpus] == [1]
        assert messages[-1] == f"GPU {gpus[1]} is also used by pid {gone.pid} (not visible from here)"
        lease.release()
        with pytest.raises(UsageError) as caught:
            leases.acquire(gpus, 2, 0.1, quiet)
        assert f"(pid {foreign.pid} of user 54321, which is not a run of yours, uses 0)" in str(caught.value)
        assert leases.holder(gpus[0]) is None and leases.holder(gpus[1]) is None
    finally:
        foreign.kill()
        foreign.wait(LIMIT)


def test_a_user_without_a_home_has_a_folder_by_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_dir=str(tmp_path / "file" / "home")))
    (tmp_path / "file").write_text("")
    made: list[Path] = []
    real = locks.private_folder
    monkeypatch.setattr(
        locks,
        "private_folder",
        lambda path: made.append(path) or real(tmp_path / "tmp") if path.parent == Path("/tmp") else real(path),
    )
    assert leases.folder() == tmp_path / "tmp"
    assert made == [Path(f"/tmp/iris-harness-{os.getuid()}")]


def test_partitions_with_one_uuid_are_refused(tag):
    one, two = fakes.infos(2, tag=tag)
    twins = [one, type(two)(**{**vars(two), "uuid": one.uuid})]
    with pytest.raises(UsageError, match=f"2 of the visible GPUs have the UUID {one.uuid}"):
        leases.acquire(twins, 2, 0, quiet)


@pytest.mark.parametrize(
    ("device", "caller", "wanted"),
    [
        ("cuda", {}, {"CUDA_VISIBLE_DEVICES": "GPU-TAG-0,GPU-TAG-1"}),
        ("cuda", {"CUDA_VISIBLE_DEVICES": "6,7"}, {"CUDA_VISIBLE_DEVICES": "GPU-TAG-0,GPU-TAG-1"}),
        ("rocm", {}, {"HIP_VISIBLE_DEVICES": "0,1"}),
        ("rocm", {"ROCR_VISIBLE_DEVICES": "4,5"}, {"HIP_VISIBLE_DEVICES": "0,1"}),
        ("rocm", {"HIP_VISIBLE_DEVICES": "6, 7"}, {"HIP_VISIBLE_DEVICES": "6,7"}),
        ("rocm", {"CUDA_VISIBLE_DEVICES": "6,7"}, {"HIP_VISIBLE_DEVICES": "6,7", "CUDA_VISIBLE_DEVICES": "6,7"}),
    ],
)
def test_the_ranks_see_their_gpus_within_the_callers_mask(tag, device, caller, wanted):
    lease = leases.acquire(fakes.infos(2, tag=tag, device=device), 2, 0, quiet)
    assert lease.environment(caller) == {name: value.replace("TAG", tag) for name, value in wanted.items()}
    lease.release()


def test_release_waits_for_the_memory(tag, monkeypatch):
    (gpu,) = fakes.infos(1, tag=tag)
    readings = iter([7, 7, *[5 << 30] * 3, 8])
    monkeypatch.setattr(leases, "memory_in_use", lambda gpu: next(readings))
    lease = leases.acquire([gpu], 1, 0, quiet)
    lease.release()
    assert leases.holder(gpu) is None and list(readings) == [], "every reading was needed"


def test_memory_that_does_not_come_back_is_told_and_its_gpu_stays_locked(tag, monkeypatch):
    (gpu,) = fakes.infos(1, tag=tag)
    readings = iter([7, 7])
    monkeypatch.setattr(leases, "memory_in_use", lambda gpu: next(readings, 7 + (5 << 30)))
    monkeypatch.setattr(leases, "users_of", lambda gpu: [(4711, 5 << 30), (4712, None)])
    lease = leases.acquire([gpu], 1, 0, quiet)
    with pytest.raises(HarnessError) as caught:
        lease.release(limit=0.2)
    assert str(caught.value) == (
        f"GPU {gpu}: 5,368,709,120 bytes more in use than before its ranks started, 0.2 s after they ended; used by"
        " pid 4711 (5,368,709,120 bytes), pid 4712 (unknown bytes)"
    )
    assert leases.holder(gpu) == os.getpid()
    readings = iter([])
    monkeypatch.setattr(leases, "memory_in_use", lambda gpu: 7)
    lease.release()
    assert leases.holder(gpu) is None


def test_a_baseline_is_taken_when_an_earlier_holders_memory_is_gone(tag, monkeypatch):
    (gpu,) = fakes.infos(1, tag=tag)
    readings = iter([9 << 30, 4 << 30, 7, 7, 8 << 30, 7])
    monkeypatch.setattr(leases, "memory_in_use", lambda gpu: next(readings))
    leases.acquire([gpu], 1, 0, quiet).release()
    assert list(readings) == [], "8 GiB at the end were more than the baseline of 7 bytes"


def test_memory_that_cannot_be_read_is_said(tag):
    messages: list[str] = []
    leases.acquire(fakes.infos(1, tag=tag), 1, 0, messages.append).release()
    assert messages == ["cannot check that the GPUs' memory is freed after the run: these GPUs are not there"]


def test_memory_of_an_amd_gpu(tmp_path, monkeypatch):
    (gpu,) = fakes.infos(1, arch="gfx942", device="rocm")
    files = {
        "bus/pci/devices/0000:1b:00.0/mem_info_vram_used": "298319872\n",
        "class/kfd/kfd/topology/nodes/0/gpu_id": "0\n",
        "class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 96\nlocation_id 0\ndomain 0\n",
        "class/kfd/kfd/topology/nodes/1/gpu_id": "51110\n",
        "class/kfd/kfd/topology/nodes/1/properties": f"simd_count 1216\nlocation_id {0x1C << 8}\ndomain 0\n",
        "class/kfd/kfd/topology/nodes/2/gpu_id": "24501\n",
        "class/kfd/kfd/topology/nodes/2/properties": f"simd_count 1216\nlocation_id {0x1B << 8}\ndomain 0\n",
        "class/kfd/kfd/proc/812/vram_24501": "1073741824\n",
        "class/kfd/kfd/proc/813/vram_24501": "0\n",
        "class/kfd/kfd/proc/814/vram_51110": "4096\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(rocm, "_SYS", tmp_path)
    assert (occupancy.memory_in_use(gpu), occupancy.users_of(gpu)) == (298319872, [(812, 1073741824)])
    monkeypatch.setattr(rocm, "_SYS", tmp_path / "nowhere")
    with pytest.raises(UnreadableError, match="mem_info_vram_used"):
        occupancy.memory_in_use(gpu)
