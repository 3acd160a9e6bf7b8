"""What every device can do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from harness.telemetry import Recorder


class Device(Protocol):
    """One kind of device. Plain data until ``activate``; asking ``missing`` starts nothing.

    ``lanes`` per wavefront; ``backend`` is the torch.distributed backend of its reference; ``torch_device`` is where a
    rank's tensors live; ``modules`` are imported once for all ranks that are forked.
    """

    name: str
    arch: str
    lanes: int
    backend: str
    modules: tuple[str, ...]

    def missing(self) -> str | None:
        """What keeps this machine from running it, and how to get it; None when it can be used."""

    def activate(self, local_rank: int) -> None:
        """Make it the device of this process. Called once per rank process."""

    @property
    def torch_device(self) -> Any:
        """The torch.device of this rank's tensors."""

    def synchronize(self) -> None:
        """Wait until every launch of this process has ended. KernelFault if one faulted and nothing runs after it."""

    def healthy(self) -> bool:
        """Whether kernels can still run in this process."""

    def recorder(self, drain: Callable[[], Sequence[Any]]) -> Recorder | None:
        """The telemetry source of this rank, over the launches that ``drain`` gives; None while the device has none."""

    def drain_launches(self) -> list[Any]:
        """Records of the launches since the last call, oldest first; empty where the device keeps none."""
