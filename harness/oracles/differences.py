"""Comparison of tensors: the first wrong element, as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from harness.errors import HarnessError
from harness.oracles.origin import detail, of_reduction, origin


def difference(
    subject: str,
    *,
    rank: int | None = None,
    index: int | None = None,
    got: Any = None,
    wanted: Any = None,
    more: str = "",
    details: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a difference as plain data: ``subject`` was compared on ``rank``; element ``index`` is ``got`` and should
    be ``wanted``; ``more`` is a sentence; ``details`` are those of ``harness.oracles.origin``, if there is one."""
    values = {"rank": rank, "index": index, "got": _scalar(got), "wanted": _scalar(wanted), "more": more}
    return {"what": subject, **values, **({"detail": details} if details else {})}


def first_difference(
    subject: str, got: torch.Tensor, wanted: torch.Tensor, *, rank: int, before: torch.Tensor | None = None
) -> dict[str, Any] | None:
    """Return the first element at which two tensors differ in their bits; None if they are equal. ``before``: the
    content of ``got`` at the start of the case.

    Shape and dtype are compared too. Raises HarnessError if the tensors cannot be compared.
    """
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return difference(
            f"shape and dtype of {subject}",
            rank=rank,
            got=f"{tuple(got.shape)} {got.dtype}",
            wanted=f"{tuple(wanted.shape)} {wanted.dtype}",
        )
    if got.layout != torch.strided or wanted.layout != torch.strided:
        raise HarnessError(f"{subject}: expected strided tensors, got {got.layout} and {wanted.layout}")
    copies = _bytes(got), _bytes(wanted).to(got.device)
    if torch.equal(*copies):
        return None
    a, b = (copy.cpu().numpy() for copy in copies)
    wrong = np.flatnonzero((a != b).reshape(got.numel(), got.itemsize).any(axis=1))
    index = int(wrong[0])
    value, right = got.flatten()[index].item(), wanted.flatten()[index].item()
    place = slice(index * got.itemsize, (index + 1) * got.itemsize)
    rest, rest_right = (torch.from_numpy(side[place.start :]).view(got.dtype) for side in (a, b))
    expected = origin(rest_right, rank=rank, near=index)
    if before is not None and np.array_equal(_bytes(before)[place].cpu().numpy(), a[place]):
        actual: dict[str, Any] = {"kind": "unwritten", "rank": rank}
    else:
        actual = origin(rest, rank=rank, near=expected.get("element", index))
    actual, expected = of_reduction(rest[:1], rest_right[:1]) or (actual, expected)
    return difference(
        subject,
        rank=rank,
        index=index,
        got=value,
        wanted=right,
        more=f"{len(wrong)} of {got.numel()} elements are wrong{hidden_bytes(value, right, a[place], b[place])}",
        details=detail("inside", subject, wrong, (actual, expected), total=got.numel()),
    )


def hidden_bytes(got: object, wanted: object, got_bytes: np.ndarray, wanted_bytes: np.ndarray) -> str:
    """Return a further clause with the bytes of two elements that differ though they print alike, as two NaNs do and
    a boolean of byte 2 and one of byte 1 do; otherwise "".
    """
    if str(got) != str(wanted):
        return ""
    return f"; the bytes are {got_bytes.tobytes().hex(' ')}, wanted {wanted_bytes.tobytes().hex(' ')}"


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of the elements in order, as bytes on the tensor's device: others may still write the tensor."""
    if tensor.dtype == torch.bool:
        tensor = tensor.view(torch.uint8)  # a clone of booleans may turn byte 2 into 1
    return tensor.detach().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
