"""Kernels and planted compilers for the tests of ``compile_once``; every function runs on ranks."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import warnings
from types import SimpleNamespace
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.language.target_info import is_hip
from triton.runtime import driver

from harness.errors import CompilerAborted
from harness.ranks import compile_once, idle

TARGET = GPUTarget("hip", "gfx942", 64)
ARGUMENT = [["tt.divisibility", 16], ["tt.pointer_range", 32]]


@gluon.jit
def copy(p, x, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [4], [0])
    offsets = gl.arange(0, BLOCK, layout=layout)
    gl.store(p + offsets, gl.load(x + offsets))


@gluon.jit
def wrong(p, x, BLOCK: gl.constexpr):
    gl.store(p, no_such_name)  # noqa: F821 (the planted error)


@triton.jit
def exchange(p, x, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    old = tl.atomic_xchg(p + offsets, tl.load(x + offsets), sem="relaxed", scope="gpu")
    tl.store(x + offsets, old)


@gluon.jit
def asks_for_its_target(p, x, BLOCK: gl.constexpr):
    gl.store(p, 942.0 if is_hip() else 90.0)


class OneProcessDriver:
    """Stand-in for a GPU's driver, which does not work in a process that was forked after its first use."""

    def __init__(self) -> None:
        self.process = os.getpid()

    def get_current_target(self) -> GPUTarget:
        if os.getpid() != self.process:
            raise RuntimeError("the driver was first used before a fork")
        return TARGET


