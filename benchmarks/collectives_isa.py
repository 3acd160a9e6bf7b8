"""Instructions of the collectives' kernels: executed on gfx942 and gfx950, compiled on sm_90; docs/collectives-isa.md.

    python -m benchmarks.collectives_isa [--arch gfx942 gfx950 sm_90] [--only all_gather two_shot] [--output FILE]

No GPU is needed: the kernels of eight ranks run on the emulated device under one scheduler, hence every run gives the
same figures. Contiguous fp16 tensors, tiles of 8 x 256 elements, one program of 4 wavefronts on each rank. Each kernel
runs with two and with three tiles for each program: the difference is what a tile costs, what is left is paid once per
launch. The figures are those of the busiest rank, which where there is a root is the root, but for "broadcast ll",
where the others write as much, to themselves.

Nothing here takes time. A *stall* is an s_waitcnt that finds more outstanding than it allows: on hardware it lasts as
long as the memory takes, unless that has answered by then. How often a wait for other ranks polls depends on when they
come, so instructions of ``device/signals.py`` count as paid once, as this run has them.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton

from benchmarks.collective_kernels import COLUMNS, KERNELS, RANKS, WARPS, Kernel, launch
from benchmarks.device_isa import TARGETS
from harness import emulator, isa
from harness.devices import launches
from harness.emulator.execution.counters import LaunchRecord
from harness.isa.compile_only import target

LANES = 64
_FEW, _MANY = 2, 3
_SIGNALS = ("device/signals.py", "device/fences.py", "device/mailboxes.py")
_PAGE = "collectives-isa.md"
_PARTS = ("data", "signals")

Key = tuple[Any, ...]


YARDSTICK = ("flat-2D all_gather", "gluon")
"""A tile is loaded once and stored to every rank, and nothing else is done."""

_EXECUTED_HEAD = (
    "kernel", "language", "instr./element", "instr./16 B", "x yardstick", "loaded B", "stored B", "atomic B",
    "accesses of a tile", "stalls of a tile", "instr. once", "stalls once", "VGPRs", "spills",
)  # fmt: skip
_EXECUTED = """
Executed. Instructions are those of a lane. An *element* is one of the larger of input and output. `loaded`, `stored`
and `atomic`: bytes for each element, in own memory · in that of other ranks. Accesses at a tile: loads · stores ·
atomics of a lane, count x bytes. Stalls of a wavefront, by what is waited for. Paid *once* by each wavefront: what is
left, + what signals take. Spills: of VGPRs + of SGPRs. The yardstick is {} in {}: by instructions for each 16 bytes.
"""
_COMPILED_HEAD = (
    "kernel",
    "language",
    "instructions",
    "remote loads",
    "remote stores",
    "remote atomics",
    "registers",
    "spills",
)
_COMPILED = """
Compiled, not executed: what ptxas made of it (SASS). Accesses that stand in the code, signals among them, as count x
bytes of a lane.
"""


@dataclass(frozen=True)
class Row:
    """One kernel on one emulated target. ``tile`` is what a tile of a rank costs it, ``once`` what a launch costs
    besides, of all wavefronts together.

    Keys: ("instructions", "data" or "signals"), ("stall", kind, "data" or "signals"); and for accesses other than
    signals, ("bytes", kind, where) with ``where`` "local" or "peer", and ("lanes", kind, where, bytes of a lane).
    """

    kernel: Kernel
    code: isa.Fingerprint
    tile: Counter[Key]
    once: Counter[Key]

    @property
    def per_element(self) -> float:
        """Instructions of a lane for each element."""
        return self._instructions / self._elements

    @property
    def per_16_bytes(self) -> float:
        """Instructions of a lane for each 16 bytes that it loads or stores."""
        return self._instructions * 16 / sum(count for key, count in self.tile.items() if key[0] == "bytes")

    def bytes(self, kind: str, where: str) -> float:
        """Bytes for each element."""
        return self.tile["bytes", kind, where] / self._elements

    def widths(self, kind: str, *places: str) -> dict[int, float]:
        """Bytes of a lane -> accesses of a lane, at a tile."""
        lanes = LANES * WARPS * self.kernel.programs
        totals: Counter[int] = Counter()
        for key, count in self.tile.items():
            if key[:2] == ("lanes", kind) and key[2] in places and count:
                totals[key[3]] += count
        return {width: count / lanes for width, count in sorted(totals.items())}

    def stalls(self) -> dict[str, float]:
        """Return the waits of a wavefront at a tile, by the counter waited for."""
        waves = WARPS * self.kernel.programs
        return {key[1]: count / waves for key, count in self.tile.items() if key[::2] == ("stall", "data") and count}

    def paid_once(self, quantity: str, part: str) -> float:
        """``what``: "instructions" or "stall" of a wavefront; ``part``: "data" or "signals"."""
        counts = [count for key, count in self.once.items() if (key[0], key[-1]) == (quantity, part)]
        return sum(counts) / (WARPS * self.kernel.programs)

    @property
    def _instructions(self) -> int:
        return LANES * sum(count for key, count in self.tile.items() if key[0] == "instructions")

    @property
    def _elements(self) -> int:
        return self.kernel.count * self.kernel.rows * COLUMNS


def selected(only: Sequence[str] = ()) -> Iterator[tuple[str, str, Kernel]]:
    """(row, language, kernel) for the rows whose name contains one of ``only``, or all."""
    for name, kernel in KERNELS.items():
        if not only or any(text in name for text in only):
            for language in kernel.languages:
                yield name, language, kernel


def executed(arch: str, kernel: Kernel, language: str) -> Row:
    """Run on the emulated device, which is Triton's active driver for the time."""
    driver = emulator.activate(arch, mode="trace", limit=1)
    counts, busiest = {}, []
    try:
        for tiles in (_FEW, _MANY):
            launch(kernel, language, tiles)
            busiest = _busiest(driver.drain_launches())
            counts[tiles] = sum(map(_counts, busiest), Counter())
    finally:
        emulator.deactivate()
    tile = Counter({key: counts[_MANY][key] - counts[_FEW][key] for key in counts[_MANY]})
    once = Counter({key: counts[_FEW][key] - _FEW * tile[key] for key in counts[_FEW]})
    return Row(kernel, isa.of_launch(busiest[-1]), tile, once)


