"""Compilation of each kernel once per machine, in a child process, so that a compiler abort fails only its case.

``install`` wraps ``triton.compile``. A kernel that Triton's disk cache holds is loaded as always. For a new one, the
first process to take the kernel's lock (next to the cache's entries, so it spans this user's ranks, groups and runs)
compiles it in a forked child, which fills the cache; the others wait for the lock and then load the kernel from the
cache. A child that a signal ended raises ``CompilerAborted`` here; an exception of the child is raised here again.
Failures are recorded for the other ranks of the group, until its processes end. All of this is reported as compilation
time, see ``harness.compiling``: it does not count against a call's deadline.

Launches are not wrapped: kernels in memory never reach this module. With Triton's ``always_compile``, ``override`` or
``dump_ir`` knobs, or for IR files, Triton itself compiles, within the process and its limits.
"""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import children, locks
from harness.compiling import compiling
from harness.errors import CompilerAborted, HarnessError
from harness.ranks import processes, raised
from harness.ranks.idle import Idle
from harness.ranks.stacks import read_from

COMPILE_LIMIT = 120.0
"""Seconds that one compilation may take before its child is killed; a rank waits twice as long for another rank's."""

STARTS = 3
"""Times that one compilation is started, if its child then uses no core: one of the parent's threads may have held a
lock at the fork, which nothing in the child releases."""

_POLL, _LAP = 0.01, 0.5
_OUTPUT_END = 2000
"""Characters of the compiler's output that are kept from its beginning, and from its end."""

_original: Callable[..., Any] | None = None


def install() -> None:
    """Compile new kernels of this process once per machine from now on.

    Call it before the first launch of a kernel. Idempotent.
    """
    global _original
    if _original is not None:
        return
    import triton.compiler

    _original = triton.compiler.compile
    _replace(_original, _compile)


def uninstall() -> None:
    """Restore Triton's own ``compile``; kernels launched in the meantime keep the wrapped one. Idempotent."""
    global _original
    if _original is not None:
        _replace(_compile, _original)
        _original = None


def hash_compiler_ahead() -> threading.Thread:
    """Compute Triton's hash of itself (most of a second) in a thread, which is returned; forks after it inherit the
    result."""
    from triton.runtime import cache

    thread = threading.Thread(target=cache.triton_key, name="triton-key", daemon=True)
    thread.start()
    return thread


def _replace(old: Callable[..., Any], new: Callable[..., Any]) -> None:
    # JITFunction.create_binder reads triton.compiler.compile; users read triton.compile.
    for name in ("triton", "triton.compiler", "triton.compiler.compiler"):
        module = sys.modules[name]
        if getattr(module, "compile", None) is old:
            setattr(module, "compile", new)  # noqa: B010 (mypy refuses the plain assignment to a function)


def _compile(src: Any, target: Any = None, options: Any = None, **others: Any) -> Any:
    original = _original
    if original is None:  # a binder that kept the wrapper after uninstall
        import triton.compiler

        return triton.compiler.compile(src, target=target, options=options, **others)

    from triton.runtime import driver

    if target is None:
        target = driver.active.get_current_target()

    def compile_it() -> Any:
        return original(src, target=target, options=options, **others)

    def compile_in_a_fork() -> Any:
        # Kernels may query their target, and a GPU's driver does not work in a forked process.
        driver.set_active(_TargetOnly(target))
        return compile_it()

    entry = _entry(src, target, options, others)
    if entry is None:
        with compiling():
            return compile_it()
    if entry.ready():
        return compile_it()
    with compiling(), locks.held(entry.lock, 2 * COMPILE_LIMIT, f"the compilation of {entry.name}"):
        if not entry.ready():
            entry.raise_earlier_failure()
            _compile_in_child(entry, compile_in_a_fork)
    return compile_it()  # loads the kernel that the child, or another rank's child, wrote to the cache


