"""What the host side needs of torch.distributed."""

from .fd_passing import managed_fd, recv_fd, send_fd, setup_fd_infrastructure
from .helpers import (
    agree,
    broadcast_value,
    collective_device,
    distributed_allgather,
    distributed_allgather_multidim,
    distributed_barrier,
    distributed_broadcast_scalar,
    distributed_broadcast_tensor,
    distributed_device_barrier,
    exchange,
    extract_group_info,
    host_barrier,
)

__all__ = [
    "agree",
    "broadcast_value",
    "collective_device",
    "distributed_allgather",
    "distributed_allgather_multidim",
    "distributed_barrier",
    "distributed_broadcast_scalar",
    "distributed_broadcast_tensor",
    "distributed_device_barrier",
    "exchange",
    "extract_group_info",
    "host_barrier",
    "managed_fd",
    "recv_fd",
    "send_fd",
    "setup_fd_infrastructure",
]
