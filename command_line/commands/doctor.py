"""``iris-harness doctor``: report what this machine can run, what is missing, and how to install it.

A child process does everything that could crash or create a GPU context: importing torch and Triton, listing the GPUs,
dumping a stack.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from packaging.requirements import Requirement

from command_line.output import console as stdout
from harness import devices
from harness.devices import inventory
from harness.errors import UsageError
from harness.evidence.environment import installed_version
from harness.ranks import leases

if TYPE_CHECKING:
    from rich.console import Console

SHARED_MEMORY_WANTED = 512 << 20
"""Bytes of /dev/shm that the heaps and rings of eight ranks need in the suite's levels."""

_PROBE = """
import json, sys
keys = sys.argv[1:]
modules = {"torch": None, "triton": None}
try:
    import torch
    modules["torch"] = {"version": torch.__version__, **{key: getattr(torch.version, key, None) for key in keys}}
except Exception as error:
    modules["torch"] = {"error": f"{type(error).__name__}: {error}"}
try:
    import triton
    from triton.backends import backends
    modules["triton"] = {"version": triton.__version__, "backends": sorted(backends)}
except Exception as error:
    modules["triton"] = {"error": f"{type(error).__name__}: {error}"}
print(json.dumps(modules))
"""


@click.command("doctor", short_help="Report what this machine can run.")
@click.option("--json", "json_only", is_flag=True, help="Print one JSON object.")
def command(json_only: bool) -> int:
    """Report what this machine can run, what is missing, and how to install it.

    Exit status 0 if at least the emulated device can run, otherwise 1.
    """
    findings = examine()
    if json_only:
        click.echo(as_json(findings))
    else:
        show(findings, stdout())
    return 0 if findings.can_run("emulated") else 1


@dataclass(frozen=True)
class Package:
    """A required package: the installed ``version`` (None: not installed), the supported range ``wanted``, and ``ok``
    if the version is in it."""

    name: str
    version: str | None
    wanted: str
    ok: bool


@dataclass(frozen=True)
class DeviceFinding:
    """A device, ``ok`` if it can run here; otherwise ``reason`` names what is missing and how to install it."""

    name: str
    ok: bool
    reason: str


@dataclass(frozen=True)
class Check:
    """One property of the machine. If it is not ``ok``, cases still run, and ``advice`` names the drawback."""

    name: str
    ok: bool
    value: str
    advice: str = ""


@dataclass(frozen=True)
class Findings:
    """The whole examination. ``torch`` and ``triton`` hold versions and builds, or ``error`` if importing failed.

    ``gpus`` holds the fields of each ``GpuInfo``, and ``holder``: the pid of the process whose run has a lease on the
    GPU (0: the process is not visible from here, None: the GPU is free).
    """

    python: str
    executable: str
    devices: tuple[DeviceFinding, ...]
    packages: tuple[Package, ...]
    torch: dict[str, Any]
    triton: dict[str, Any]
    gpus: tuple[dict[str, Any], ...]
    checks: tuple[Check, ...]

    def can_run(self, device: str) -> bool:
        """Return True if ``device`` can run here."""
        return any(finding.ok for finding in self.devices if finding.name == device)


def examine() -> Findings:
    """Examine this machine; takes a few seconds, most of them for importing torch in a child process."""
    packages = tuple(_packages())
    probe = _probe()
    torch = probe["torch"] or {"error": "not imported"}
    return Findings(
        python=platform.python_version(),
        executable=sys.executable,
        devices=tuple(_device(name, packages, probe) for name in devices.names()),
        packages=packages,
        torch=torch,
        triton=probe["triton"] or {"error": "not imported"},
        gpus=tuple(_gpus()),
        checks=(_cores(), _shared_memory(), _stacks(), *_bytecode(), *_emulate(torch), *_telemetry(torch)),
    )


def as_json(findings: Findings) -> str:
    """Return the findings as one indented JSON object."""
    return json.dumps(asdict(findings), indent=2)


