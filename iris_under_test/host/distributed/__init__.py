"""What the host side needs of torch.distributed."""

from .helpers import agree, broadcast_value, exchange, extract_group_info

__all__ = ["agree", "broadcast_value", "exchange", "extract_group_info"]
