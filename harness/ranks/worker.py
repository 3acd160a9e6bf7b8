"""Main program of each rank: join torch.distributed, set up, then execute one call after the other.

The main thread executes calls; a daemon thread watches for the end of the controller and answers requests for the
rank's state. A call arrives over the wire (see ``wire``) as ["call", "module:function", payload]. The answer is
["result", value], ["error", error], or ["poisoned", error] from a rank that exits because its device was lost, with
``error`` a RankError in plain form. A result that the wire cannot carry is an error of the call.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

from harness import compiling, standstill, threads
from harness.errors import KernelFault
from harness.ranks import companion, joining, network, processes, sealing, stacks, wire
from harness.ranks.errors import RankError
from harness.ranks.spec import AGENT_VARIABLE, NO_TCP_STORE, SPEC_VARIABLE, Spec

_INTERRUPTED = 128 + signal.SIGINT
_POISONED = 3


def main(spec: Spec) -> None:
    """Run a rank that the agent forked; never returns."""
    rank = int(os.environ["RANK"])
    try:
        _prepare_process()
        connection = joining.join(spec.channel, int(os.environ["LOCAL_RANK"]))
        # Those after the fifth only have to be held open; ranks that are fresh interpreters do not inherit them.
        output, dump, state, compiles, still, *_ = wire.receive_descriptors(connection, 5 + spec.held)
        os.dup2(output, 1)
        os.dup2(output, 2)
        faulthandler.enable(file=2, all_threads=True)
        stacks.register(dump)
        compiling.report_to(compiles)
        standstill.report_to(still)
        helper = companion.start(rank, spec, _serve_rank) if spec.companion else None
        _watch(connection, spec.controller, state)
        _serve(connection, rank, spec, helper)
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)  # the keeper sends SIGINT first
    except (wire.WireClosedError, ConnectionError):
        os._exit(1)  # the controller has ended
    except BaseException as error:  # noqa: BLE001 (it ends the process, and the controller reads the reason)
        print(f"rank {rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def main_of_interpreter() -> None:
    """Run a rank that is a fresh interpreter: its spec is in the environment."""
    fields = json.loads(os.environ.pop(SPEC_VARIABLE))["spec"]
    main(Spec(**fields))


def _prepare_process() -> None:
    os.environ.pop(NO_TCP_STORE, None)
    processes.die_with_parent(int(os.environ[AGENT_VARIABLE]))
    processes.leave_no_core()
    # The agent's handlers were inherited with the fork.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _watch(connection: socket.socket, controller: int, state: int) -> None:
    """Start the thread that ends this process with its controller, and that reports its state on request."""
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    arguments = (connection.fileno(), processes.open_pidfd(controller), wakeup_read, state)
    threads.start(stacks.watch, arguments, "rank-watch")


def _serve_rank(connection: socket.socket, rank: int, spec: Spec, state: int) -> None:
    """Run a companion: execute the calls of its rank."""
    _watch(connection, spec.controller, state)
    _serve(connection, rank, spec, None)


def _serve(connection: socket.socket, rank: int, spec: Spec, helper: companion.Companion | None) -> None:
    setup, options = wire.receive(connection)
    # The peers on other machines are not among the processes of this one, which a seal examines.
    unsealed = spec.network in (network.PRIVATE, network.NODES)
    seal: AbstractContextManager[None] = nullcontext() if unsealed else sealing.Seal()
    # NCCL connects through its listening sockets at any later collective, so they must stay usable.
    seal_of_calls = nullcontext() if network.uses_nccl(options) else seal
    try:
        with seal_of_calls:
            environment = _set_up(rank, spec, setup, options, seal, helper)
    except (KeyboardInterrupt, wire.WireClosedError):
        raise
    except BaseException as error:  # noqa: BLE001 (it is raised in the controller)
        wire.send(connection, ["failed", RankError.of(rank, error).to_plain()])
        # Wait until the controller ends the group: an exit now would look like a crash in addition to the failure.
        wire.receive_bytes(connection)
        return
    stacks.describe_by(environment)
    wire.send(connection, ["ready", rank])
    _execute_calls(connection, rank, environment, seal_of_calls)
    _finish(environment)


def _execute_calls(connection: socket.socket, rank: int, environment: Any, seal: AbstractContextManager[None]) -> None:
    """Execute calls until the controller sends "quit". Stack reports leave out this frame (by its name) and those
    below."""
    while True:
        body = wire.receive_bytes(connection)
        message: list[Any] = []
        raised: BaseException | None = None
        try:
            message = wire.decode(body)
            if message[0] == "quit":
                return
            standstill.begin()
            with seal:
                answer = wire.encode(["result", resolve(message[1])(environment, message[2])])
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 (it is raised in the controller)
            raised = error
            answer = wire.encode(["error", RankError.of(rank, error).to_plain()])
        if (fault := _poison(environment, raised)) is not None:
            wire.send(connection, ["poisoned", RankError.of(rank, fault).to_plain()])
            os._exit(_POISONED)  # a driver that lost its context may hang in the calls of an orderly end
        connection.sendall(answer)
        del body, message, answer, raised  # so that an idle rank keeps no payload alive


def _poison(environment: Any, raised: BaseException | None) -> BaseException | None:
    """Return the exception with which this process lost its device, if the environment's ``poisoned()`` is true.

    That is ``environment.fault`` if it is an exception, else the exception of the call. None if the device works.
    """
    poisoned = getattr(environment, "poisoned", None)
    if not callable(poisoned) or not poisoned():
        return None
    fault = getattr(environment, "fault", None)
    if isinstance(fault, BaseException):
        return fault
    return raised or KernelFault("the device of this process was lost during the call, which raised nothing")


def _set_up(
    rank: int,
    spec: Spec,
    setup: str | None,
    options: dict[str, Any],
    seal: AbstractContextManager[None],
    helper: companion.Companion | None,
) -> Any:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    backend = options.get("backend", "gloo")
    timeout = timedelta(seconds=options.get("collective_timeout", 1800))
    world_size = spec.world_size * spec.nodes
    store = _store(spec, timeout)
    with seal:
        dist.init_process_group(backend, timeout=timeout, store=store, rank=rank, world_size=world_size)
    if options.get("compile_once", True):
        from harness.ranks import compile_once

        compile_once.install()
    info = {
        "rank": rank,
        "world_size": world_size,
        "local_rank": int(os.environ["LOCAL_RANK"]),
        "node": int(os.environ["GROUP_RANK"]),
        "nodes": spec.nodes,
        "run_id": spec.run_id,
    }
    if helper is not None:
        info["companion"] = helper
    return info if setup is None else resolve(setup)(info, options)


def _store(spec: Spec, timeout: timedelta) -> Any:
    """Return the store for the rendezvous of the ranks: not that of MASTER_ADDR and MASTER_PORT, for which rank 0 would
    listen."""
    import torch.distributed as dist

    if spec.nodes == 1:
        file: Any = dist.FileStore(spec.store, spec.world_size)  # type: ignore[attr-defined]
        file.set_timeout(timeout)
        return file
    host, _, port = spec.endpoint.rpartition(":")
    shared: Any = dist.TCPStore(host, int(port), is_master=False, timeout=timeout)  # type: ignore[attr-defined]
    return dist.PrefixStore(f"{spec.run_id}/ranks", shared)  # type: ignore[attr-defined]


def _finish(environment: Any) -> None:
    """End in order: call the environment's ``close()``, then leave torch.distributed. The controller limits the
    time."""
    close = getattr(environment, "close", None)
    if callable(close):
        close()
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


_resolved: dict[str, Callable[..., Any]] = {}


def resolve(target: str) -> Callable[..., Any]:
    """Return the function that ``"module:function"`` names. Raises ValueError, ImportError or AttributeError if there
    is none."""
    function = _resolved.get(target)
    if function is None:
        module, colon, name = target.partition(":")
        if not colon:
            raise ValueError(f"expected 'module:function', got {target!r}")
        function = importlib.import_module(module)  # type: ignore[assignment]
        for part in name.split("."):
            function = getattr(function, part)
        assert function is not None  # sanity check
        _resolved[target] = function
    return function
