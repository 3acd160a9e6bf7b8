"""Functions that the tests in this folder run on ranks: one per behaviour, most of them planted faults."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
import time
from typing import Any

from harness.errors import KernelFault, UsageError

FOREVER = 10_000.0


class SetupObject:
    """An environment whose ``close`` writes a marker."""

    def __init__(self, info: dict[str, Any], options: dict[str, Any]) -> None:
        self.info = info
        self.options = options

    def close(self) -> None:
        with open(self.options["trace"], "a", encoding="ascii") as file:
            file.write(f"{self.info['rank']} ")


class FaultWithReport(KernelFault):
    def report(self) -> dict[str, Any]:
        return {"address": 0x1000, "lane": 7}


def setup(info: dict[str, Any], options: dict[str, Any]) -> SetupObject:
    return SetupObject(info, options)


def failing_setup(info: dict[str, Any], options: dict[str, Any]) -> None:
    print("words before the failure", flush=True)
    if info["rank"] == options.get("failing_rank", 1):
        raise ArithmeticError(f"no setup on rank {info['rank']}")


def misused_setup(info: dict[str, Any], options: dict[str, Any]) -> None:
    raise UsageError("the device 'abacus' does not exist")


def hanging_setup(info: dict[str, Any], options: dict[str, Any]) -> None:
    if info["rank"] == 1:
        time.sleep(FOREVER)


def dying_setup(info: dict[str, Any], options: dict[str, Any]) -> None:
    if info["rank"] == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def rank_of(env: dict[str, Any], payload: Any) -> int:
    return int(env["rank"])


def describe(env: dict[str, Any], payload: Any) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    return {
        "env": env,
        "payload": payload,
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "backend": dist.get_backend(),
        "elastic": os.environ.get("TORCHELASTIC_RUN_ID"),
        "restarts": os.environ.get("TORCHELASTIC_MAX_RESTARTS"),
        "threads": torch.get_num_threads(),
        "session": os.getsid(0),
        "start_method": "exec" if multiprocessing.parent_process() is None else "fork",
    }


def setup_options(env: SetupObject, payload: Any) -> Any:
    return env.options["word"]


def sum_of_ranks(env: dict[str, Any], payload: int) -> int:
    import torch
    import torch.distributed as dist

    total = torch.tensor([env["rank"] + payload])
    dist.all_reduce(total)
    return int(total.item())


def sum_over_a_new_group(environment: Any, payload: int) -> int:
    """Like ``sum_of_ranks``, over a process group that this call makes and leaves."""
    import torch
    import torch.distributed as dist

    group = dist.new_group(list(range(dist.get_world_size())), backend="gloo")
    value = torch.tensor([dist.get_rank() + payload])
    dist.all_reduce(value, group=group)
    return int(value[0])


def leaves_a_listening_process(environment: Any, payload: None) -> tuple[int, str]:
    """A process that goes on to listen on all interfaces and on an abstract name: its port and its name."""
    name = f"iris-harness-planted-{os.getpid()}"
    everywhere = socket.create_server(("0.0.0.0", 0))
    named = socket.socket(socket.AF_UNIX)
    named.bind("\0" + name)
    named.listen()
    if os.fork() == 0:
        time.sleep(10_000)
        os._exit(0)
    port = int(everywhere.getsockname()[1])
    everywhere.close()
    named.close()
    return port, name


def echo(env: Any, payload: Any) -> Any:
    return payload


def unpicklable(env: Any, payload: Any) -> Any:
    return threading.Lock()


def fails(env: dict[str, Any], payload: list[int]) -> int:
    """Raise on the ranks in ``payload``."""
    print(f"words of rank {env['rank']}", flush=True)
    if env["rank"] in payload:
        raise ValueError(f"planted on {env['rank']}")
    return int(env["rank"])


def faults(env: dict[str, Any], payload: Any) -> None:
    raise FaultWithReport("bad address")


def exits(env: dict[str, Any], payload: Any) -> None:
    sys.exit(3)


def fails_beside_a_barrier(env: dict[str, Any], payload: Any) -> None:
    import torch.distributed as dist

    if env["rank"] == 1:
        raise ValueError("planted next to a barrier")
    dist.barrier()


def hangs_in_python(env: dict[str, Any], payload: Any) -> None:
    if env["rank"] == 1:
        while True:
            pass


def hangs_in_sleep(env: dict[str, Any], payload: Any) -> None:
    if env["rank"] == 1:
        time.sleep(FOREVER)


def sleeps(env: dict[str, Any], payload: float) -> None:
    time.sleep(payload)


def hangs_alone(env: dict[str, Any], payload: Any) -> None:
    time.sleep(FOREVER)


def hangs_in_receive(env: dict[str, Any], payload: Any) -> None:
    import torch
    import torch.distributed as dist

    if env["rank"] == 1:
        dist.recv(torch.zeros(1), src=0)


def hangs_with_the_interpreter(env: dict[str, Any], payload: Any) -> None:
    """Hang inside C code that holds the GIL: a regular expression that backtracks forever."""
    if env["rank"] == 1:
        re.match(r"(a+)+$", "a" * 99 + "b")


def stops(env: dict[str, Any], payload: Any) -> None:
    if env["rank"] == 1:
        os.kill(os.getpid(), signal.SIGSTOP)


class Described:
    """An environment that describes its device by the text in ``options["state"]``."""

    def __init__(self, rank: int, state: str) -> None:
        self.rank = rank
        self.state = state

    def __getitem__(self, name: str) -> int:
        return int(getattr(self, name))

    def describe(self) -> str:
        if self.state == "nothing":
            time.sleep(FOREVER)
        if self.state == "error":
            raise ArithmeticError("no words")
        return f"rank {self.rank} polls at kernel.py:17"


def described_setup(info: dict[str, Any], options: dict[str, Any]) -> Described:
    return Described(info["rank"], options["state"])


class Poisonable:
    """An environment whose device can be lost, with the cause in ``fault``, as in ``fixtures.worker.Env``."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.lost = False
        self.fault: BaseException | None = None

    def __getitem__(self, name: str) -> int:
        return int(getattr(self, name))

    def poisoned(self) -> bool:
        return self.lost


