"""Corpus case: a real kernel with its inputs, the function of torch with its expected result, and their tolerance.

    @case({"dtype": torch.float32}, {"dtype": torch.float16}, within=EXACT)
    def vector_add(draw, dtype):
        x, y = draw.normal(1000, dtype=dtype), draw.normal(1000, dtype=dtype)
        out = torch.empty_like(x)
        add[(4,)](x, y, out, 1000, BLOCK=256)
        return out, x + y

Each dictionary is one variant. The function makes its inputs from ``draw``, launches, and returns (result, reference)
or a list of such pairs. ``CASES`` is the table of all, filled when the families are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

ARCHS = ("gfx942", "gfx950")


@dataclass(frozen=True)
class Within:
    """|result - reference| <= relative * |reference| + absolute, for the stated reason; all zero is equality."""

    why: str
    relative: float = 0.0
    absolute: float = 0.0


EXACT = Within("every operation is exact, or rounded once as torch rounds it")
# v_exp_f32, v_log_f32, v_rcp_f32, v_rsq_f32 and v_sqrt_f32 are within 1 ulp (AMD "CDNA3 ISA", VOP1), and a handful of
# roundings of 2^-24 follow.
FP32 = Within("a few fp32 roundings, and hardware functions good to 1 ulp", 4e-6, 1e-6)


def half_of(ulp: torch.dtype, absolute: float = 0.0) -> Within:
    """Tolerance for a narrow dtype: rounding may yield the neighbouring value, one unit in the last place."""
    return Within(f"the last rounding, to {ulp}, may go the other way", torch.finfo(ulp).eps, absolute)


@dataclass(frozen=True)
class Case:
    """One variant of one kernel."""

    name: str
    family: str
    run: Callable[..., Any]
    variant: dict[str, Any]
    within: Within
    archs: tuple[str, ...] = ARCHS

    def check(self) -> None:
        """Launch on the active device and compare; ``AssertionError`` names the elements that differ."""
        pairs = self.run(Draw(), **self.variant)
        for got, wanted in pairs if isinstance(pairs, list) else [pairs]:
            compare(got, wanted, self.within)


CASES: list[Case] = []


def case(*variants: dict[str, Any], within: Within = EXACT, archs: tuple[str, ...] = ARCHS) -> Callable:
    """Add a function to the table, once per variant. A variant may have its own tolerance under ``within``."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        for variant in variants or ({},):
            bound = variant.get("within", within)
            rest = {key: value for key, value in variant.items() if key != "within"}
            label = "-".join(str(value).removeprefix("torch.") for value in rest.values())
            name = run.__name__ + (f"-{label}" if label else "")
            CASES.append(Case(name, run.__module__.rsplit(".", 1)[1], run, rest, bound, archs))
        return run

    return register


@dataclass
class Draw:
    """Seeded inputs: the same for every run of a case."""

    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(20))

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator).to(dtype)

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """Integers in [low, high); as floats, sums of their products are exact while they stay below 2^24."""
        return torch.randint(low, high, shape, generator=self.generator).to(dtype)

    def permutation(self, n: int) -> torch.Tensor:
        return torch.randperm(n, generator=self.generator)

    def mask(self, *shape: int) -> torch.Tensor:
        return torch.randint(0, 2, shape, generator=self.generator).bool()


def compare(got: torch.Tensor, wanted: torch.Tensor, within: Within) -> None:
    """Equal shapes; values within the bound, where any NaN equals another and the sign of zero is not looked at."""
    assert got.shape == wanted.shape, f"shape {tuple(got.shape)} instead of {tuple(wanted.shape)}"
    got, wanted = _wide(got), _wide(wanted)
    if got.dtype == torch.float64 or wanted.dtype == torch.float64:
        got, wanted = got.double(), wanted.double()
        error = (got - wanted).abs()
        right = (got == wanted) | (got.isnan() & wanted.isnan())
        right |= error <= within.relative * wanted.abs() + within.absolute
    else:
        right = got == wanted
    wrong = (~right).nonzero()
    if len(wrong):
        where = [tuple(i) for i in wrong[:4].tolist()]
        values = ", ".join(f"{list(i)}: {got[i].item()!r} instead of {wanted[i].item()!r}" for i in where)
        raise AssertionError(f"{len(wrong)} of {got.numel()} elements differ (bound: {within.why}): {values}")


def _wide(values: torch.Tensor) -> torch.Tensor:
    """float64 or int64, in which every value of the other dtypes but uint64 is itself."""
    if values.dtype.is_floating_point:
        return values.to(torch.float64)
    return values.view(torch.int64) if values.dtype == torch.uint64 else values.to(torch.int64)
