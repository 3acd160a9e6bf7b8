"""Compare the results of vector opcodes on an AMD GPU with those of the emulator, bit by bit.

    python -m tests.gpu.opcodes                                             # on an MI300X
    iris-harness emulate --gpus 1 -- python -m tests.gpu.opcodes            # tries it on the emulator itself

Each opcode that has only vector operands runs in a kernel as inline assembly, on edges and random words. The same
kernels run on the emulated device in a second process. Prints one line for each opcode that differs, with its fidelity
and the largest difference, and the counts. The status is 1 if an exact opcode differs, or an approximate one by more
than 1 ulp.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from harness.emulator.operations import TABLE
from harness.emulator.operations.fidelity import fidelity
from harness.emulator.operations.table import Op
from harness.emulator.wavefront.state import DTYPES
from tests.emulator.assembler import encoding

COUNT = 1024
"""Inputs of each opcode."""
_REGISTERS = {4: "v{0}", 8: "v[{0}:{1}]"}
# These use other registers than their operands, or results that depend on other lanes.
_OTHERS = ("v_cmp", "v_readlane", "v_mov_b64", "v_nop", "v_cvt_scalef32", "v_swap", "v_prng", "v_permlane")


@triton.jit
def apply(narrow, wide, results, CODES: tl.constexpr, FORM: tl.constexpr, N: tl.constexpr):
    """Store the result of each of CODES, an instruction of the form ``result sources``, 4 or 8 bytes each."""
    i = tl.arange(0, N)
    a = tl.load((wide if FORM[1] == 8 else narrow) + i)
    b = tl.load((wide if FORM[2] == 8 else narrow) + N + i)
    c = tl.load((wide if FORM[3] == 8 else narrow) + 2 * N + i)
    for k in tl.static_range(len(CODES)):
        if FORM[0] == 8:
            value = tl.inline_asm_elementwise(CODES[k], "=v,v,v,v", [a, b, c], tl.int64, True, 1)
        else:
            value = tl.inline_asm_elementwise(CODES[k], "=v,v,v,v", [a, b, c], tl.int32, True, 1).to(tl.int64)
        tl.store(results + k * N + i, value)


def instructions(arch: str) -> dict[tuple[int, ...], list[str]]:
    """Return the opcodes by form: bytes of the result and of three sources, of which unused ones count 4."""
    forms: dict[tuple[int, ...], list[str]] = {}  # each name is followed by the number of its sources
    for entry, op in sorted(TABLE.items()):
        name, _, only = entry.partition("@")
        kinds = (*op.results, *op.sources) if isinstance(op, Op) else ()
        if only not in ("", arch) or name.startswith(_OTHERS) or len(kinds) - 1 not in (1, 2, 3):
            continue
        if op.klass != "valu" or len(op.results) != 1 or op.mixed or any(kind not in DTYPES for kind in kinds):
            continue
        sizes = tuple(8 if DTYPES[k].itemsize == 8 or (op.packed and DTYPES[k].itemsize == 4) else 4 for k in kinds)
        registers = [_REGISTERS[size].format(2 * n, 2 * n + 1) for n, size in enumerate(sizes)]
        if encoding(f"{name} {', '.join(registers)}", arch) is not None:
            forms.setdefault((*sizes, *[4] * (4 - len(sizes))), []).append(f"{name} {len(sizes) - 1}")
    return forms


def words() -> np.ndarray:
    """Return uint64[3, COUNT]: edges of all types, and random words."""
    draw = np.random.default_rng(23)
    edges = [0, 1, 2, 0x8000, 0x7FFF, 0x3C00, 0x7C00, 0x3F800000, 0xBF800000, 0x7F800000, 0x80000000, 0x7FFFFFFF,
             0xFFFFFFFF, 0x00400000, 0x3FF0000000000000, 0x7FF0000000000000, 0x8000000000000000]  # fmt: skip
    values = draw.integers(0, 1 << 64, (3, COUNT), np.uint64)
    values[:, : COUNT // 4] = draw.choice(np.array(edges, np.uint64), (3, COUNT // 4))
    near = values[:, COUNT // 4 : COUNT // 2]  # floats of moderate size
    near[...] = near & np.uint64(0x83FFFFFF83FFFFFF) | np.uint64(0x3C0000003C000000)
    return values


def run(arch: str, device: str) -> dict[str, np.ndarray]:
    """Return int64[COUNT] for each opcode."""
    inputs = words().view(np.int64)
    wide = torch.from_numpy(inputs).to(device)
    narrow = torch.from_numpy(inputs.astype(np.int32)).to(device)
    outcomes: dict[str, np.ndarray] = {}
    for form, names in instructions(arch).items():
        for start in range(0, len(names), 24):
            part = names[start : start + 24]
            # The s_nop: LLVM inserts no wait states after inline assembly.
            codes = tuple(
                f"{n.split()[0]} $0, {', '.join(f'${i + 1}' for i in range(int(n[-1])))}\ns_nop 7" for n in part
            )
            results = torch.zeros(len(part), COUNT, dtype=torch.int64, device=device)
            apply[(1,)](narrow, wide, results, codes, form, COUNT, num_warps=4)
            outcomes |= dict(zip((n.split()[0] for n in part), results.cpu().numpy(), strict=True))
    return outcomes


def reference(arch: str) -> dict[str, np.ndarray]:
    """Return ``run`` on the emulated device, in another process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reference.npz"
        variables = {name: value for name, value in os.environ.items() if name != "IRIS_HARNESS_EMULATE"}
        variables["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
        subprocess.run([sys.executable, "-m", __spec__.name, arch, str(file)], env=variables, check=True, timeout=1200)
        with np.load(file) as saved:
            return {name: saved[name] for name in saved.files}


def differences(arch: str, one: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[str, str, int, int]]:
    """Yield (opcode, grade, number of differing results, largest difference in ulp or bits as a number)."""
    for name in sorted(one):
        op = TABLE.get(name) or TABLE[f"{name}@{arch}"]
        assert isinstance(op, Op)  # sanity check
        dtype = DTYPES[op.results[0]]
        parts = [each.view(dtype) if op.packed else each.astype(f"i{max(4, dtype.itemsize)}").view(dtype) for each in
                 (one[name].astype(np.int64), other[name].astype(np.int64))]  # fmt: skip
        if not op.packed and dtype.itemsize == 2:
            parts = [part[::2] for part in parts]
        numbers = [part.view(f"i{dtype.itemsize}").astype(np.int64) for part in parts]
        differ = numbers[0] != numbers[1]
        if dtype.kind == "f":
            differ &= ~(np.isnan(parts[0]) & np.isnan(parts[1]))
        if differ.any():
            largest = int(np.abs(numbers[0] - numbers[1])[differ].max())
            yield name, fidelity(name, arch).grade, int(differ.sum()), largest


def main() -> int:
    if len(sys.argv) == 3:
        from harness import emulator

        emulator.activate(sys.argv[1])
        np.savez(sys.argv[2], **run(sys.argv[1], "cpu"))
        return 0
    arch = torch.cuda.get_device_properties(0).gcnArchName.partition(":")[0]
    one, other = run(arch, "cuda"), reference(arch)
    wrong = 0
    rows = list(differences(arch, one, other))
    for name, grade, count, largest in rows:
        bad = grade == "exact" or (grade == "approximate" and largest > 1)
        wrong += bad
        print(f"{'DIFFERS' if bad else 'differs'} {name} ({grade}): {count} of {COUNT} results, by up to {largest}")
    print(f"{torch.cuda.get_device_name()}, {arch}: {len(one)} opcodes, {len(one) - len(rows)} equal bit for bit")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