class UnpicklableError(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


def _compile(kernel: Any, dtype: str, source: type = GluonASTSource, block: int = 256) -> Any:
    signature = {"p": f"*{dtype}", "x": f"*{dtype}", "BLOCK": "constexpr"}
    src = source(kernel, signature, {(2,): block}, {(0,): ARGUMENT, (1,): ARGUMENT})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Triton's own, about defaults of a later release
        return triton.compile(src, target=TARGET, options={"num_warps": 4})


def _count_compilations() -> None:
    """Make every compilation, in any process, write a line to the file COMPILATIONS."""
    from triton.compiler import compiler

    real = compiler.make_backend

    def make_backend(target: Any) -> Any:
        backend = real(target)
        stages = backend.add_stages

        def add_stages(*arguments: Any) -> None:
            with open(os.environ["COMPILATIONS"], "a", encoding="ascii") as file:
                file.write(f"{os.environ['RANK']} {os.getpid()} {os.getppid()}\n")
            stages(*arguments)

        backend.add_stages = add_stages
        return backend

    compiler.make_backend = make_backend


def setup(info: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    _count_compilations()
    return info


def compile_copy(env: dict[str, Any], payload: tuple[str, int]) -> tuple[str, str]:
    dtype, block = payload
    kernel = _compile(copy, dtype, block=block)
    return kernel.hash, kernel.asm["amdgcn"]


def compile_wrong(env: dict[str, Any], payload: Any) -> None:
    _compile(wrong, "fp32")


def compile_exchange(env: dict[str, Any], payload: str) -> str:
    return str(_compile(exchange, payload, ASTSource).hash)


def _planted(act: Any, block: int) -> None:
    """Compile a new kernel with a compiler that calls ``act`` first."""
    real = GluonASTSource.make_ir

    def make_ir(*arguments: Any, **named: Any) -> Any:
        act()
        return real(*arguments, **named)

    GluonASTSource.make_ir = make_ir
    try:
        _compile(copy, "fp32", block=block)
    finally:
        GluonASTSource.make_ir = real


def compile_aborting(env: dict[str, Any], payload: Any) -> None:
    def act() -> None:
        os.write(2, b"LLVM ERROR: planted\n")
        os.write(2, b"a line\n" * 10_000)
        os.write(2, b"the last line\n")
        os.abort()

    _planted(act, 512)


def compile_stuck_once(env: dict[str, Any], payload: Any) -> None:
    """The first child of each rank's own kernel waits for a lock that the rank holds; the second does not."""
    lock, forks = threading.Lock(), []
    lock.acquire()
    os.register_at_fork(after_in_parent=lambda: forks.append(lock.release() if lock.locked() else None))

    def act() -> None:
        with lock:  # a child has the state of the lock at its fork
            pass

    before, idle.SECONDS = idle.SECONDS, 1.0
    try:
        _planted(act, 8192 << env["rank"])
    finally:
        idle.SECONDS = before
    assert len(forks) == 2, f"{len(forks)} children were started"


def compile_killed(env: dict[str, Any], payload: Any) -> None:
    """The first attempt of each rank's own kernel is killed as for lack of memory; the second is let through."""
    block = 1024 << env["rank"]
    try:
        _planted(lambda: os.kill(os.getpid(), signal.SIGKILL), block)
    except CompilerAborted as aborted:
        if aborted.how != "signal 9 (SIGKILL)":
            raise
    _compile(copy, "fp32", block=block)


def compile_leaving(env: dict[str, Any], payload: Any) -> None:
    _planted(lambda: os._exit(3), 128)


class OfThisProcess:
    """Stand-in for a GPU's memory: finalising it in a forked process ends that process."""

    def __init__(self) -> None:
        self.process, self.cycle = os.getpid(), self

    def __del__(self) -> None:
        if os.getpid() != self.process:
            os.abort()


def compile_beside_garbage(env: dict[str, Any], payload: Any) -> None:
    """Keep an unreferenced cycle alive while the compiler runs: every allocation may collect it."""
    held = [OfThisProcess()]

    def act() -> None:
        held.clear()
        gc.set_threshold(1)
        assert [[number] for number in range(1000)]

    _planted(act, 2048)


def compile_unpicklable(env: dict[str, Any], payload: Any) -> None:
    def act() -> None:
        raise UnpicklableError

    _planted(act, 64)


def compile_with_a_type_of_its_own(env: dict[str, Any], payload: Any) -> None:
    def act() -> None:
        class LocalError(Exception):
            """A type that only the compiler's process knows."""

        raise LocalError("x" * 1_000_000)

    _planted(act, 16)


def compile_for(env: dict[str, Any], payload: dict[str, float]) -> None:
    """Rank 0 compiles for ``seconds`` while rank 1 waits for it; then rank 1 hangs if ``hang`` is true."""
    import torch.distributed as dist

    if env["rank"] == 0:
        _planted(lambda: time.sleep(payload["seconds"]), int(payload["block"]))
    dist.barrier()
    if env["rank"] == 1 and payload.get("hang"):
        time.sleep(10_000)


def compile_as_the_emulator_does(env: dict[str, Any], _: None) -> int:
    """The emulator's functions, with a numba that takes 1 s; the group's own cache folder holds the lock."""
    from harness.emulator import compilation

    function = SlowNumba()
    compilation.compile_now({function: ()})
    return len(function.signatures)


class SlowNumba:
    py_func = compile_as_the_emulator_does

    def __init__(self) -> None:
        self.signatures: list[Any] = []
        self.stats = SimpleNamespace(cache_misses=0, cache_path=os.environ["TRITON_CACHE_DIR"])

    def compile(self, signature: Any) -> None:
        time.sleep(1.0)
        self.signatures.append(signature)

    def disable_compile(self) -> None:
        """Do nothing: numba's dispatchers have this method."""


def compile_stalling(env: dict[str, Any], payload: Any) -> None:
    compile_once.COMPILE_LIMIT = 0.3
    try:
        _planted(lambda: time.sleep(10_000), 32)
    finally:
        compile_once.COMPILE_LIMIT = 120.0


def uninstall_and_install(env: dict[str, Any], payload: Any) -> list[bool]:
    import triton.compiler

    wrapped = triton.compile
    seen = [wrapped is triton.compiler.compile]
    compile_once.uninstall()
    seen.append(triton.compile is not wrapped and triton.compiler.compile is triton.compile)
    compile_once.uninstall()
    compile_once.install()
    compile_once.install()
    seen.append(triton.compile is wrapped and triton.compiler.compile is wrapped)
    return seen


def kernel_that_asks_for_its_target(env: Any, payload: Any) -> bool:
    """Return whether the compiled kernel has the target's branch, with a driver that does not survive a fork."""
    before = driver._active
    driver.set_active(OneProcessDriver())
    try:
        return "446b8000" in _compile(asks_for_its_target, "fp32").asm["amdgcn"]
    finally:
        driver._active = before
