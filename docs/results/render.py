"""Make the pages of measured results from the data files in docs/results/data.

    python docs/results/render.py            # writes the pages
    python docs/results/render.py --check    # exit status 1, and names the pages that differ

No figure is typed into a page: each comes from a data file, or is computed here from such figures.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import mutants.page
from mutants import matrix

FOLDER = Path(__file__).resolve().parent
DATA = FOLDER / "data"
NOTE = "<!-- Written by docs/results/render.py from docs/results/data. -->\n"
OPS = ("all_gather", "reduce_scatter", "all_to_all", "all_reduce", "broadcast")
KIB, MIB = 1 << 10, 1 << 20
LARGEST = 512 * MIB

Cells = dict[tuple[str, int], tuple[float, float]]
"""(op, bytes) -> (microseconds, how many times as long NCCL took)."""


def pages() -> dict[str, Callable[[], str]]:
    """Return the function that makes each page, by the page's name in this folder."""
    return {"h200.md": h200_page, "all-gather.md": all_gather_page, "mutants.md": mutants_page}


def stale() -> list[str]:
    """Return the names of the pages that are missing or differ from the data."""
    return [
        name
        for name, make in pages().items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text(encoding="utf-8") != make()
    ]


# Mutants


def mutants_page() -> str:
    """Return the page of the kill matrices."""
    kinds = (
        "listed", "listed-rest", "unseen", "source", "reported", "library", "machine-code", "ring", "collectives",
        "fused", "harness",
    )  # fmt: skip
    files = [f"mutants-{kind}.json" for kind in kinds]
    matrices = [matrix.read(DATA / name) for name in files]
    run = sum(len(kills.results) for kills in matrices)
    linked = ", ".join(f"[{name}](data/{name})" for name in files)
    heads = {
        "Listed defects": (
            "The list of 2026-11-27, on 32 cores, under the tests that it names, with the levels `ci` and `gate` and "
            "60 s for a mutant at each level; without the plain suite, and the tests were not run on an unchanged "
            "copy. The list has four more by now."
        ),
        "Listed defects that were left": (
            "Those of the section above that were not killed, and the four that the list has since, on two cores "
            "that other work shared, with 600 s for a mutant at each level. The tests that killed passed on an "
            "unchanged copy. With Triton 3.6, a volatile load is a plain one on AMD GPUs, so two of them could not be "
            "noticed above."
        ),
        "Defects by engineers who had seen no test": (
            "What engineers planted who had read the library and its specification, and none of the tests: what a "
            "refactoring or an optimisation could break, mostly where sizes, types, calls or members are unusual. "
            "**In the first round, of four engineers, the nearest tests at `ci` and `gate` killed 32 of 56 (57.1 %), "
            "with two ranks**; four more were killed by groups that were not among these, or with four ranks. The "
            "other 20 showed holes: flags that hold another value before, a rounding before the bias, a wrapped trace"
            " counter, allocations around a second mapping, handles of freed memory, strides of like tensors, groups "
            "that are made again, and calls that grow in programs, among others. **In the second round, of five "
            "others, 29 of 64 were killed at first (45.3 %)**, one of them with five ranks only. Of their 80, eight "
            "were known from the first round and were killed; six show on GPUs only, one is equivalent, and one "
            "changes a function that is not part of the API. The 35 holes were most often where the host keeps "
            "something: a workspace of another instance, after a reset or after a full heap, the caller's config, a "
            "crash in a benchmark; and in messages whose sides disagree, in orders of addition, and in the smallest "
            "and largest tiles. The table is after the cases for the kinds of these. The list is "
            "`mutants/listed/unseen`. 16 cores ran most of it with Triton 3.6; eight defects ran on two cores with "
            "Triton 3.9, four of them because Triton 3.6 drops `volatile` and compiles every compare-and-swap at the "
            "scope of one device, or because an older torch sorts the ranks of a group. For those of the second round"
            " that ran on 16 cores, the messages were not kept."
        ),
        "Generated changes of the library": (
            "All of commit 9a0852c6, with the levels `ci` and `gate`, on 2026-11-30. 16 cores ran them, those with a "
            "known killer first, with 60 s for a mutant at each level; those that were left had 250 s, and some of "
            "the last ones 400 s on two cores. The argued equivalents and nine of the undecided are of an earlier "
            "run. All tests that killed passed on an unchanged copy, but those of the first part, which passed on one "
            "in that earlier run. Of the four that survive, two drop `volatile`, which Triton 3.6 ignores: with 3.9 "
            "`RMA-CACHE-001` kills them. The other two change a register that counts polls in a debug build. Three "
            "mutants of the ring were not decided in 250 s: a rank waited on the host for one that polled, which "
            "counted as progress. The harness reports that after some seconds now, and kills them."
        ),
        "Public reports": "All reported defects, without the plain suite.",
        "Library": (
            "All reported defects, and a sample of the generated changes of the source, stopped before its end: an "
            "earlier run, in which the tests listed for one report did not read its machine code."
        ),
        "Machine code of RMA and atomics": (
            "The library's code in the kernels of `atomic_add`, `atomic_cas` and `put` with int32, under the calls of "
            "the level `gate` on two ranks, and those of the further tests. The argued equivalents are in "
            "`mutants/equivalent.toml`."
        ),
        "Machine code of the ring all_reduce": (
            "A sample of 160 with the seed 7 from all operators, under the calls of the ring tests in "
            "`test_all_reduce.py` with the level `gate` on two ranks, of `test_ragged.py`, of `test_turns.py`, and of "
            "`ISA-CONTRACT-001`. An earlier sample had 103 of 135 killed (76.3 %). Its survivors were all read, and "
            "are killed or argued to be equivalent since: polls of another program's word and missing write-backs at "
            "the start of a call were holes, and ragged tiles ended at too few rows and columns. After that, 1,109 "
            "changes of fences, waits, scopes, barriers, widths, offsets and results in these kernels were run, and "
            "none of them is alive. The sample here is a new one, as there are more kernels now: 122 of 137 were "
            "killed (89.1 %), and of the limits, masks and differences that were left, 14 are argued to be equivalent. "
            "The one that is alive loads elements that no lane stores, beyond the row, in a kernel that only "
            "`CCL-TURNS-001` and `CCL-ALLREDUCE-003` launch, which do not confine kernels to their tensors."
        ),
        "Machine code of the collectives on three ranks": (
            "Two samples of 200 from all operators, with the seeds 11 and 12, under the calls of `test_operations.py` "
            "with the level `gate` on three ranks, of `test_ragged.py`, of `test_turns.py`, and of `ISA-CONTRACT-001`. "
            "All survivors were read. Of the first sample, 124 of 144 were killed at first (86.1 %): the code of a "
            "kernel that only a root launches was read on a rank that does not launch it, nothing was read where the "
            "library chooses the variant, and ragged cases missed parts of a tile. With these mended, 138 of 146 of "
            "the second sample were killed at first (94.5 %). Its eight holes were mended too: ragged cases ended at "
            "odd rows only, and a root had no tensors with one layout; a word of data and flag was read in one build "
            "only; and this measurement did not repeat the calls of kernels that only other ranks than 0 launch. The "
            "table is of both samples after that. Of those alive, two load an element beyond the end of a tensor, "
            "which no confined case ends there; one needs a program number that no case has, one a tensor of 2^32 "
            "elements, and one a tile of a layout that no case has."
        ),
        "Machine code of the fused products on three ranks": (
            "A sample of 160 with the seed 12 from all operators, under the calls of `test_operations.py` and "
            "`test_edges.py` of the fused products with the level `gate` on three ranks, of `test_ragged.py`, "
            "`test_steps.py` and `test_config.py`. Before, with Triton 3.6, 43 of 81 were killed: no case read the "
            "code of these kernels. Each case reads it now, as with collectives, and 116 of the 160 were killed. "
            "The other 44 were all read: 29 are argued to be equivalent, and 15 were holes. What is loaded from a "
            "matrix was taken for an address, so that a missing invalidation before the load was not reported; "
            "programs that share out tiles ran one after another, since these cases never ran in weak memory; the "
            "sizes ended at too few elements of a tile; "
            "nothing was confined to the matrices; and no product had no inner elements. With these mended, the 44 "
            "were run again. What is alive reads beyond a workspace, to which kernels are not confined."
        ),
        "Harness": (
            "The whole list: 1,134 of the 17 files whose tests or code changed on the day of the run, on 16 cores, and "
            "542 of the other files from a run of a few hours before, on 32 cores. That run had 1,661 of 1,743 killed "
            "(95.3 %); after it, what survived got tests, or simpler code without such a place, and two faults of the "
            "harness were found by it. The tests that killed pass on an unchanged copy: CI runs them. Earlier samples "
            "had 69.2, 77.1, 74.5, 83.0 and 94.5 %."
        ),
    }
    text = (
        "[Measure the suite by the wrong libraries that it rejects](../mutants.md) explains kinds, operators and "
        f"verdicts. There are {run:,} results here; each section states how many mutants of its kind there are. The "
        f"data, of `iris-harness mutants run`, are in {linked}. Where a section has two cores, other work shared them: "
        "the times are upper bounds, several times those of a free machine; CPU seconds depend on it less."
    )
    parts = [NOTE + "# Kill matrix\n", _prose(text)]
    for kills, (head, about) in zip(matrices, heads.items(), strict=True):
        body = mutants.page.sections(kills).replace("\n## ", "\n### ")
        parts += [f"## {head}\n", _prose(about), body]
    return "\n".join(parts)


