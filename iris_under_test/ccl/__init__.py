"""Collectives on the symmetric heap: ``ctx.ccl.all_gather(...)`` or ``ccl.all_gather(..., ctx)``.

Rules for all of them:

* A group is any list of ranks, and only its members take part. (In upstream Iris every call ends with a barrier of the
  world, and ranks must be evenly spaced.) The first call for a group is collective over it on the host; see
  ``Iris.members``.
* Each call is ordered by the current stream, as NCCL's calls are. It starts on the devices when every member's stream
  has reached it. When its kernel has ended on a rank, that rank's output is complete and no member reads its input any
  more. So work enqueued afterwards may change inputs and read outputs without a barrier. (Upstream Iris requires
  barriers from the caller.) On each rank the calls of one group must be ordered, by one stream or by events, and all
  ranks must make them in the same order.
* ``async_op=True`` enqueues the kernel without any message between hosts, and returns a ``Work``. (Upstream Iris
  returns no handle.) Such a call can be captured in a device graph. If a rank raises, it does not take part, and the
  devices of the others wait for it.
* ``async_op=False`` first compares the arguments of all members on the host. An error of one member is raised on all
  (as RuntimeError on the others), and ValueError if the members passed different arguments. Afterwards this rank waits
  for its stream.
* Tensors are 2-D, on the instance's device, with any strides. Tensors that other members read or write must be on the
  symmetric heap, at the same offset on every member.
* ``config=None`` selects the entry of ``tuned_config`` for the op, size, group and device.
"""

from . import rooted, send_recv
from .all_gather import all_gather
from .all_reduce import all_reduce, all_reduce_preamble
from .all_to_all import all_to_all
from .config import Config
from .reduce_op import ReduceOp
from .reduce_scatter import reduce_scatter
from .rooted import *  # noqa: F403 - its __all__ is the list
from .send_recv import *  # noqa: F403
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
    "reduce_scatter",
    "tuned_config",
]
__all__ += rooted.__all__
__all__ += send_recv.__all__
