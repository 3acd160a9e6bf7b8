"""Streams and graph captures of the instance's device. On the emulated device each call has ended when it returns.

torch has one module for each type of device, such as ``torch.cuda``, all with the same calls.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

__all__ = ["api_of", "current_stream", "is_capturing"]


def api_of(device: torch.device) -> ModuleType | None:
    """Return torch's module for this type of device, or None if there are no streams."""
    return None if device.type == "cpu" else getattr(torch, device.type)


def current_stream(device: torch.device) -> Any:
    """Return the stream that work on ``device`` is enqueued on; None if there are no streams."""
    api = api_of(device)
    return None if api is None else api.current_stream(device)


def is_capturing(device: torch.device) -> bool:
    """Return whether the current stream records a graph. A type of device without graphs never does."""
    check = getattr(api_of(device), "is_current_stream_capturing", None)
    return check is not None and bool(check())