# H200


def h200_page() -> str:
    """Return the page of the runs on H200s."""
    data = tomllib.loads((DATA / "h200.toml").read_text(encoding="utf-8"))
    parts = [
        NOTE + "# Measured on H200s\n",
        _prose(
            "NVIDIA H200s of one host, torch 2.11, Triton 3.6.0, NCCL 2.28.9, NVLink multicast off. The data are in "
            "[h200.toml](data/h200.toml), [collectives-h200.csv](data/collectives-h200.csv) and "
            f"[fused-h200.csv](data/fused-h200.csv). Origin: {data['origin']}."
        ),
        "## Collectives\n",
        _prose(
            "`iris-harness bench all --device cuda --sizes 8KiB:512MiB --repeat 15`, fp16, every timed output checked "
            "bit for bit. A cell has the microseconds of the faster of Triton and Gluon, the median of 15 interleaved "
            "rounds. In brackets: how many times as long NCCL took, in a graph or queued, whichever was faster. The "
            "size is the larger of one rank's input and output. [Benchmarks](../bench.md) explains how it is measured."
        ),
    ]
    for gpus in (8, 4, 2):
        parts += [f"### {gpus} GPUs\n", *_collectives(gpus, data)]
    parts += ["## Links\n", *map(_links, data["links"])]
    parts += ["## Latency\n", *map(_latency, data["latency"]), _barriers(data["barrier"])]
    parts += ["## Fused products\n", _gemm(data["gemm"]), _fused(), _fused_ratios(data["fused_ratio"])]
    parts += ["## Runs of the suite\n", _suite(data["suite"]), *map(_rate, data["rate"])]
    return "\n".join(parts)


