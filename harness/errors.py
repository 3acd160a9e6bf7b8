"""Exceptions of the harness, one type per meaning.

``UsageError``      bad input from the caller; commands print it as one line and exit with status 2
``HarnessError``    a bug in the harness, or a broken machine: never a verdict about the library under test
``MachineError``    the HarnessError for a failure of the machine; ``harness.machine`` has the rule
``KernelFault``     the kernel under test did something a GPU would fault on: a verdict about the library
``CompilerAborted`` the KernelFault for a compiler process that ended by a signal

Any other exception on a rank is an error of the library under test, and so a verdict about it.
"""

from __future__ import annotations

from typing import Any


class UsageError(ValueError):
    """Bad input from the caller. The message names what was wrong, the value, and what to do."""


class HarnessError(Exception):
    """A bug in the harness or a broken machine; never a verdict about the library under test."""


class MachineError(HarnessError):
    """A failure of the machine: a full disk, a limit, a folder that cannot be written. The message names the remedy."""


class KernelFault(Exception):  # noqa: N818 - the field's term
    """A fault of a kernel on the device: bad address, illegal instruction, deadlock."""


class CompilerAborted(KernelFault):
    """The end of the compiler's process by a signal while it compiled ``kernel``.

    ``how``: e.g. ``signal 6 (SIGABRT)``; ``output``: the last lines that the compiler wrote.
    """

    def __init__(self, kernel: str, how: str, output: str) -> None:
        super().__init__(kernel, how, output)
        self.kernel = kernel
        self.how = how
        self.output = output

    def __str__(self) -> str:
        return f"the compiler ended with {self.how} while it compiled {self.kernel}\n{self.output}".rstrip()

    def report(self) -> dict[str, Any]:
        """Return the exception's fields as plain data."""
        return {"fault": "compiler aborted", "kernel": self.kernel, "how": self.how, "output": self.output}
