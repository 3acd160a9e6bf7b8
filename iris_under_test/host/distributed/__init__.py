"""Helpers on torch.distributed, descriptor passing, and the topology of ranks."""

from . import helpers
from .fd_passing import managed_fd, recv_fd, send_fd, setup_fd_infrastructure
from .helpers import *  # noqa: F403 - its __all__ is the list

__all__ = ["managed_fd", "recv_fd", "send_fd", "setup_fd_infrastructure"]
__all__ += helpers.__all__