def measured(gpus: int) -> Cells:
    """Return the collectives' times on ``ranks`` GPUs."""
    with (DATA / "collectives-h200.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["gpus"]) == gpus]
    return {(row["op"], int(row["bytes"])): (float(row["us"]), float(row["times_nccl"])) for row in rows}


def bus_factor(op: str, gpus: int) -> float:
    """Return the bytes that cross a rank's links for each byte of the size, as in nccl-tests."""
    return {"broadcast": 1.0, "all_reduce": 2 * (gpus - 1) / gpus}.get(op, (gpus - 1) / gpus)


def bus_gb_s(op: str, gpus: int, size: int, microseconds: float) -> float:
    """Return the bus bandwidth in 1e9 bytes per second."""
    return bus_factor(op, gpus) * size / microseconds / 1e3


def _collectives(gpus: int, data: dict[str, Any]) -> Iterable[str]:
    cells = measured(gpus)
    sizes = sorted({size for _, size in cells})
    rows = [[_size(size), *(_cell(*cells[op, size]) for op in OPS)] for size in sizes]
    yield _table([f"{gpus} GPUs", *OPS], rows)
    slower = {key for key, (_, ratio) in cells.items() if ratio < 1}
    worst = min(ratio for _, ratio in cells.values())
    yield (
        f"- Slower than NCCL: {_ranges(slower, sizes)}, by {100 * (1 - worst):.0f} % at most."
        if slower
        else ("- At least as fast as NCCL at every size.")
    )
    limit = data["aim_ratio_bytes"]
    missed = {key for key, (_, ratio) in cells.items() if key[1] <= limit and ratio < data["aim_ratio"]}
    small = [size for size in sizes if size <= limit]
    aim = f"{data['aim_ratio']} times NCCL up to {_size(limit)}"
    yield f"- Aim of {aim}, missed by: {_ranges(missed, small) or 'none'}."
    rates = {op: bus_gb_s(op, gpus, LARGEST, cells[op, LARGEST][0]) for op in OPS}
    low = [f"{op} ({rate:.0f})" for op, rate in rates.items() if rate < data["aim_gb_s"]]
    yield f"- Aim of {data['aim_gb_s']} GB/s at {_size(LARGEST)}, missed by: {', '.join(low) or 'none'}."
    yield from (f"- {note['text']}" for note in data["note"] if note["gpus"] == gpus)
    yield ""
    for once in data["once"]:
        if once["gpus"] == gpus:
            yield _floors(once, cells, data["link_gb_s"])


def floor_us(op: str, size: int, once: dict[str, Any], link_gb_s: float) -> float:
    """Return the least time of a collective: an empty kernel, barriers or one way over the link, and the bytes."""
    meetings = once["one_way_us"] if size == 8 * KIB else 2 * once["meeting_us"]
    return float(once["empty_kernel_us"] + meetings + bus_factor(op, once["gpus"]) * size / link_gb_s / 1e3)


def _floors(once: dict[str, Any], cells: Cells, link_gb_s: float) -> str:
    sizes = (8 * KIB, 2 * MIB, 64 * MIB, LARGEST)
    rows = []
    for op in OPS:
        floors = [floor_us(op, size, once, link_gb_s) for size in sizes]
        explained = [
            f"{floor:,.1f} ({100 * floor / cells[op, size][0]:.0f}%)" for floor, size in zip(floors, sizes, strict=True)
        ]
        rate = bus_gb_s(op, once["gpus"], LARGEST, cells[op, LARGEST][0])
        rows.append([op, f"{bus_factor(op, once['gpus']):g} of the size", *explained, f"{rate:.1f}"])
    head = [f"op, {once['gpus']} GPUs", "bytes over a link", *map(_size, sizes), f"bus GB/s at {_size(LARGEST)}"]
    return (
        _prose(
            "Floor of each op in microseconds, and the share of the time that it explains. The floor is an empty "
            f"kernel ({once['empty_kernel_us']:.2f}), two meetings of the ranks ({once['meeting_us']:.2f} each) or, at "
            f"8 KiB, one way over the link ({once['one_way_us']:.2f}), and the bytes at {link_gb_s} GB/s, the rate of "
            "a plain copy."
        )
        + "\n"
        + _table(head, rows)
    )


def _links(links: dict[str, Any]) -> str:
    head = ["every rank gives to", *links["peers"]]
    table = _table(head, [["GB/s, each way", *map(str, links["gb_s"])]])
    return f"`{links['command']}`, {links['gpus']} GPUs:\n\n{table}\n{links['note']}\n"


def _latency(latency: dict[str, Any]) -> str:
    rows = [[step, f"{own:.2f}", f"{other:.2f}", f"{other / own:.1f}"] for step, own, other in latency["rows"]]
    table = _table(["step, us", "to its own GPU", "to another GPU", "ratio"], rows)
    return f"`{latency['command']}`, one step inside a captured graph, microseconds:\n\n{table}\n{latency['note']}\n"


def _barriers(barriers: list[dict[str, Any]]) -> str:
    rows = [
        [
            str(row["gpus"]),
            f"{row['device_barrier_us']:.2f}",
            f"{row['all_reduce_us']:.1f}" if "all_reduce_us" in row else "-",
        ]
        for row in barriers
    ]
    return _table(["GPUs", "`device_barrier`, us", "`torch.distributed.all_reduce` of one element, us"], rows)


def _gemm(rows: list[dict[str, Any]]) -> str:
    keys = ("ms", "torch_ms", "products_ms", "cublas_ms", "transfer_ms", "seen_ms")
    cells = [
        [str(row["gpus"]), *(f"{row[key]:.3f}" for key in keys), f"{row['torch_ms'] / row['ms']:.2f}"] for row in rows
    ]
    head = [
        "GPUs",
        "fused",
        "matmul, then NCCL",
        "products alone",
        "cuBLAS alone",
        "transfer alone",
        "transfer not hidden",
        "times as fast",
    ]
    return (
        "`examples/07_gemm_all_scatter/gluon/benchmark.py -v -b`, 8192 x 4608 x 36864, fp16, tiles of 256x128x64, "
        f"milliseconds:\n\n{_table(head, cells)}"
    )


def _fused() -> str:
    with (DATA / "fused-h200.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            [row["op"], f"{row['m']} x {row['n']} x {row['k']}", row["configuration"], row["us"], row["torch_us"],
             f"{float(row['torch_us']) / float(row['us']):.2f}"]
            for row in csv.DictReader(file)
        ]  # fmt: skip
    head = ["op", "M x N x K", "configuration", "us", "matmul, then NCCL, us", "ratio"]
    return f"`python -m benchmarks.fused --device cuda --ranks 2`, float16:\n\n{_table(head, rows)}"