def poisonable_setup(info: dict[str, Any], options: dict[str, Any]) -> Poisonable:
    return Poisonable(info["rank"])


def loses_its_device(env: Poisonable, payload: dict[str, str]) -> str:
    """Lose the device on rank 1 in the way ``payload["way"]``; the other ranks act by ``payload["others"]``."""
    import torch.distributed as dist

    print(f"words of rank {env.rank}", flush=True)
    if env.rank == 1:
        env.lost = True
        if payload["way"] != "silently":
            env.fault = KernelFault("the GPU's context is lost: planted")
        if payload["way"] == "raising":
            raise RuntimeError("CUDA error: a consequence")
    elif payload["others"] == "spin":
        while True:
            pass
    elif payload["others"] == "collective":
        dist.barrier()
    elif payload["others"] == "crash":
        time.sleep(0.2)
        os.abort()
    return "fine"


def has_a_fault_that_ends_a_launch_only(env: Poisonable, payload: Any) -> str:
    env.fault = KernelFault("planted, and the device goes on")
    return "fine"


def ignores_signals(env: dict[str, Any], payload: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(1)


def crashes(env: dict[str, Any], payload: Any) -> None:
    if env["rank"] == 1:
        ctypes.string_at(0)
    time.sleep(FOREVER)


def leaves(env: dict[str, Any], payload: int) -> None:
    if env["rank"] == 1:
        os._exit(payload)
    time.sleep(FOREVER)


def leaves_with_terminated_peers(env: dict[str, Any], payload: list[int]) -> None:
    """Rank 1 leaves once the others, whose pids are in ``payload``, have got the signal that the agent sends them."""
    if env["rank"] == 1:
        for pid in payload:
            os.kill(pid, signal.SIGTERM)
        os._exit(5)
    time.sleep(FOREVER)


def is_signalled(env: dict[str, Any], payload: int) -> None:
    if env["rank"] == 0:
        os.kill(os.getpid(), payload)
    time.sleep(FOREVER)


def aborts_with_a_child(env: dict[str, Any], payload: Any) -> None:
    """Leave a grandchild in its own session, print its pid to stdout, and abort."""
    if env["rank"] == 1:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            time.sleep(FOREVER)
        print(f"grandchild {pid}", flush=True)
        os.abort()
    time.sleep(FOREVER)


def leaves_shared_memory(env: dict[str, Any], payload: Any) -> None:
    name = f"/dev/shm/heap-{env['run_id']}-{env['rank']}"
    with open(name, "wb") as file:
        file.write(bytes(4096))
    print(name, flush=True)
    time.sleep(FOREVER)


def touches_shared_memory(env: dict[str, Any], payload: Any) -> str:
    """Make a file in shared memory that carries the run id; returns the run id."""
    run_id = str(env["run_id"])
    with open(f"/dev/shm/touched-{run_id}-{env['rank']}", "x", encoding="ascii"):
        return run_id


def pids_below(env: dict[str, Any], payload: Any) -> list[int]:
    """This rank, its agent, its keeper."""
    with open(f"/proc/{os.getppid()}/stat", encoding="ascii") as file:
        keeper = int(file.read().rpartition(")")[2].split()[1])
    return [os.getpid(), os.getppid(), keeper]


def kills(env: dict[str, Any], payload: int) -> None:
    """Kill the process ``payload`` from rank 0, and wait."""
    if env["rank"] == 0:
        os.kill(payload, signal.SIGKILL)
    time.sleep(FOREVER)


def asks_for_a_gpu(env: Any, payload: Any) -> None:
    import torch

    torch.cuda.is_available()


def variable(env: Any, name: str) -> str | None:
    return os.environ.get(name)


_prepared = 0


def prepare() -> None:
    """Function that the process calls from which ranks are forked."""
    global _prepared
    _prepared += 1


def of_the_start(env: Any, payload: Any) -> tuple[int, bool, list[int], bool]:
    """Return how often ``prepare`` was called, whether and with which thresholds Python searches for garbage, and
    whether it leaves out this module."""
    left_out = not any(thing is targets_of_tests for thing in gc.get_objects())
    return _prepared, gc.isenabled(), list(gc.get_threshold()), left_out


targets_of_tests = {"an object that": ["exists before the fork"]}
