"""The kernels of a run, by name: resources, and the widths of their accesses in the code and as executed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.evidence import Evidence, Kernel

KINDS = ("load", "store", "atomic")


@dataclass(frozen=True)
class KernelRow:
    """One compiled kernel. Width tables map a kind to ``width -> count``; ``launches`` is over all cases and ranks.

    ``inexact``: the executed opcodes whose result may differ from the hardware's, as in evidence, summed."""

    kernel: Kernel
    launches: int
    local: Mapping[str, Mapping[str, int]]
    remote: Mapping[str, Mapping[str, int]]
    executed_local: Mapping[str, Mapping[str, int]]
    executed_remote: Mapping[str, Mapping[str, int]]
    unattributed: int
    inexact: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class KernelGroup:
    """All variants of one kernel name.

    ``registers`` and ``spills`` are the maximum over the variants: registers are per lane (VGPRs on AMD GPUs; None if
    the code does not state them). ``remote`` lists the widths of the remote accesses.
    """

    name: str
    rows: tuple[KernelRow, ...]
    launches: int
    remote: str
    registers: int | None
    spills: int


def remote_of(hashes: Iterable[str], kernels: Mapping[str, Kernel]) -> str:
    """Return the widths of the remote accesses of these kernels, as ``store 16 B``."""
    widths: dict[str, set[int]] = defaultdict(set)
    for hash_ in hashes:
        if hash_ in kernels:
            for kind, table in kernels[hash_].fingerprint["widths"].get("remote", {}).items():
                widths[kind].update(int(width) for width in table)
    return ", ".join(
        f"{kind}\N{NO-BREAK SPACE}{'/'.join(map(str, sorted(widths[kind])))}\N{NO-BREAK SPACE}B"
        for kind in KINDS
        if widths[kind]
    )


def kernels_of(evidence: Evidence) -> tuple[KernelGroup, ...]:
    """Return the kernels that ran by name, with what they executed."""
    executed: dict[str, dict[str, Any]] = {}
    inexact: dict[str, dict[str, dict[str, Any]]] = {}
    launches: dict[str, int] = defaultdict(int)
    for case in evidence.cases:
        for hash_, entry in case.launches.items():
            launches[hash_] += entry["launches"]
            _count(executed.setdefault(hash_, {}), entry["accesses"])
            opcodes = inexact.setdefault(hash_, {})
            for each in entry.get("inexact", ()):
                total = opcodes.setdefault(each["opcode"], {**each, "executions": 0})
                total["executions"] += each["executions"]
    by_name: dict[str, list[KernelRow]] = defaultdict(list)
    for kernel in evidence.kernels.values():
        widths = kernel.fingerprint["widths"]
        ran = executed.get(kernel.hash, {})
        by_name[kernel.name].append(
            KernelRow(
                kernel=kernel,
                launches=launches[kernel.hash],
                local=widths.get("local", {}),
                remote=widths.get("remote", {}),
                executed_local=ran.get("local", {}),
                executed_remote=ran.get("remote", {}),
                unattributed=sum(sum(table.values()) for table in widths.get("unattributed", {}).values()),
                inexact=tuple(each for _, each in sorted(inexact.get(kernel.hash, {}).items())),
            )
        )
    return tuple(_group(name, rows, evidence.kernels) for name, rows in sorted(by_name.items()))


def _count(table: dict[str, Any], accesses: Iterable[Mapping[str, Any]]) -> None:
    for access in accesses:
        widths = table.setdefault(access["where"], {}).setdefault(access["kind"], {})
        width = str(int(access["width"]))  # JSON may hold a whole number as 16.0
        widths[width] = widths.get(width, 0) + access["executions"]


def _group(name: str, rows: list[KernelRow], kernels: Mapping[str, Kernel]) -> KernelGroup:
    prints = [row.kernel.fingerprint for row in rows]
    return KernelGroup(
        name=name,
        rows=tuple(sorted(rows, key=lambda row: (-row.launches, row.kernel.hash))),
        launches=sum(row.launches for row in rows),
        remote=remote_of((row.kernel.hash for row in rows), kernels),
        registers=max((count for print_ in prints if (count := registers_of(print_)) is not None), default=None),
        spills=max(spills_of(print_) or 0 for print_ in prints),
    )


def registers_of(fingerprint: Mapping[str, Any]) -> int | None:
    """Return the registers per lane: VGPRs on AMD GPUs, ptxas's count on NVIDIA GPUs, None if the code does not state
    them."""
    count: int | None = fingerprint["vgprs"] if fingerprint["vgprs"] is not None else fingerprint.get("registers")
    return count


def spills_of(fingerprint: Mapping[str, Any]) -> int | None:
    """Return the number of spilled registers, or None if the code does not state it.

    On NVIDIA GPUs it is the number of 4-byte words of a lane's local memory.
    """
    spilled: int | None = fingerprint["vgpr_spills"]
    if spilled is not None:
        return spilled + int(fingerprint.get("sgpr_spills") or 0)
    scratch: int | None = fingerprint.get("scratch")
    return None if scratch is None else scratch // 4