def show(findings: Findings, console: Console) -> None:
    """Print the findings: devices, then packages and properties of the machine, then what to install."""
    from rich.table import Table
    from rich.text import Text

    def mark(ok: bool) -> Text:
        return Text("yes", style="green") if ok else Text("no", style="yellow")

    table = Table(box=None, pad_edge=False, header_style="bold", title="Devices", title_justify="left")
    for column in ("device", "can run", ""):
        table.add_column(column)
    for device in findings.devices:
        table.add_row(device.name, mark(device.ok), Text(device.reason, style="dim"))
    console.print(table)
    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold", title="Packages", title_justify="left")
    for column in ("package", "installed", "wanted", "in range"):
        table.add_column(column)
    table.add_row("python", findings.python, ">=3.10", mark(True))
    for package in findings.packages:
        table.add_row(
            package.name, package.version or Text("missing", style="yellow"), package.wanted, mark(package.ok)
        )
    console.print(table)
    console.print()
    grid = Table.grid(padding=(0, 2))
    grid.add_row("torch", Text(_torch_build(findings.torch)))
    grid.add_row("triton", Text(findings.triton.get("error") or "backends " + ", ".join(findings.triton["backends"])))
    for gpu in findings.gpus:
        grid.add_row(f"GPU {gpu['index']}", Text(_gpu_line(gpu, len(findings.gpus))))
    if not findings.gpus:
        grid.add_row("GPUs", Text("none found"))
    for check in findings.checks:
        grid.add_row(check.name, Text(check.value if check.ok else f"{check.value}: {check.advice}"))
    console.print(grid)
    missing = [package for package in findings.packages if not package.ok]
    if missing:
        wanted = " ".join(f"'{package.name}{package.wanted}'" for package in missing)
        console.print(
            f"\nTo install what is missing: {Path(sys.executable).name} -m pip install {wanted}", markup=False
        )


def _packages() -> Iterable[Package]:
    for requirement in _requirements():
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in ("device", "suite")):
            continue
        version = installed_version(requirement.name)
        ok = version is not None and requirement.specifier.contains(version, prereleases=True)
        yield Package(requirement.name, version, str(requirement.specifier), ok)


def _requirements() -> list[Requirement]:
    """Return the declared dependencies, from the checkout's pyproject.toml or from the installed package."""
    pyproject = Path(__file__).resolve().parents[2] / "pyproject.toml"
    if pyproject.is_file():
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
        extras = project["optional-dependencies"]
        declared = [*project["dependencies"], *extras["device"], *extras["suite"]]
    else:
        declared = importlib.metadata.requires("iris-harness") or []
    return [each for each in map(Requirement, declared) if each.name != "iris-harness"]  # an extra names another one


