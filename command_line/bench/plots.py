"""PNG figures: bandwidth against CU count, one per size, and bandwidth against size. Imports matplotlib when it draws.

NCCL and the library's own configuration have no CU count, and are horizontal lines in the figure of a size. Each
backend always has the same colour and marker. Lines are medians; shaded bands are the 10th to 90th percentile.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from command_line.bench.ops import OURS
from command_line.bench.plan import TORCH, TORCH_LIMITED, TORCH_QUEUED, size_text
from command_line.bench.results import OK, Cell, Results, Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES = {
    TORCH: ("#52514e", "s", "--"), TORCH_QUEUED: ("#9a978f", "D", ":"), TORCH_LIMITED: ("#52514e", "s", "-"),
    "gluon": ("#2a78d6", "o", "-"), "triton": ("#d9640a", "^", "-"),
}  # fmt: skip
_GRID, _TEXT = "#e1e0d9", "#0b0b0b"


def draw(results: Results, folder: Path) -> list[Path]:
    """Write a figure for each size that has results, and one over all sizes; return their paths."""
    paths = []
    for size in results.sizes:
        swept = [cell for cell in size.cells if cell.key.cus is not None and not cell.key.fields]
        if any(cell.status == OK for cell in swept):
            name = size_text(size.requested).replace(" ", "").replace(",", "")
            paths.append(_save(_against_cus(results, size), folder / f"{results.request.op}-{name}-cus.png"))
    if any(cell.status == OK for size in results.sizes for cell in size.cells):
        paths.append(_save(_against_size(results), folder / f"{results.request.op}-sizes.png"))
    return paths


def _against_cus(results: Results, size: Size) -> Figure:
    figure, axes = _figure(results, f"{results.request.op}, {size_text(size.requested)}")
    counts = sorted({cell.key.cus for cell in size.cells if cell.key.cus is not None and cell.status == OK})
    for backend in results.request.forms:
        cells = [cell for cell in size.cells if cell.key.backend == backend and cell.status == OK]
        for cell in cells:
            if cell.key.cus is None:
                colour, _, dash = _STYLES[backend]
                low, middle, high = _bandwidths(results, size, cell)
                label = f"{backend}, as it configures itself" if backend in OURS else results.label(backend)
                axes.axhspan(low, high, color=colour, alpha=0.15, linewidth=0)
                axes.axhline(middle, color=colour, linestyle=":" if backend in OURS else dash, label=label)
        counted = [cell for cell in cells if cell.key.cus is not None]
        if counted:
            places = [cell.key.cus or 0 for cell in counted]
            bands = [_bandwidths(results, size, cell) for cell in counted]
            _line(axes, places, bands, backend, results.label(backend))
    _ticks(axes, counts, [str(count) for count in counts])
    axes.tick_params(axis="x", labelsize=8)  # 112 and 128 are close to each other
    axes.set_xlabel("compute units given to the kernel (work-groups; NCCL: CTAs)")
    return _finish(figure, axes)


def _against_size(results: Results) -> Figure:
    best = "" if results.request.cus == (None,) else ", best CU count at each size"
    figure, axes = _figure(results, f"{results.request.op}{best}")
    for backend in results.request.forms:
        best_cells = [(size, size.best(backend)) for size in results.sizes]
        points = [(size.layout.size, _bandwidths(results, size, cell)) for size, cell in best_cells if cell is not None]
        if points:
            _line(axes, [place for place, _ in points], [bands for _, bands in points], backend, results.label(backend))
    sizes = [size for size in results.sizes if any(cell.status == OK for cell in size.cells)]
    _ticks(axes, [size.layout.size for size in sizes], [size_text(size.requested) for size in sizes])
    axes.tick_params(axis="x", rotation=45)
    axes.set_xlabel("the larger of one rank's input and output")
    return _finish(figure, axes)


def _figure(results: Results, title: str) -> tuple[Figure, Axes]:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    request = results.request
    where = results.rig.get("gpu", request.arch)
    figure = Figure(figsize=(7.5, 4.8), dpi=120)
    axes = figure.add_subplot()
    subtitle = f"{request.ranks} x {where}, {request.dtype}, {request.repeat} rounds"
    if request.emulated:
        subtitle = f"emulated {request.arch}, {request.ranks} ranks: not a bandwidth of any GPU"
    axes.set_title(f"{title}\n{subtitle}", fontsize=10, color=_TEXT)
    axes.set_ylabel("bus bandwidth, GB/s")
    return figure, axes


def _bandwidths(results: Results, size: Size, cell: Cell) -> tuple[float, float, float]:
    """Return the low, middle and high bus bandwidth: at the 90th, 50th and 10th percentile of time."""
    low, middle, high = (results.bus_bandwidth(size, cell.time(share)) for share in (0.9, 0.5, 0.1))
    return low, middle, high


def _line(
    axes: Axes, places: Sequence[int], bands: Sequence[tuple[float, float, float]], backend: str, label: str
) -> None:
    colour, mark, dash = _STYLES[backend]
    lows, middles, highs = zip(*bands, strict=True)
    axes.fill_between(places, lows, highs, color=colour, alpha=0.15, linewidth=0)
    axes.plot(places, middles, color=colour, marker=mark, markersize=5, linestyle=dash, label=label)


def _ticks(axes: Axes, places: Sequence[int], names: Sequence[str]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, names)
    axes.minorticks_off()


def _finish(figure: Figure, axes: Axes) -> Figure:
    axes.set_ylim(bottom=0)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    figure.tight_layout()
    return figure


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path)
    return path
