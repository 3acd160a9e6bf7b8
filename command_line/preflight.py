"""Validate a request before anything starts.

Never imports Triton or torch: a child process looks for GPUs.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from fixtures import adapters, hardware, levels, options
from fixtures import implementation as implementations
from harness import devices, emulated_machine, machine
from harness.devices import inventory
from harness.errors import UsageError
from harness.evidence import APART, EXTENDED, NO_PROFILE, ONE_PROCESS
from harness.evidence.environment import installed_version
from harness.evidence.withdrawn import withdrawn

TRITON_FROM, TRITON_BELOW = Version("3.6"), Version("3.10.dev0")


@dataclass(frozen=True)
class Request:
    """Checked options of a run of the suite.

    ``ranks`` are the world sizes, in order; empty means the level's. ``mode`` is the mode of the emulated device.
    ``ranks_per_gpu`` is the largest number of ranks that share a GPU. ``deadline`` is the number of seconds after which
    a case counts as hung; None means the suite's default. ``api`` is that of the requirements.
    ``profile`` is the hardware profile whose list of groups the run must have, ``waivers`` a
    file of waivers and ``quarantine`` one of quarantined groups. ``judge``: whether cases are compared in processes
    apart from the library's, see ``fixtures.judge``. ``budget``: seconds after which no further group starts.
    ``shard`` is such as "3/8"; ``shard_plan``, ``weights`` and ``node`` are for shards, see ``fixtures.shards``.
    ``nodes``: the number of machines that the ranks are on; the others join this one at ``endpoint``.
    """

    device: str
    arch: str
    ranks: tuple[int, ...]
    level: str
    implementation: str
    seed: int | None = None
    mode: str = "fast"
    ranks_per_gpu: int = 1
    deadline: float | None = None
    api: str = EXTENDED
    profile: str = NO_PROFILE
    waivers: Path | None = None
    judge: str = ONE_PROCESS
    quarantine: Path | None = None
    shard: str | None = None
    shard_plan: Path | None = None
    weights: Path | None = None
    node: str | None = None
    budget: float | None = None
    nodes: int = 1
    endpoint: str | None = None

    def options(self) -> list[str]:
        """Return the request as command-line options of the pytest plugin."""
        options = ["--device", self.device, "--arch", self.arch]
        options += ["--emulator-mode", self.mode] if self.mode != "fast" else []
        options += ["--level", self.level, "--implementation", self.implementation]
        options += ["--ranks", ",".join(map(str, self.ranks))] if self.ranks else []
        options += ["--ranks-per-gpu", str(self.ranks_per_gpu)] if self.ranks_per_gpu != 1 else []
        options += ["--profile", self.profile] if self.profile != NO_PROFILE else []
        options += ["--waivers", str(self.waivers)] if self.waivers is not None else []
        options += ["--quarantine", str(self.quarantine)] if self.quarantine is not None else []
        options += ["--shard", self.shard] if self.shard is not None else []
        options += ["--shard-plan", str(self.shard_plan)] if self.shard_plan is not None else []
        options += ["--weights", str(self.weights)] if self.weights is not None else []
        options += ["--node", self.node] if self.node is not None else []
        options += ["--nodes", str(self.nodes)] if self.nodes != 1 else []
        options += ["--endpoint", self.endpoint] if self.endpoint is not None else []
        options += ["--api", self.api] if self.api != EXTENDED else []
        options += ["--judge", self.judge] if self.judge != ONE_PROCESS else []
        options += ["--deadline", f"{self.deadline:g}"] if self.deadline is not None else []
        options += ["--budget", f"{self.budget:g}"] if self.budget is not None else []
        return options + (["--seed", str(self.seed)] if self.seed is not None else [])


def check_request(
    device: str,
    arch: str | None,
    ranks: str | None,
    level: str,
    implementation: str,
    seed: str | int | None = None,
    mode: str = "fast",
    ranks_per_gpu: str | int = 1,
    adapter: str | None = None,
    provider: str | None = None,
    api: str = EXTENDED,
    judge: str | None = ONE_PROCESS,
    nodes: str | int = 1,
    endpoint: str | None = None,
) -> Request:
    """Return the checked request; ``arch`` defaults to the device's first. Raises UsageError for a wrong value.

    ``implementation``, ``adapter`` and ``provider`` together name the library and its adapter. ``judge`` None: apart
    where that is possible.

    It parses the options as the pytest plugin does. ``seed`` and ``ranks_per_gpu`` may be texts, as on the command
    line, or numbers, as in a case file.
    """
    implementation = adapters.specification(implementation, adapter=adapter, provider=provider)
    shared = options.parse_count("--ranks-per-gpu", str(ranks_per_gpu))
    known_device = devices.known(device, arch, mode, shared)
    levels.level_named(level)
    options.check_api(api)
    count = options.parse_count("--nodes", str(nodes))
    apart = devices.kind(device).shares_memory and mode == "fast" and count == 1
    judge = options.check_judge(judge or (APART if apart else ONE_PROCESS), device)
    chosen = adapters.adapter_of(implementation)
    chosen.check_installed()
    chosen.check_device(device)
    sizes = options.parse_ranks(ranks) if ranks is not None else ()
    options.check_nodes(count, endpoint, sizes, judge, None)
    return Request(
        device=device,
        arch=known_device.arch,
        ranks=sizes,
        level=level,
        implementation=implementation,
        seed=options.parse_seed(str(seed)) if seed is not None else None,
        mode=mode,
        ranks_per_gpu=shared,
        api=api,
        judge=judge,
        nodes=count,
        endpoint=endpoint,
    )


def check_release() -> None:
    """Raise UsageError if this release of iris-harness was withdrawn."""
    if release := withdrawn(installed_version("iris-harness")):
        raise UsageError(f"{release}; install another release")


def with_profile(request: Request, named: str | None) -> tuple[Request, str | None]:
    """Return the request for the hardware profile of this machine, and None; without one, the reason.

    A run for a profile has its world sizes. UsageError if ``named``, the profile that the command line names, is not
    that of this machine, or if an option changes what a run for it executes.
    """
    if request.nodes > 1:
        if named:
            raise UsageError(f"--profile {named}: no hardware profile is for several nodes: leave out one of both")
        return request, "no hardware profile is for several nodes"
    gpus = [gpu.name for gpu in inventory.visible(request.device)] if devices.kind(request.device).is_gpu else []
    profile = hardware.profile_of(request.device, request.arch, gpus)
    machine_words = f"{len(gpus)} GPUs ({', '.join(sorted(set(gpus)))})" if gpus else f"the device {request.device}"
    reason = f"there is no hardware profile for {machine_words}"
    if emulated_machine.active() is not None:
        profile, reason = NO_PROFILE, "there is no hardware profile for the GPUs of an emulated machine"
    try:
        chosen = options.Options.checked(
            device=request.device,
            arch=request.arch,
            mode=request.mode,
            ranks=",".join(map(str, request.ranks)) or None,
            level=request.level,
            implementation_name=request.implementation,
            seed=None if request.seed is None else str(request.seed),
            evidence=None,
            replay=None,
            deadline=None,
            ranks_per_gpu=str(request.ranks_per_gpu),
            api=request.api,
            quarantine=None if request.quarantine is None else str(request.quarantine),
            profile=named or (profile if profile != NO_PROFILE else None),
        )
        if named and named != profile:
            raise UsageError(f"--profile {named}: this machine has another one: {reason}")
    except UsageError as error:
        if named:
            raise
        return request, str(error).removeprefix(f"--profile {profile}: ")
    if chosen.profile == NO_PROFILE:
        return request, reason
    return replace(request, profile=chosen.profile, ranks=chosen.ranks), None


def with_quarantine(request: Request, path: Path | None) -> Request:
    """Return the request with a quarantine, after checking the file. UsageError if it has a mistake."""
    if path is None:
        return request
    options.quarantine_in(path)
    return replace(request, quarantine=path.absolute())


def with_shard(
    request: Request, shard: str | None, plan: Path | None = None, weights: Path | None = None, node: str | None = None
) -> Request:
    """Return the request of one shard. UsageError for a wrong value, or a level whose shards would have different
    seeds."""
    seedless = levels.level_named(request.level).random and request.seed is None
    parsed = options.check_shard(shard, plan, weights, seedless)
    if node is not None:
        options.check_node(node)
    for option, path in (("--shard-plan", plan), ("--weights", weights)):
        if path is not None and not path.is_file():
            raise UsageError(f"{option}: there is no file {path}")
    return replace(
        request,
        shard=None if parsed is None else str(parsed),
        shard_plan=None if plan is None else plan.absolute(),
        weights=None if weights is None else weights.absolute(),
        node=node,
    )


def read_waivers(path: Path) -> bytes:
    """Return the content of a file of waivers. UsageError if it cannot be read or has a mistake."""
    options.waivers_in(path)
    return path.read_bytes()


def with_waivers(request: Request, content: bytes | None, copy: Path) -> Request:
    """Return the request with the waivers in ``content``, which are written to ``copy``; None removes that file."""
    copy.unlink(missing_ok=True)
    if content is None:
        return request
    copy.write_bytes(content)
    return replace(request, waivers=copy)


def check_software(device: str, arch: str, ranks: tuple[int, ...] = (), ranks_per_gpu: int = 1) -> None:
    """Raise UsageError if this machine cannot run the request.

    The reasons: torch, Triton or a library that the device needs is missing or has a wrong version; there are too few
    GPUs for ``ranks``, the requested world sizes (empty: those of the level that fit); or a resource limit, a full
    disk or an unwritable cache would end the run halfway (see ``harness.machine``).
    """
    for name in ("torch", "triton"):
        if not implementations.is_importable(name):
            raise UsageError(f"{name} is not installed: pip install {name}, or 'iris-harness[suite]'")
    installed = installed_version("triton")
    try:
        version = Version(installed or "")
    except InvalidVersion:
        raise UsageError(
            f"the installed Triton has no valid version number ({installed}): pip install 'triton>=3.6,<3.10'"
        ) from None
    if not TRITON_FROM <= version < TRITON_BELOW:
        raise UsageError(f"Triton {installed} is not supported, 3.6 to 3.9 are: pip install 'triton>=3.6,<3.10'")
    devices.get(device, arch, ranks=max(ranks, default=1), ranks_per_gpu=ranks_per_gpu)
    machine.check(max(ranks, default=4))


def output_folder(folder: Path, *files: str) -> Path:
    """Create ``folder`` and return its absolute path: the current folder may be removed during the run.

    Raises UsageError if the folder is not writable, or if one of ``files`` exists in it and is not a regular file:
    symbolic links are not followed.
    """
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
                f"{path} is {kind}, and a report would replace it: remove it, or name another --output directory"
            )
    return folder.absolute()