def _probe() -> dict[str, Any]:
    failed: dict[str, Any] = {"torch": None, "triton": None}
    command = [sys.executable, "-W", "ignore", "-c", _PROBE, *(kind.version_key for kind in devices.gpu_kinds())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        modules: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return modules
    except subprocess.TimeoutExpired:
        return {**failed, "torch": {"error": "importing torch and triton took longer than 180 s"}}
    except (IndexError, ValueError):
        how = f"importing torch and triton ended a process with status {done.returncode}"
        return {**failed, "torch": {"error": f"{how}: {done.stderr.strip().splitlines()[-1:]}"}}


def _device(name: str, packages: tuple[Package, ...], probe: dict[str, Any]) -> DeviceFinding:
    absent = [package.name for package in packages if not package.ok]
    if absent:
        return DeviceFinding(name, False, f"packages missing or out of range: {', '.join(absent)}")
    for part in ("torch", "triton"):
        if (probe[part] or {}).get("error") or not probe[part]:
            return DeviceFinding(name, False, f"{part} does not import: {(probe[part] or {}).get('error', '')}")
    kind = devices.kind(name)
    if kind.triton_backend not in probe["triton"]["backends"]:
        reason = f"this Triton has no {kind.vendor} backend: install triton 3.6 to 3.9 from PyPI"
        return DeviceFinding(name, False, reason)
    reason = devices.known(name).missing() or ""  # GPUs are looked for in a child process
    return DeviceFinding(name, not reason, reason)


def _gpus() -> Iterable[dict[str, Any]]:
    for kind in devices.gpu_kinds():
        try:
            visible = inventory.visible(kind.name)
        except UsageError:
            continue  # the line of this device in the report has the reason
        for plain, gpu in zip(inventory.to_plain(visible), visible, strict=True):
            yield {**plain, "holder": leases.holder(gpu)}


def _gpu_line(gpu: dict[str, Any], count: int) -> str:
    others = [index for index in range(count) if index != gpu["index"]]
    alone = [str(index) for index in others if index not in gpu["peers"]]
    peers = "" if not others else f", no peer access to {', '.join(alone)}" if alone else ", peer access to all others"
    holder = f"pid {gpu['holder']}" if gpu["holder"] else "a process that cannot be seen from here"
    held = "" if gpu["holder"] is None else f", held by {holder}"
    return f"{gpu['name']}, {gpu['arch']}, {gpu['memory'] >> 30} GiB, {gpu['bus_id']}{peers}{held}"


def _emulate(torch: dict[str, Any]) -> Iterable[Check]:
    """Report that ``iris-harness emulate`` cannot run programs that use this build of torch."""
    if any(torch.get(kind.version_key) for kind in devices.gpu_kinds()):
        advice = "install PyTorch's CPU build in another environment to run such programs on emulated GPUs"
        yield Check("emulate", False, "not for programs that import this build of torch", advice)


def _telemetry(torch: dict[str, Any]) -> Iterable[Check]:
    """Check the telemetry library for this build of torch. A CPU build needs none."""
    for kind in devices.gpu_kinds():
        if torch.get(kind.version_key) and (library := kind.telemetry):
            ok = importlib.util.find_spec(library.module) is not None
            advice = f"runs are without power, temperatures and ECC counts; pip install {library.package}"
            yield Check("telemetry", ok, f"{library.package} {'is' if ok else 'is not'} installed", advice)


def _torch_build(torch: dict[str, Any]) -> str:
    if torch.get("error"):
        return str(torch["error"])
    builds = (f"{kind.runtime} {version}" for kind in devices.gpu_kinds() if (version := torch.get(kind.version_key)))
    build = next(builds, "CPU")
    return f"{torch['version']}, {build} build"


def _cores() -> Check:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Check("cores", count >= 2, str(count), "a run with four ranks is slow on one core")


def _shared_memory() -> Check:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return Check("shared memory", False, "no /dev/shm", "heaps need it: use Linux with a tmpfs at /dev/shm")
    free = shutil.disk_usage(folder).free
    advice = f"less than {SHARED_MEMORY_WANTED >> 20} MiB: start the container with --shm-size=1g"
    return Check("shared memory", free >= SHARED_MEMORY_WANTED, f"{free >> 20:,} MiB free", advice)


def _bytecode() -> Iterable[Check]:
    """Check that Python finds PyTorch's bytecode; the probe, which imported it, left it there if it could."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return
    place = Path(importlib.util.cache_from_source(spec.origin))
    advice = (
        "each rank compiles PyTorch's source for seconds; unset PYTHONDONTWRITEBYTECODE, or set PYTHONPYCACHEPREFIX to"
        " a folder that can be written"
    )
    ok = place.is_file()
    yield Check("bytecode", ok, "PyTorch's is kept" if ok else f"PyTorch has none in {place.parent}", advice)


def _stacks() -> Check:
    """Check that py-spy can read another process's stack, by a trial: both capabilities and Yama can forbid it."""
    sibling = Path(sys.executable).with_name("py-spy")
    program = str(sibling) if sibling.exists() else shutil.which("py-spy")
    advice = "stacks of hung ranks come from faulthandler alone; allow ptrace (container: --cap-add=SYS_PTRACE)"
    if program is None:
        return Check("py-spy", False, "not found", advice)
    with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1) as child:
        try:
            assert child.stdout is not None  # sanity check: Popen was called with stdout=PIPE
            child.stdout.readline()
            command = [program, "dump", "--pid", str(child.pid)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            ok = done.returncode == 0
            return Check("py-spy", ok, "may read stacks" if ok else "may not read stacks", advice)
        except subprocess.TimeoutExpired:
            return Check("py-spy", False, "did not answer within 30 s", advice)
        finally:
            child.kill()