def _fused_ratios(rows: list[dict[str, Any]]) -> str:
    ops = [key for key in rows[0] if key not in ("gpus", "shape")]
    cells = [[row["shape"], *(f"{row[op]:.2f}" if op in row else "-" for op in ops)] for row in rows]
    return f"The same on {rows[0]['gpus']} GPUs, of which only the ratios are kept:\n\n" + _table(
        ["M x N x K", *ops], cells
    )


def _suite(runs: list[dict[str, Any]]) -> str:
    rows = [
        [
            str(run["gpus"]),
            run["date"],
            f"`{run['command']}`",
            str(run.get("groups", "-")),
            f"{run['seconds']:,}",
            run["note"],
        ]
        for run in runs
    ]
    return _table(["GPUs", "date", "command", "groups passed", "seconds", "note"], rows)


def _rate(rate: dict[str, Any]) -> str:
    return (
        f"`{rate['command']}` on {rate['gpus']} GPUs: {rate['cases_per_second']} put cases a second on warm ranks, "
        f"{rate['times_torchrun']:,} times as many as with a torchrun start each.\n"
    )


# The all-gather sweep


def all_gather_page() -> str:
    """Return the page of the all-gather sweep on the emulated device."""
    data = json.loads((DATA / "all-gather-emulated.json").read_text(encoding="utf-8"))
    head = ["size", "programs", "wavefronts", "bytes to peers", "peer stores", "peer stores of a wavefront"]
    rows = [
        [_size(row["bytes"]), str(row["programs"]), str(row["wavefronts"]), f"{row['peer_bytes']:,}",
         f"{row['peer_stores']:,}", f"{stores_of_a_wavefront(row):g}"]
        for row in data["rows"]
    ]  # fmt: skip
    parts = [
        NOTE + "# All-gather sweep on the emulated device\n",
        _prose(
            f"`{data['command']}` counts what one rank of {data['ranks']} executes in `ccl.all_gather` for "
            f"{data['arch']}, by size and number of programs (`Config.comm_sms`). The emulated device executes the "
            "machine code for the MI300X, so the counts are exact; its times do not describe a GPU and are not "
            "shown. A peer store is an instruction of a wavefront that writes 16 bytes a lane to another rank. Each "
            "byte crosses a link once, whatever the number of programs. More programs divide the stores, until there "
            "is not a tile left to divide."
        ),
        _prose(
            "The data: [all-gather-emulated.json](data/all-gather-emulated.json), made on "
            f"{data['date']} with Triton {data['triton']}. Its instruction counts include polls, whose number differs "
            "from run to run, so the page has none of them."
        ),
        _prose(
            "Times of all_gather on GPUs are in [the tables of collectives](h200.md#collectives). The bench.json of "
            "the sweep over compute units on eight H200s was not kept."
        ),
        "![Peer stores of each wavefront, by size and number of programs](all-gather.svg)\n",
        _table(head, rows),
    ]
    return "\n".join(parts)


