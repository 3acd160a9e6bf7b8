"""An Iris with the fault that PLANTED names; imported on ranks as the implementation under test.

On rank 1, in each all_gather of 4 work-groups:
``element``: one element of the output is wrong for good
``late``: one element of the output comes 0.3 s after device_barrier
``stale``: it works on the input of the first call of that shape
``raise``, ``exit``, ``sleep``: it does so
And everywhere, ``setup``: no instance can be made; ``barrier``: there is no device_barrier; ``host``: it waits on the
host, which no device graph can hold.
"""

import os
import threading
import time

import iris_under_test
from iris_under_test.ccl.instance import InstanceCollectives

FAULT = os.environ.get("PLANTED", "")


class Collectives(InstanceCollectives):
    def all_gather(self, output, source, group=None, async_op=False, config=None):
        assert async_op
        hit = self._instance.cur_rank == 1 and config.comm_sms == 4
        if hit and FAULT == "raise":
            raise ValueError("planted: no all_gather on rank 1")
        if hit and FAULT == "exit":
            os._exit(7)
        if hit and FAULT == "sleep":
            time.sleep(600)
        if hit and FAULT == "stale":
            source = self._instance.first.setdefault(source.shape, source.clone())
        super().all_gather(output, source, group, async_op, config)
        if hit and FAULT in ("element", "late"):
            self._instance.spoil = output.view(-1)


class Iris(iris_under_test.Iris):
    spoil = None

    def __init__(self, heap_size):
        super().__init__(heap_size)
        self.first = {}

    @property
    def ccl(self):
        return Collectives(self)

    def device_barrier(self, group=None):
        if FAULT == "host":
            self.barrier()
        else:
            super().device_barrier(group)
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
