"""A Slurm of four nodes on this machine: started in a folder, with ports and keys of its own, and ended completely."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo", "munged")
NODES = ("n0", "n1", "n2", "n3")

_CONF = """
ClusterName=iris
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={port}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=5,batch_sched_delay=0,sched_min_interval=0
JobRequeue=1
RequeueExit=75
ReturnToService=2
SlurmdTimeout=10
KillWait=2
MinJobAge=300
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[0-3] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=1 RealMemory=500 State=UNKNOWN
PartitionName=gate Nodes=n[0-3] PriorityTier=10 Default=NO State=UP MaxTime=60
PartitionName=nightly Nodes=n[0-3] PriorityTier=1 PreemptMode=REQUEUE Default=YES State=UP MaxTime=600
"""


def missing() -> list[str]:
    """Return the programs of Slurm that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None and not Path("/usr/sbin", name).exists()]


class Cluster:
    """A running Slurm. ``environment`` is that in which its commands reach it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self.environment["PATH"] += os.pathsep + "/usr/sbin"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start munge, the controller and the nodes, and wait until the nodes are idle."""
        host = socket.gethostname().partition(".")[0]
        first = _free_ports(len(NODES))
        values = {"host": host, "user": getpass.getuser(), "folder": self.folder, "port": _free_ports(1)}
        (self.folder / "slurm.conf").write_text(_CONF.format(**values, first=first, last=first + len(NODES) - 1))
        version = self.run("slurmctld", "-V").stdout
        new = tuple(map(int, re.findall(r"\d+", version)[:2])) >= (23, 2)
        (self.folder / "cgroup.conf").write_text(f"CgroupPlugin={'disabled' if new else 'cgroup/v1'}\n")
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o600)
        (self.folder / "state").mkdir()
        own = {name: self.folder / f"munge.{name}" for name in ("key", "sock", "pid", "log", "seed")}
        options = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        words = [f"--{option}={own[name]}" for option, name in options.items()]
        self._start("munged", "munged", "--foreground", "--force", *words)
        wait(own["sock"].exists, "the socket of munge")
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        wait(lambda: self.states() == dict.fromkeys(NODES, "idle"), "four idle nodes", self.node_states)

    def start_controller(self) -> None:
        """Start slurmctld, with the state of an earlier one."""
        self._start("slurmctld", "slurmctld", "-D")

    def stop_controller(self) -> None:
        """Kill slurmctld."""
        self._kill("slurmctld")

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node."""
        self._start(node, "slurmd", "-D", "-N", node)

    def lose_node(self, node: str, *, orphans: bool) -> None:
        """Kill the slurmd and slurmstepd of a node, and unless there are ``orphans`` the processes of its jobs.

        slurmstepd first: otherwise it reports the end of the job, as on a machine that works.
        """
        self._kill(node)
        of_jobs = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if _step_log(process) == str(self.folder / f"slurmd-{node}.log"):
                    process.kill()
                elif process.environ().get("SLURMD_NODENAME") == node:
                    of_jobs.append(process)
        for process in () if orphans else of_jobs:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def states(self) -> dict[str, str]:
        """Return the state of each node, such as idle or drained."""
        lines = self.run("sinfo", "-h", "-N", "-p", "nightly", "-o", "%N %t").stdout.split("\n")
        return dict(line.split() for line in lines if len(line.split()) == 2)

    def node_states(self) -> str:
        """Return the state of all nodes in a line, for the message of a failed test."""
        return str(self.states())

    def run(self, *command: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm."""
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=check)

    def stop(self) -> list[str]:
        """End all processes; return the names of those that did not end."""
        for name in ("slurmctld", *NODES, "munged"):
            self._kill(name)
        left = self.processes()
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        _, alive = psutil.wait_procs(left, timeout=10)
        return [process.name() for process in alive]

    def processes(self) -> list[psutil.Process]:
        """Return all processes of this Slurm and of its jobs, by the environment that they inherited.

        slurmstepd has overwritten its environment: it is recognized by its log.
        """
        listed, conf = [], self.environment["SLURM_CONF"]
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid == os.getpid():
                    continue
                if process.environ().get("SLURM_CONF") == conf or _step_log(process).startswith(f"{self.folder}/"):
                    listed.append(process)
        return listed

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _kill(self, name: str) -> None:
        if (process := self._processes.pop(name, None)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=10)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """A cluster that is ended in any case, and has left no process then."""
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        left = cluster.stop()
        assert left == [] and cluster.processes() == []


def wait(
    condition: Callable[[], object], description: str, state: Callable[[], str] = lambda: "", seconds: float = 90.0
) -> None:
    """Wait until ``condition`` holds; fail with ``description`` and ``state`` after ``seconds``."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"timed out waiting for {description}: {state()}"
        time.sleep(0.2)


def _step_log(process: psutil.Process) -> str:
    """Return the log of a slurmstepd, which is that of its node; "" for other processes."""
    if process.name() != "slurmstepd":
        return ""
    logs = (file.path for file in process.open_files())
    return next((path for path in logs if Path(path).name.startswith("slurmd-")), "")


def _free_ports(count: int) -> int:
    """Return the first of ``count`` ports in a row that nothing uses."""
    for _ in range(100):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first: int = probe.getsockname()[1]
        if first + count < 65_000 and all(_is_free(first + number) for number in range(count)):
            return first
    raise RuntimeError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def lines_of(paths: Sequence[Path]) -> str:
    """Return the last lines of files, for the message of a failed test."""
    return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-8000:]}" for path in paths if path.is_file())
