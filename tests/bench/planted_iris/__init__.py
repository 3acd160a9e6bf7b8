"""An Iris with the fault that PLANTED names; imported on ranks as the implementation under test.

On rank 1, in each all_gather of 4 work-groups:
``element``: one element of the output is wrong for good
``late``: one element of the output comes 0.3 s after the op is reported complete
``stale``: it works on the input of the first call of that shape
``raise``, ``exit``, ``sleep``: it does so
On rank 1, ``early``: its broadcast reads rank 0's tensor when rank 0's op is reported complete; ``more``: its
reduce_scatter writes one element that rank 0 owns, and rightly so otherwise.
And everywhere, ``setup``: no instance can be made; ``host``: completion waits on the host, which no device graph can
hold; ``bare``: ops return no handle, and are complete behind device_barrier; ``barrier``: there is none either.
"""

import ctypes
import os
import threading
import time

import torch

import iris_under_test
from iris_under_test.ccl.instance import InstanceCollectives

FAULT = os.environ.get("PLANTED", "")


class Handle:
    def __init__(self, instance, work):
        self._instance, self._work = instance, work

    def wait(self):
        self._work.wait()
        self._instance.complete()


class Collectives(InstanceCollectives):
    def all_gather(self, output, source, group=None, async_op=False, config=None):
        assert async_op
        hit = self._instance.cur_rank == 1 and config is not None and config.comm_sms == 4
        if hit and FAULT == "raise":
            raise ValueError("planted: no all_gather on rank 1")
        if hit and FAULT == "exit":
            os._exit(7)
        if hit and FAULT == "sleep":
            time.sleep(600)
        if hit and FAULT == "stale":
            source = self._instance.first.setdefault(source.shape, source.clone())
        work = super().all_gather(output, source, group, async_op, config)
        if hit and FAULT in ("element", "late"):
            self._instance.spoil = output.view(-1)
        return None if FAULT in ("bare", "barrier") else Handle(self._instance, work)

    def broadcast(self, tensor, src=0, group=None, async_op=False, config=None):
        work = super().broadcast(tensor, src, group, async_op, config)
        if "early" in FAULT and self._instance.cur_rank == 1:
            time.sleep(0.05)
            tensor.copy_(self._instance.seen_by(0, tensor))
        return work

    def reduce_scatter(self, output, source, group=None, async_op=False, config=None):
        hit = "more" in FAULT and self._instance.cur_rank == 1
        right = source[0, 3] + self._instance.seen_by(0, source)[0, 3] if hit else None
        work = super().reduce_scatter(output, source, group=group, async_op=async_op, config=config)
        if hit:
            output[0, 3] = right
        return work


class Iris(iris_under_test.Iris):
    spoil = None

    def __init__(self, heap_size):
        super().__init__(heap_size)
        self.first = {}

    @property
    def ccl(self):
        return Collectives(self)

    def seen_by(self, rank, tensor):
        bases = self.heap.get_heap_bases()
        address = tensor.data_ptr() - bases[self.cur_rank] + bases[rank]
        memory = (ctypes.c_char * tensor.nbytes).from_address(address)
        return torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)

    def device_barrier(self, group=None):
        super().device_barrier(group)
        self.complete()

    def complete(self):
        if FAULT == "host":
            self.barrier()
        if self.spoil is not None:
            values, self.spoil = self.spoil, None
            right = values[77].clone()
            values[77] = right * 2 + 1
            if FAULT == "late":
                threading.Timer(0.3, values[77].copy_, [right]).start()


def iris(heap_size):
    if FAULT == "setup":
        raise ValueError(f"planted: no heap of {heap_size} bytes")
    instance = Iris(heap_size)
    if FAULT == "barrier":
        instance.device_barrier = None
    return instance
