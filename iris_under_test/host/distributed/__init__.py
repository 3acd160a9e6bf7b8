"""What the host side needs of torch.distributed."""

from .helpers import agree, broadcast_value, collective_device, exchange, extract_group_info, host_barrier

__all__ = ["agree", "broadcast_value", "collective_device", "exchange", "extract_group_info", "host_barrier"]