def stores_of_a_wavefront(row: dict[str, Any]) -> float:
    """Return how many 16-byte stores to other ranks each wavefront executes."""
    return float(row["peer_stores"] / row["wavefronts"])


def plot_all_gather(path: Path) -> None:
    """Draw the sweep into an SVG file."""
    import matplotlib as mpl  # only for this

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "iris-harness"
    from matplotlib import pyplot

    data = json.loads((DATA / "all-gather-emulated.json").read_text(encoding="utf-8"))
    figure, axes = pyplot.subplots(figsize=(7.5, 4), layout="constrained")
    for programs in sorted({row["programs"] for row in data["rows"]}):
        rows = [row for row in data["rows"] if row["programs"] == programs]
        axes.plot(
            [row["bytes"] for row in rows],
            [stores_of_a_wavefront(row) for row in rows],
            marker="o",
            label=f"programs: {programs}",
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes := sorted({row["bytes"] for row in data["rows"]}), [_size(size) for size in sizes])
    axes.set_yscale("log")
    axes.set_xlabel("size of the output")
    axes.set_ylabel("16-byte stores to peers, of each wavefront")
    axes.set_title(f"all_gather, {data['ranks']} ranks, {data['arch']}, emulated: counts, not times", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


# Text


def _prose(text: str) -> str:
    """Return a paragraph."""
    return textwrap.fill(text, 140, break_long_words=False, break_on_hyphens=False) + "\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(microseconds: float, ratio: float) -> str:
    text = (
        f"{microseconds:,.0f}" if microseconds >= 1000 or microseconds == int(microseconds) else f"{microseconds:.1f}"
    )
    return f"{text} ({ratio:.2f})"


def _size(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def _ranges(keys: set[tuple[str, int]], sizes: list[int]) -> str:
    """Return "all_reduce from 128 MiB, reduce_scatter at 2 MiB" for these (op, bytes) of ``sizes``."""
    parts = []
    for op in OPS:
        runs: list[list[int]] = []
        for size in sizes:
            if (op, size) not in keys:
                continue
            if runs and sizes.index(size) == sizes.index(runs[-1][-1]) + 1:
                runs[-1].append(size)
            else:
                runs.append([size])
        for run in runs:
            first, last = _size(run[0]), _size(run[-1])
            parts.append(f"{op} at {first}" if len(run) == 1 else f"{op} from {first} to {last}")
    return ", ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    if parser.parse_args().check:
        old = stale()
        print("\n".join(old) or "all pages match the data")
        return 1 if old else 0
    for name, make in pages().items():
        (FOLDER / name).write_text(make(), encoding="utf-8")
    plot_all_gather(FOLDER / "all-gather.svg")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