class _TargetOnly:
    """Triton driver that has a target and no device."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        return self._target


class _Entry:
    """A kernel's entry in Triton's disk cache, its lock, and how its compilation failed in this run."""

    def __init__(self, name: str, key: str, manager: Any, cache: Path) -> None:
        self.name = name
        self.lock = locks.in_cache(cache, f"{key}.lock")
        self._failure = self.lock.with_suffix(".failure.json")
        self._manager = manager
        self._metadata = f"{name[:150]}.json"

    def ready(self) -> bool:
        """Return whether the cache holds the compiled kernel, by the same check as ``triton.compile``."""
        return self._metadata in (self._manager.get_group(self._metadata) or {})

    def remember_failure(self, kind: str, value: Any) -> None:
        """Record a failure for the other ranks of this run; a later run tries again. The caller holds the lock."""
        run = os.environ.get("TORCHELASTIC_RUN_ID")
        if run is None:
            return
        temporary = self._failure.with_suffix(".new")
        temporary.write_text(json.dumps({"run": run, "kind": kind, "value": value}))
        os.replace(temporary, self._failure)

    def raise_earlier_failure(self) -> None:
        """Raise the failure of an earlier attempt in the same run, if there was one; remove one of another run."""
        try:
            failure = json.loads(self._failure.read_bytes())
        except FileNotFoundError:
            return
        except ValueError:  # only partly written, on a full disk
            failure = {}
        if failure.get("run") != os.environ.get("TORCHELASTIC_RUN_ID"):
            self._failure.unlink()
        elif failure["kind"] == "aborted":
            raise CompilerAborted(**failure["value"])
        else:
            raise raised.restored(failure["value"])


def _entry(src: Any, target: Any, options: Any, others: dict[str, Any]) -> _Entry | None:
    """Return the cache entry that ``triton.compile`` with these arguments will use; None if Triton itself must
    compile."""
    from triton import knobs
    from triton.compiler import compiler
    from triton.runtime import cache

    bypass = knobs.compilation.always_compile or knobs.compilation.override or knobs.compilation.dump_ir
    if bypass or not isinstance(src, compiler.ASTSource):
        return None
    backend = compiler.make_backend(target)
    parsed = backend.parse_options(dict(options or {}, **src.parse_options()))
    variables = others.get("_env_vars")
    if variables is None:
        variables = compiler.get_cache_invalidating_env_vars()
    key = cache.get_cache_key(src, backend, parsed, env_vars=variables)
    hook = getattr(knobs.runtime, "add_stages_inspection_hook", None)
    if hook is not None:
        key += hook()[0]
    digest = hashlib.sha256(key.encode("utf-8")).hexdigest()
    manager = cache.get_cache_manager(digest)
    # A cache that is not a folder, such as a remote one, has no lock of its own either.
    lock = getattr(manager, "lock_path", None)
    return None if lock is None else _Entry(src.name, digest, manager, Path(lock).parents[1])


def _compile_in_child(entry: _Entry, compile_it: Callable[[], Any]) -> None:
    """Fill the cache from a forked child. Raises the child's exception, CompilerAborted, or HarnessError for a stall.

    This process has the threads of torch.distributed when it forks. That is safe, because the child only calls the
    compiler and ends by ``os._exit``, and because the wait for it is bounded. A child that a lock stops, which a thread
    held at the fork, is killed and another one started.
    """
    output = os.memfd_create("iris-harness-compiler-output")
    result = os.memfd_create("iris-harness-compiler-result")
    try:
        for _ in range(STARTS):
            status = _run_child(entry, compile_it, output, result)
            if status is not None:
                break
        else:
            raise HarnessError(f"the compilation of {entry.name}, started {STARTS} times, used no core each time")
        text = _compiler_output(output)
        if os.WIFSIGNALED(status):
            aborted = CompilerAborted(entry.name, children.describe_exit(status), text)
            # A SIGKILL, by a person or by the kernel for lack of memory, need not recur.
            if os.WTERMSIG(status) != signal.SIGKILL:
                entry.remember_failure("aborted", {"kernel": entry.name, "how": aborted.how, "output": text})
            raise aborted
        if size := os.fstat(result).st_size:
            data = os.pread(result, size, 0).decode()
            entry.remember_failure("raised", data)
            raise raised.restored(data)
        if os.WEXITSTATUS(status) != 0:
            raise CompilerAborted(entry.name, children.describe_exit(status), text)
    finally:
        os.close(output)
        os.close(result)


def _run_child(entry: _Entry, compile_it: Callable[[], Any], output: int, result: int) -> int | None:
    """Return the wait status of a forked child that compiles, or None for one that used no core and was killed."""
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork in a process with threads; ``_compile_in_child`` states why this one is safe.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _child(parent, compile_it, output, result)
    try:
        pidfd = processes.open_pidfd(pid)
        try:
            idle, end, ended, stuck = Idle(), time.monotonic() + COMPILE_LIMIT, False, False
            while not ended and not stuck and (left := end - time.monotonic()) > 0:
                ended = bool(processes.wait_readable([pidfd], min(_LAP, left)))
                stuck = not ended and idle.lap([pid])
        finally:
            os.close(pidfd)
    except BaseException:
        _kill(pid)
        raise
    if stuck:
        _kill(pid)
        return None
    if not ended:
        _kill(pid)
        text = _compiler_output(output)
        raise HarnessError(f"the compilation of {entry.name} did not end within {COMPILE_LIMIT:g} s\n{text}")
    return os.waitpid(pid, 0)[1]


def _child(parent: int, compile_it: Callable[[], Any], output: int, result: int) -> None:
    """Compile, as the body of the forked child; never returns."""
    # The parent's garbage must not be finalised here: it may be memory of a GPU, whose driver ends a forked process
    # that touches it, or a file that only the parent may remove.
    gc.disable()
    try:
        processes.die_with_parent(parent)
        processes.leave_no_core()
        signal.set_wakeup_fd(-1)
        faulthandler.disable()  # the report needs the compiler's own last output, not this stack
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGABRT):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            compile_it()
        except Exception as error:  # noqa: BLE001 (it is raised in the parent)
            os.write(result, raised.packed(error).encode())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    finally:
        os._exit(1)


def _compiler_output(output: int) -> str:
    """Return the beginning of the compiler's output, where LLVM states its error, and the end."""
    text = read_from(output, 0, limit=1 << 20)
    return text if len(text) <= 2 * _OUTPUT_END else f"{text[:_OUTPUT_END]}\n...\n{text[-_OUTPUT_END:]}"


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)  # a child of this process, not waited for yet, so its id cannot have been reused
    end = time.monotonic() + 10
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            raise HarnessError(f"the compiler's process {pid} does not end")
        time.sleep(_POLL)
