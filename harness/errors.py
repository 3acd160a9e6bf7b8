"""What can go wrong, one type per meaning.

``UsageError``      the caller gave something wrong; commands print it as one line and exit with status 2
``HarnessError``    a bug in the harness, or a broken machine: never a verdict about the library under test
``MachineError``    that which the machine did; ``harness.machine`` holds the rule
``KernelFault``     the kernel under test did something a GPU would fault on: a verdict about the library

Whatever a rank raises otherwise is the library's own error and is a verdict too.
"""


class UsageError(ValueError):
    """Bad input from the caller: says what was wrong, with which value, and what to do."""


class HarnessError(Exception):
    """A bug in the harness itself; must never be mistaken for a verdict about the library under test."""


class MachineError(HarnessError):
    """The machine failed: a full disk, a limit, a folder that cannot be written. Says what to do about it."""


class KernelFault(Exception):  # noqa: N818 - the field's term
    """A kernel faulted on the device: bad address, illegal instruction, deadlock."""