def compiled(arch: str, kernel: Kernel, language: str) -> isa.Fingerprint:
    """The machine code for a GPU that is not there; PTX where there is no disassembler."""
    with target(*TARGETS[arch]):
        recorder = launches.install()
        recorder.drain()
        launch(kernel, language, _FEW)
        return isa.codes_of(recorder.drain()[-1])[-1]


def _busiest(launched: Sequence[LaunchRecord]) -> Sequence[LaunchRecord]:
    """The launches of the rank that moves most; all ranks launch equally many, rank after rank."""
    each = len(launched) // RANKS
    ranks = [launched[rank * each : (rank + 1) * each] for rank in range(RANKS)]
    return max(ranks, key=lambda records: sum(_counts(record)["instructions", "data"] for record in records))


def _counts(record: LaunchRecord) -> Counter[Key]:
    """See ``Row``."""
    counts: Counter[Key] = Counter()
    for source, count in record.sources.items():
        counts["instructions", _part(source)] += count
    for stall in record.stalls:
        counts["stall", stall.kind, _part(stall.source)] += stall.executions
    for access in record.accesses:
        if _part(access.source) == "data":
            counts["bytes", access.kind, access.where] += access.bytes
            counts["lanes", access.kind, access.where, access.width] += access.lanes
    return counts


def _part(source: str) -> str:
    return "signals" if any(file in source for file in _SIGNALS) else "data"


# -- the page --------------------------------------------------------------------------------------------------------


def page(only: Sequence[str], archs: Sequence[str]) -> str:
    """The tables as Markdown."""
    lines = [
        "# What the collectives execute and compile to",
        "",
        f"Made by `python -m benchmarks.collectives_isa --output docs/{_PAGE}` with Triton {triton.__version__}.",
        "",
        *__doc__.split("\n\n", 2)[2].strip().splitlines(),
    ]
    for arch in archs:
        lines += _compiled_table(arch, only) if arch.startswith("sm_") else _executed_table(arch, only)
    return "\n".join(lines) + "\n"


def _executed_table(arch: str, only: Sequence[str]) -> list[str]:
    rows = {(name, language): executed(arch, kernel, language) for name, language, kernel in selected(only)}
    yardstick = rows.get(YARDSTICK) or executed(arch, KERNELS[YARDSTICK[0]], YARDSTICK[1])
    lines = ["", f"## {arch}", "", *_EXECUTED.format(*YARDSTICK).strip().splitlines(), ""]
    lines += ["| " + " | ".join(_EXECUTED_HEAD) + " |", "|---" * len(_EXECUTED_HEAD) + "|"]
    for (name, language), row in rows.items():
        ratio = row.per_16_bytes / yardstick.per_16_bytes
        stalls = ", ".join(f"{count:g} {kind}" for kind, count in sorted(row.stalls().items()))
        cells = [
            name,
            language,
            f"{row.per_element:.3g}",
            f"{row.per_16_bytes:.3g}",
            f"{ratio:.2f}",
            *(
                f"{row.bytes(kind, 'local'):.3g} · {row.bytes(kind, 'peer'):.3g}"
                for kind in ("load", "store", "atomic")
            ),
            " · ".join(_times(row.widths(kind, "local", "peer")) for kind in ("load", "store", "atomic")),
            stalls or "none",
            *(
                " + ".join(f"{row.paid_once(quantity, part):g}" for part in _PARTS)
                for quantity in ("instructions", "stall")
            ),
            str(row.code.vgprs),
            spills(row.code),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines + _misses({
        key: ([width for kind in ("load", "store") for width in row.widths(kind, "peer")], spills(row.code))
        for key, row in rows.items()
    })  # fmt: skip


def _compiled_table(arch: str, only: Sequence[str]) -> list[str]:
    lines = ["", f"## {arch}", "", *_COMPILED.strip().splitlines(), ""]
    lines += ["| " + " | ".join(_COMPILED_HEAD) + " |", "|---" * len(_COMPILED_HEAD) + "|"]
    codes = {}
    for name, language, kernel in selected(only):
        code = compiled(arch, kernel, language)
        widths = (_times(code.widths("remote", kind)) for kind in ("load", "store", "atomic"))
        cells = [name, language, str(code.instructions), *widths, str(code.registers), spills(code)]
        lines.append("| " + " | ".join(cells) + " |")
        remote = [access for access in code.accesses if access.where == "remote" and access.kind != "atomic"]
        # Signals are words of 4 bytes; those of the protocol ll have 8, of which 4 are data.
        payload = [access.width for access in remote if not (access.is_flag and access.width == 4)]
        codes[name, language] = payload, spills(code)
    return lines + _misses(codes)


def _misses(codes: Mapping[tuple[str, str], tuple[Sequence[int], str]]) -> list[str]:
    """Return lines on kernels that spill, or access other ranks' memory with less than 16 bytes at once.

    ``codes``: widths of the remote accesses, and spills, of each kernel.
    """
    narrow = [
        f"{name} in {language}" for (name, language), (widths, _) in codes.items() if min(widths, default=16) < 16
    ]
    spilling = [f"{name} in {language}" for (name, language), (_, spilt) in codes.items() if set(spilt) - set("0 +")]
    return [
        "",
        f"Narrow remote loads or stores: {', '.join(narrow) or 'none'}.",
        f"Spills: {', '.join(spilling) or 'none'}.",
    ]


def spills(code: isa.Fingerprint) -> str:
    """Vector + scalar registers on AMD GPUs, bytes of stack on NVIDIA's."""
    if code.vgpr_spills is None:
        return str(code.scratch or 0)
    return f"{code.vgpr_spills} + {code.sgpr_spills or 0}"


def _times(widths: Mapping[int, float]) -> str:
    return ", ".join(f"{count:g} x {width}" for width, count in widths.items()) or "-"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--only", nargs="+", default=[], help="rows whose name contains one of these")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    if not list(selected(options.only)):
        parser.error(f"no kernel has one of {options.only} in its name: {', '.join(KERNELS)}")
    text = page(options.only, options.arch)
    if options.output is None:
        print(text, end="")
    else:
        options.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
