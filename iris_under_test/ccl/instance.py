"""``ctx.ccl``: the collectives bound to an instance."""

from __future__ import annotations

import torch
import torch.distributed as dist

from iris_under_test.host.instance import Instance

from .all_gather import all_gather
from .all_reduce import all_reduce, all_reduce_preamble
from .all_to_all import all_to_all
from .config import Config
from .reduce_op import ReduceOp
from .reduce_scatter import reduce_scatter
from .rooted import barrier, broadcast, gather, reduce, scatter
from .send_recv import recv, send, sendrecv
from .work import Work
from .workspace import AllReduceWorkspace

__all__ = ["InstanceCollectives"]


class InstanceCollectives:
    """The functions of ``ccl`` as methods, without their instance argument.

    A test compares each method's parameters with its function's.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def all_gather(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup | None = None,
        async_op: bool = False,
        config: Config | None = None,
    ) -> Work | None:
        """Gather the members' rows, stacked by group rank, on every member. See ``ccl.all_gather``."""
        return all_gather(output_tensor, input_tensor, self._instance, group, async_op, config)

    def all_reduce(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        op: ReduceOp = ReduceOp.SUM,
        group: dist.ProcessGroup | None = None,
        async_op: bool = False,
        config: Config | None = None,
        workspace: AllReduceWorkspace | None = None,
    ) -> AllReduceWorkspace:
        """Reduce the members' inputs into every member's output. See ``ccl.all_reduce``."""
        return all_reduce(output_tensor, input_tensor, self._instance, op, group, async_op, config, workspace)

    def all_reduce_preamble(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        config: Config | None = None,
        workspace: AllReduceWorkspace | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> AllReduceWorkspace:
        """Return a workspace for such calls. Collective. See ``ccl.all_reduce_preamble``."""
        return all_reduce_preamble(output_tensor, input_tensor, self._instance, config, workspace, group)

    def all_to_all(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup | None = None,
        async_op: bool = False,
        config: Config | None = None,
    ) -> Work | None:
        """Send column block j of the input to member j. See ``ccl.all_to_all``."""
        return all_to_all(output_tensor, input_tensor, self._instance, group, async_op, config)

    def reduce_scatter(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        op: ReduceOp = ReduceOp.SUM,
        group: dist.ProcessGroup | None = None,
        async_op: bool = False,
        config: Config | None = None,
    ) -> Work | None:
        """Reduce the members' inputs; each member writes the tiles that it owns. See ``ccl.reduce_scatter``."""
        return reduce_scatter(output_tensor, input_tensor, self._instance, op, group, async_op, config)

    def broadcast(
        self,
        tensor: torch.Tensor,
        src: int = 0,
        group: dist.ProcessGroup | None = None,
        async_op: bool = False,
        config: Config | None = None,
    ) -> Work | None:
        """Send ``tensor`` of rank ``src`` to all members. See ``ccl.broadcast``."""
        return broadcast(tensor, self._instance, src, group, async_op, config)

    def reduce(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        dst: int = 0,
        op: ReduceOp = ReduceOp.SUM,
        group: dist.ProcessGroup | None = None,
        async_op: bool = False,
        config: Config | None = None,
    ) -> Work | None:
        """Reduce the members' inputs into the output of rank ``dst``. See ``ccl.reduce``."""
        return reduce(output_tensor, input_tensor, self._instance, dst, op, group, async_op, config)

    def scatter(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor | None,
        src: int = 0,
        group: dist.ProcessGroup | None = None,
        async_op: bool = False,
        config: Config | None = None,
    ) -> Work | None:
        """Send row block j of the input of rank ``src`` to member j. See ``ccl.scatter``."""
        return scatter(output_tensor, input_tensor, self._instance, src, group, async_op, config)

    def gather(
        self,
        output_tensor: torch.Tensor | None,
        input_tensor: torch.Tensor,
        dst: int = 0,
        group: dist.ProcessGroup | None = None,
        async_op: bool = False,
        config: Config | None = None,
    ) -> Work | None:
        """Gather the members' inputs, stacked by group rank, on rank ``dst``. See ``ccl.gather``."""
        return gather(output_tensor, input_tensor, self._instance, dst, group, async_op, config)

    def barrier(
        self,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Wait on the host for this rank's device, then for every member. See ``ccl.barrier``."""
        barrier(self._instance, group)

    def send(
        self,
        tensor: torch.Tensor,
        dst: int,
        tag: int = 0,
        group: dist.ProcessGroup | None = None,
        async_op: bool = False,
        config: Config | None = None,
    ) -> Work | None:
        """Send ``tensor`` to rank ``dst``, which receives it. See ``ccl.send``."""
        return send(tensor, self._instance, dst, tag, group, async_op, config)

    def recv(
        self,
        tensor: torch.Tensor,
        src: int,
        tag: int = 0,
        group: dist.ProcessGroup | None = None,
        async_op: bool = False,
        config: Config | None = None,
    ) -> Work | None:
        """Receive the message of rank ``src`` in ``tensor``. See ``ccl.recv``."""
        return recv(tensor, self._instance, src, tag, group, async_op, config)

    def sendrecv(
        self,
        send_tensor: torch.Tensor,
        recv_tensor: torch.Tensor,
        dst: int,
        src: int,
        tag: int = 0,
        group: dist.ProcessGroup | None = None,
        async_op: bool = False,
        config: Config | None = None,
    ) -> Work | None:
        """Send to rank ``dst`` and receive from rank ``src`` in one kernel. See ``ccl.sendrecv``."""
        return sendrecv(send_tensor, recv_tensor, self._instance, dst, src, tag, group, async_op, config)
