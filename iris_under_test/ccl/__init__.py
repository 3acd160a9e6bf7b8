"""Collectives on the symmetric heap: ``ctx.ccl.all_gather(...)`` or ``ccl.all_gather(..., ctx)``.

What they share:

* Groups are any list of ranks, and only their members take part (in the reference every call ends with a barrier of the
  world, and ranks must be evenly spaced). The first call for a group is collective over it on the host; see
  ``Iris.members``.
* Each op takes its place in the current stream, as NCCL's do: it begins on the devices when every member's stream has
  come to it, and once its kernel has ended on a rank, that rank's output is complete and nobody reads its input any
  more. So inputs may be changed and outputs read by what is enqueued behind, without a barrier (the reference asks for
  barriers of the caller). The calls of one group must be ordered on each rank, by one stream or by events, and in the
  same order on all.
* ``async_op=True`` enqueues, says nothing to anybody, and returns a ``Work`` (the reference returns no handle). It can
  be captured in a device graph. A rank that raises then does not take part: the others' devices wait for it.
* ``async_op=False`` has the members agree on the host first, so that an error of one is raised on all (as RuntimeError
  on the others), and ValueError where they did not pass the same; then this rank waits for its stream.
* Tensors are 2-D, on the instance's device, of any strides. Those that other members read or write must be on the
  symmetric heap, at the same place on every member.
* ``config=None`` means what ``tuned_config`` has for the op, size, group and device.
"""

from .all_gather import all_gather
from .all_reduce import all_reduce, all_reduce_preamble
from .all_to_all import all_to_all
from .config import Config
from .reduce_op import ReduceOp
from .reduce_scatter import reduce_scatter
from .rooted import barrier, broadcast, gather, reduce, scatter
from .send_recv import recv, send, sendrecv
from .tuning import tuned_config
from .work import Work
from .workspace import AllReduceWorkspace

__all__ = [
    "AllReduceWorkspace",
    "Config",
    "ReduceOp",
    "Work",
    "all_gather",
    "all_reduce",
    "all_reduce_preamble",
    "all_to_all",
    "barrier",
    "broadcast",
    "gather",
    "recv",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
    "sendrecv",
    "tuned_config",
]
