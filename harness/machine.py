"""Failures of the machine: found before a run where possible, and kept apart from verdicts about the library.

An exception or the end of a process counts as a failure of the machine, and its case as ``unknown``, by this rule:

- An ``OSError`` whose errno names a shortage of the whole machine or a limit of the user (``SHORTAGES``: ENOSPC,
  EDQUOT, EMFILE, ENFILE, ENOMEM, EFBIG), even if the library raised it: an ``unknown`` case makes a run red as well.
- EAGAIN, and Python's "can't start new thread", only where a process or a thread was being created.
- An ``OSError`` that refuses access (EACCES, EPERM, EROFS, ENOTDIR, ELOOP, EIO) only where its file name lies in
  Triton's cache, above it, in HOME or in TMPDIR; ENOENT only in Triton's cache. Any other refusal, such as that of a
  mapping call, is the library's own error.
- A ``MemoryError`` without text, as the interpreter raises it, NumPy's, and torch's messages for a failed allocation or
  mapping. ``raise MemoryError("the heap is full")`` has text: it is the library's own.
- The end of a process by a signal that is sent from outside (``SIGNALS``; the kernel also sends SIGKILL when memory
  runs out). SIGSEGV, SIGABRT, SIGFPE and SIGILL are crashes of the code in that process, and so is SIGBUS unless
  /dev/shm is full. If one rank crashed by itself and others were killed, it is a crash.
- Any exception that is raised ``from`` one of these.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import tempfile
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.errors import CompilerAborted, KernelFault, MachineError, UsageError
from harness.text import message_of

SHORTAGES = {
    errno.ENOSPC: "free space on that file system, or set TMPDIR and TRITON_CACHE_DIR to a folder on another one",
    errno.EDQUOT: "free some of your quota, or set TMPDIR and TRITON_CACHE_DIR to a folder elsewhere",
    errno.EMFILE: "raise the limit with ulimit -n, or use fewer --ranks",
    errno.ENFILE: "the whole machine has too many open files: end other programs, or raise fs.file-max",
    errno.ENOMEM: "free memory, raise ulimit -v, or use fewer --ranks",
    errno.EFBIG: "raise the limit with ulimit -f",
}
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.EIO)
_TORCH = re.compile(
    r"DefaultCPUAllocator: can't allocate memory"
    r"|unable to (?:mmap|open|resize|write|allocate)[^\n]*\((?:12|24|28|122)\)"
)
_STARTERS = ("subprocess.py", "popen_fork.py", "popen_spawn_posix.py", "threading.py", "compile_once.py")
"""Files of Python and of the harness whose calls create processes and threads."""

SIGNALS = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGXCPU", "SIGXFSZ", "SIGALRM", "SIGPWR")

SHARED_MEMORY = Path("/dev/shm")
_FULL = 1 << 20
_LEAST_FREE = 64 << 20
"""Bytes that a folder must have free before a run: compiled kernels and evidence take some tens of megabytes."""

_LEAST_SHARED = 16 << 20
"""Bytes of /dev/shm: torch and drivers put little there, and a container has 64 MiB by default."""


def explained(error: Exception) -> Exception:
    """Return ``error``, or a MachineError in its place if the machine failed, by the rule of this module."""
    exception: BaseException | None = error
    while exception is not None:
        if (text := _cause(exception)) is not None:
            explanation = MachineError(text)
            explanation.__cause__ = error
            return explanation
        exception = exception.__cause__
    return error


def killed(exits: Mapping[int, str], full: str | None = None) -> str | None:
    """Describe what ended processes from outside; None if one of them ended by itself.

    ``exits``: rank -> text such as "signal 9 (SIGKILL)". ``full``: the result of ``full_memory`` before the memory of
    these processes was freed.
    """
    names = set()
    for how in exits.values():
        match = re.search(r"\((SIG\w+)\)", how)
        name = match[1] if match else ""
        if name not in SIGNALS and not (name == "SIGBUS" and full):
            return None
        names.add(name)
    if "SIGBUS" in names:
        return f"{full}, which ends a process that writes to it with SIGBUS: free space there"
    if "SIGKILL" in names:
        return (
            "killed from outside: by a person or a supervisor, or by the kernel because memory ran out (see dmesg);"
            " free memory or use fewer --ranks, and run again"
        )
    if names & {"SIGXCPU", "SIGXFSZ"}:
        return "ended by a limit of this user: raise ulimit -t (CPU time) and ulimit -f (file size), and run again"
    return "ended from outside, by a person or a supervisor: run again"


def full_memory() -> str | None:
    """Return "/dev/shm is full (SIZE bytes free)", or None while it has room."""
    free = _free(SHARED_MEMORY)
    return None if free is None or free >= _FULL else f"{SHARED_MEMORY} is full ({free} bytes free)"


def check(ranks: int, folders: Iterable[Path] = ()) -> None:
    """Check that the machine can finish a run on ``ranks`` emulated ranks or GPUs; raises UsageError, in one line.

    Checks the user's limits, Triton's cache (which it creates), and free space there, in ``folders``, in TMPDIR and in
    /dev/shm.
    """
    for limit, option, needed, unit in (
        (resource.RLIMIT_NOFILE, "-n", 128 + 12 * ranks, "open files"),
        (resource.RLIMIT_NPROC, "-u", 64 + 12 * ranks, "processes and threads"),
        (resource.RLIMIT_FSIZE, "-f", 256 << 20, "bytes in a file"),
        (resource.RLIMIT_AS, "-v", 8 << 30, "bytes of address space"),
    ):
        allowed, _ = resource.getrlimit(limit)
        if allowed == resource.RLIM_INFINITY or allowed >= needed or (option == "-u" and os.geteuid() == 0):
            continue
        enough = needed if option in ("-n", "-u") else needed // 1024
        raise UsageError(
            f"this user may have {allowed} {unit} (ulimit {option}), and {ranks} ranks need {needed}:"
            f" run ulimit {option} {enough} first{', or use fewer --ranks' if enough == needed else ''}"
        )
    cache = triton_cache()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write into Triton's cache {cache} ({error.strerror or error}): set TRITON_CACHE_DIR, or HOME, to a"
            " folder that you may write to"
        ) from error
    try:
        temporary = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise UsageError(f"{error.strerror or error}: set TMPDIR to a folder that you may write to") from error
    for folder, needed, remedy in (
        (cache, _LEAST_FREE, "free space, or set TRITON_CACHE_DIR to another folder"),
        (temporary, _LEAST_FREE, "free space, or set TMPDIR to another folder"),
        (SHARED_MEMORY, _LEAST_SHARED, "free space there, or give a container more (docker run --shm-size=1g)"),
        *((folder, _LEAST_FREE, "free space, or write to another folder") for folder in folders),
    ):
        free = _free(folder)
        if free is not None and free < needed:
            raise UsageError(f"{folder} has {free >> 20} MiB free, and a run needs {needed >> 20} MiB: {remedy}")


def triton_cache() -> Path:
    """Return the folder in which Triton keeps compiled kernels."""
    if chosen := os.environ.get("TRITON_CACHE_DIR"):
        return Path(chosen)
    return Path(os.environ.get("TRITON_HOME") or os.path.expanduser("~")) / ".triton" / "cache"


# -- helpers -----------------------------------------------------------------------------------------------------------


def _cause(error: BaseException) -> str | None:
    """Return the failure of the machine that ``error`` itself (not its cause) shows, with its remedy; None without."""
    kind = f"{type(error).__name__}: {message_of(error)}"
    if isinstance(error, OSError):
        remedy = _of_errno(error)
        return None if remedy is None else f"{kind}; {remedy}"
    if isinstance(error, MemoryError) and (not error.args or type(error).__name__ == "_ArrayMemoryError"):
        return f"{type(error).__name__}: memory ran out; {SHORTAGES[errno.ENOMEM]}"
    if isinstance(error, RuntimeError) and not isinstance(error, KernelFault):
        if "can't start new thread" in message_of(error) and _raised_in(error).endswith(_STARTERS):
            return f"{kind}; raise the limit with ulimit -u, or use fewer --ranks"
        if _TORCH.search(message_of(error)):
            return f"{kind}; {SHORTAGES[errno.ENOMEM]}, and look at the free space of {SHARED_MEMORY}"
        if _raised_in(error).endswith(os.path.join("triton", "runtime", "cache.py")):
            return f"{kind}; set TRITON_CACHE_DIR to a folder that you may write to"
    if isinstance(error, CompilerAborted) and (text := killed({0: error.how})):
        return f"the compiler's process was {text}"
    return None


def _of_errno(error: OSError) -> str | None:
    if error.errno in SHORTAGES:
        return SHORTAGES[error.errno]
    if error.errno == errno.EAGAIN and _raised_in(error).endswith(_STARTERS):
        return "no process can be created: raise the limit with ulimit -u, or use fewer --ranks"
    if "No usable temporary directory" in message_of(error):
        return "set TMPDIR to a folder that you may write to"
    names = [os.path.abspath(os.fsdecode(name)) for name in (error.filename, error.filename2) if _is_path(name)]
    if not names:
        return None
    cache = triton_cache().absolute()
    missing = error.errno == errno.ENOENT and any(Path(name).is_relative_to(cache) for name in names)
    refused = error.errno in _REFUSALS and any(_is_ours(Path(name), cache) for name in names)
    if missing or refused:
        return "give this user a HOME, a TMPDIR and a TRITON_CACHE_DIR that it may write to and that no process empties"
    return None


def _is_ours(path: Path, cache: Path) -> bool:
    """Return whether the run itself writes to ``path``: Triton's cache or a folder above it, HOME, TMPDIR."""
    homes = [Path(os.path.expanduser("~")), Path(_temporary())]
    inside = any(path.is_relative_to(folder) for folder in (cache, *homes) if folder != Path("/"))
    return inside or cache.is_relative_to(path)


def _is_path(name: object) -> bool:
    return isinstance(name, (str, bytes)) and bool(name)


def _raised_in(error: BaseException) -> str:
    """Return the file of the innermost Python frame; "" for an exception that came from another process."""
    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].filename if frames else ""


def _temporary() -> str:
    return next((os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)), "/tmp")


def _free(folder: Path) -> int | None:
    """Return the bytes that this user may still write to ``folder``; None if it does not exist."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize
