"""Machine code of each device operation, by element type, form and target: the table of docs/device-isa.md.

    python -m benchmarks.device_isa [--arch gfx942 gfx950 sm_90] [--ops put atomic_add] [--output docs/device-isa.md]

Nothing runs and no GPU is needed: the kernels of the conformance suite are compiled as a launch would compile them, and
the machine code is read. Loads, stores and copies move 16 bytes per lane, in a block of 4 wavefronts of 64 lanes behind
a mask `offsets < n` with n a multiple of 16. Atomics are a block with a mask, one element per lane, acq_rel at system
scope, whose old values are stored. So the figures are those of whole small kernels, fit to be compared with each other.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
import triton

from conformance.atomics.cases import AtomicCase
from conformance.atomics.history import launch_atomic
from conformance.rma.cases import TransferCase
from conformance.rma.kernels import launch
from conformance.rma.operations import TRANSFERS
from fixtures import implementation
from fixtures.absent import Absent
from fixtures.worker import Env
from harness import isa
from harness.cases import of_name
from harness.isa.compile_only import target

TARGETS = {"gfx942": ("hip", "gfx942"), "gfx950": ("hip", "gfx950"), "sm_90": ("cuda", 90)}
FORMS = ("gluon", "context", "function")
KINDS = {"load": ("load",), "get": ("load",), "store": ("store",), "put": ("store",), "copy": ("load", "store")}
"""The remote accesses of an operation; those of the others are atomics."""

_INT = ("int32", "int64")
_SOME = ("int8", "fp16", "fp32")
DTYPES = {
    **dict.fromkeys(KINDS, _SOME),
    **dict.fromkeys(("atomic_add", "atomic_sub", "atomic_xchg", "atomic_min", "atomic_max"), ("fp32", *_INT)),
    **dict.fromkeys(("atomic_and", "atomic_or", "atomic_xor", "atomic_cas"), _INT),
}
"""Operation -> element types."""

_LANES, _WARPS, _N = 256, 4, 1 << 14

Rows = dict[str, dict[tuple[str, str], dict[str, str]]]
"""Form -> (operation, element type) -> target -> summary of its code."""


def measure(archs: Sequence[str], ops: Iterable[str]) -> Rows:
    """Compile and read. Makes a process group of one rank for the time."""
    rows: Rows = {form: {} for form in FORMS}
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        for arch in archs:
            with target(*TARGETS[arch]) as driver:
                env = Env(0, 1, Absent(driver, machine_code=1), implementation.load("iris_under_test"))
                for op in ops:
                    for dtype in DTYPES[op]:
                        for form in FORMS:
                            cells = rows[form].setdefault((op, dtype), {})
                            cells[arch] = _cell(_compiled(env, op, dtype, form), op)
                env.iris.close()
    finally:
        dist.destroy_process_group()
    return rows


def _compiled(env: Env, op: str, dtype: str, form: str) -> isa.Fingerprint:
    """The machine code of the kernel that the suite launches for ``op``; PTX where there is no disassembler."""
    data, flags = torch.zeros(_N, dtype=of_name(dtype)), torch.ones(_N, dtype=torch.uint8)
    name = op.removeprefix("atomic_")
    if op in KINDS:
        moved = TransferCase(dtype=dtype, n=1024, spt=0, warps=_WARPS, form=form, aligned=True)
        launch(env, TRANSFERS[name], moved, data, data.clone(), flags, 0)
    else:
        case = AtomicCase(op=name, dtype=dtype, n=_LANES, warps=_WARPS, sem="acq_rel", scope="sys", form=form)
        numbers = torch.zeros(_N, dtype=torch.int32)
        launch_atomic(env, case, data, numbers, data.clone(), data.clone(), flags, data.clone(), 0)
    (launched,) = env.launched()
    return isa.codes_of(launched)[-1]


def _cell(code: isa.Fingerprint, op: str) -> str:
    """Instructions · remote accesses (count x bytes per lane) · registers · spills."""
    widths: Counter[int] = Counter()
    for kind in KINDS.get(op, ("atomic",)):
        # LLVM loses the lines of accesses that it merges: then all of that kind are counted, which are at least these.
        widths.update(isa.remote_widths(code, kind) or code.widths("local", kind))
    accesses = ", ".join(f"{count} x {width}" for width, count in sorted(widths.items()))
    if op.startswith("atomic") and op != "atomic_cas" and _is_loop(code):
        accesses += " loop"
    registers = code.registers if code.vgprs is None else code.vgprs
    spills = code.scratch if code.vgpr_spills is None else code.vgpr_spills + (code.sgpr_spills or 0)
    return f"{code.instructions} · {accesses or 'none found'} · {registers} · {spills}"


def _is_loop(code: isa.Fingerprint) -> bool:
    """Return whether the atomic is a loop around a compare-and-swap."""
    return any(a.kind == "atomic" and ("cmpswap" in a.mnemonic or "CAS" in a.mnemonic) for a in code.accesses)


def page(rows: Rows, archs: Sequence[str]) -> str:
    """The tables as Markdown; forms with the same figures share one."""
    lines = [
        "# What the device operations compile to",
        "",
        f"Made by `python -m benchmarks.device_isa --output docs/device-isa.md` with Triton {triton.__version__}.",
        "",
        "Each cell: instructions of the kernel · its remote accesses as count x bytes per lane · registers (VGPRs on",
        "AMD GPUs) · spills (registers on AMD GPUs, bytes of stack on NVIDIA's). `loop`: at system scope the compiler",
        "makes a loop around a compare-and-swap of it. NVIDIA's figures are of the code that ptxas made (SASS).",
        "",
        *(line.strip() for line in __doc__.split("\n\n")[2].splitlines()),
    ]
    groups: list[list[str]] = []
    for form in rows:
        same = next((group for group in groups if rows[group[0]] == rows[form]), None)
        groups.append([form]) if same is None else same.append(form)
    for group in groups:
        lines += ["", f"## {' and '.join(_TITLES[form] for form in group)}", ""]
        lines += [f"| operation | element | {' | '.join(archs)} |", f"|---|---|{'---|' * len(archs)}"]
        for (op, dtype), cells in rows[group[0]].items():
            lines.append(f"| {op} | {dtype} | {' | '.join(cells[arch] for arch in archs)} |")
    return "\n".join(lines) + "\n"


_TITLES = {"gluon": "Gluon, IrisDeviceCtx", "context": "Triton, DeviceContext", "function": "Triton, functions"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--ops", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    text = page(measure(options.arch, options.ops), options.arch)
    if options.output is None:
        print(text, end="")
    else:
        options.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
