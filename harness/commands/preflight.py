"""Everything that can be wrong with a request, found before anything starts.

Never imports Triton or torch: GPUs are looked for in a child process.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from harness import devices, machine
from harness.errors import UsageError
from harness.evidence.environment import installed_version
from harness.seeds import RULE, SEEDS

PROFILES = ("gate", "ci", "dev", "nightly")
MOST_RANKS = 32
TRITON_FROM, TRITON_BELOW = Version("3.6"), Version("3.10.dev0")


@dataclass(frozen=True)
class Request:
    """What a run is asked to do: the options that are handed to the suite.

    ``ranks`` are the world sizes, in order; empty means the profile's. ``mode`` is the emulated device's;
    ``ranks_per_gpu``: at most so many ranks share a GPU. ``deadline``: seconds after which a case counts as hung; None
    for the suite's own.
    """

    device: str
    arch: str
    ranks: tuple[int, ...]
    profile: str
    implementation: str
    seed: int | None = None
    mode: str = "fast"
    ranks_per_gpu: int = 1
    deadline: float | None = None

    def options(self) -> list[str]:
        """The same as options of the pytest plugin."""
        options = ["--device", self.device, "--arch", self.arch]
        options += ["--emulator-mode", self.mode] if self.mode != "fast" else []
        options += ["--profile", self.profile, "--implementation", self.implementation]
        options += ["--ranks", ",".join(map(str, self.ranks))] if self.ranks else []
        options += ["--ranks-per-gpu", str(self.ranks_per_gpu)] if self.ranks_per_gpu != 1 else []
        options += ["--deadline", f"{self.deadline:g}"] if self.deadline is not None else []
        return options + (["--seed", str(self.seed)] if self.seed is not None else [])


def check_request(
    device: str,
    arch: str | None,
    ranks: str | None,
    profile: str,
    implementation: str,
    seed: int | None = None,
    mode: str = "fast",
    ranks_per_gpu: int = 1,
) -> Request:
    """The request, with the device's first arch where none is named. Raises UsageError that says what to do."""
    if not 1 <= ranks_per_gpu <= MOST_RANKS:
        raise UsageError(f"--ranks-per-gpu {ranks_per_gpu}: use 1 to {MOST_RANKS}")
    found = devices.known(device, arch, mode, ranks_per_gpu)
    if profile not in PROFILES:
        raise UsageError(f"there is no profile {profile!r:.60}: use one of {', '.join(PROFILES)}")
    if seed is not None and seed not in SEEDS:
        raise UsageError(f"--seed {seed!s:.60}: give {RULE}")
    if not implementation.isidentifier() or not _found(implementation):
        raise UsageError(f"no package {implementation!r} can be imported: install it, or name another --implementation")
    sizes = _ranks(ranks) if ranks is not None else ()
    return Request(device, found.arch, sizes, profile, implementation, seed, mode, ranks_per_gpu)


def check_software(device: str, arch: str, ranks: tuple[int, ...] = (), ranks_per_gpu: int = 1) -> None:
    """Raises UsageError when torch, Triton or the device's own needs are missing or of a wrong version, or when there
    are not the GPUs for ``ranks``: the world sizes that were asked for (empty: the profile's, as far as they fit). Also
    when a limit, a full disk or an unwritable cache would end the run halfway: see ``harness.machine``."""
    for name in ("torch", "triton"):
        if not _found(name):
            raise UsageError(f"{name} is not installed: pip install iris-harness brings it, or pip install {name}")
    found = installed_version("triton")
    try:
        version = Version(found or "")
    except InvalidVersion:
        raise UsageError(f"the version of the installed Triton is not known ({found}): reinstall triton 3.9") from None
    if not TRITON_FROM <= version < TRITON_BELOW:
        raise UsageError(f"Triton {found} is outside 3.6 to 3.9: pip install 'triton>=3.6,<3.10'")
    devices.get(device, arch, ranks=max(ranks, default=1), ranks_per_gpu=ranks_per_gpu)
    machine.check(max(ranks, default=4))


def check_output(folder: Path, files: Sequence[str] = ()) -> None:
    """Create ``folder`` and write a file into it. Raises UsageError when that cannot be done, or when one of ``files``
    lies in it and is not a regular file: a symbolic link is not followed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"cannot write into {folder} ({reason}): name another --output directory") from error
    for path in (folder / name for name in files):
        if path.is_symlink() or (path.exists() and not path.is_file()):
            kind = "a symbolic link" if path.is_symlink() else "not a regular file"
            raise UsageError(
                f"{path} is {kind} and would have to be replaced: remove it, or name another --output directory"
            )


def _ranks(text: str) -> tuple[int, ...]:
    try:
        ranks = tuple(int(part) for part in text.split(","))
    except ValueError:
        ranks = ()
    if not ranks or len(set(ranks)) != len(ranks) or not all(1 <= count <= MOST_RANKS for count in ranks):
        raise UsageError(
            f"--ranks: expected different world sizes from 1 to {MOST_RANKS}, such as 4 or 2,4, got {text!r:.60}"
        )
    return ranks


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: the module was replaced by something without a spec
        return False
