"""Base class of the watched modes: a watch that receives every event and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from harness.emulator.execution.timing import StepClock
from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.table import Step
from harness.emulator.program.decode import Decoded, Program
from harness.emulator.watch.choices import Choices
from harness.emulator.wavefront.state import Wavefronts

if TYPE_CHECKING:
    import numpy as np

    from harness.emulator.execution.launch import Chunk, Launch
    from harness.emulator.operations.access import GlobalAccess
    from harness.emulator.watch.decisions import Decisions


class Watch:
    """One watched mode of one driver; sees every launch until the driver is replaced.

    ``choices`` makes the open decisions; None: the scheduler's fixed order. Runs on the launching thread.

    Keep state of a wavefront under its number ``wf.wave`` (int64[W]; numbers within the launch, consecutive within a
    work-group), because wavefronts are copied when they diverge and reconverge. ``wf.chunk.launch`` is the launch, and
    ``launch.rank`` the rank that launched it.
    """

    name: ClassVar[str] = ""
    interleaves: bool = False
    """True: wavefronts run one at a time and may be switched at every global memory instruction, wait or cache
    operation. False: those at the same instruction run as one array."""

    any_order: bool = False
    """True: if wavefronts do not communicate, each order in which they run shows the mode the same."""

    closed: bool = False
    """True: only the running launches can change the memory that they read, so waiting for ever is reported."""
    copies_memory: bool = False
    """True: the mode keeps copies of memory, unless ``begin`` states that nothing else can change it."""
    red_zones: bool = False
    """True: in a segment with carved parts, only these parts are accessible."""

    def __init__(self, choices: Choices | None = None) -> None:
        self.choices = choices
        self.clock = StepClock()

    def restart(self, choices: Choices | None) -> None:
        """Drop all recorded state and continue with other choices; programs stay decoded."""
        self.choices = choices
        self.clock = StepClock()

    def instrument(self, decoded: Decoded) -> Step | None:
        """Return the step to execute for an instruction, by default the plain one.

        Called once per instruction, while its program is decoded.
        """
        return decoded.step

    def decoded(self, program: Program) -> None:
        """Called when all instructions of a program have been decoded and instrumented."""

    def last_read(self, launch: Launch, access: GlobalAccess, wave: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the addresses, uint64[64], and the accessing lanes of a wavefront's last execution of ``access``; None
        if they are not recorded."""
        return None

    def before_end(self, instruction: Instruction) -> Step | None:
        """Return a step to execute before the branch, s_barrier, s_sleep or s_endpgm that ends a block, or None."""
        return None

    def forget(self, address: int, size: int) -> None:
        """Mark these bytes as unspecified until they are written, as after an allocation."""

    def begin(self, closed: bool) -> None:
        """Called before launches run; all earlier ones have ended, and the host has seen their results.

        ``closed``: only these launches can change the memory that they read.
        """

    def start(self, launch: Launch) -> None:
        """Called when a launch begins, before its wavefronts are created."""

    def started(self, chunk: Chunk) -> None:
        """Called after the wavefronts of these work-groups are created; their registers are as at entry."""

    def blocked(self, wf: Wavefronts) -> bool:
        """Return True if the wavefronts must wait at this instruction, which is then executed again.

        Called after each instruction at which wavefronts may be switched, if ``interleaves``; an s_waitcnt is then a
        block of its own.
        """
        return False

    def lingers(self, wf: Wavefronts) -> bool:
        """Return True if these wavefronts cannot end yet: called at s_endpgm if ``interleaves``, and again later."""
        return False

    def arrived(self, wf: Wavefronts, barrier: int) -> None:
        """Called when wavefronts arrive at the s_barrier at the end of block ``barrier``."""

    def released(self, chunk: Chunk, groups: list[int]) -> None:
        """Called when all live wavefronts of these work-groups (numbers in the launch) have arrived at a barrier."""

    def ended(self, wf: Wavefronts) -> None:
        """Called when wavefronts have executed s_endpgm."""

    def finish(self, launch: Launch) -> None:
        """Called when the last wavefront of a launch has ended."""

    def over(self) -> None:
        """Called when all launches have finished, before the caller continues."""

    def settled(self) -> bool:
        """Return False while memory, or a wavefront's view of it, may still change without any wavefront executing."""
        return True


class NativeWatch(Watch):
    """Watched mode whose steps have native functions, so that whole programs become native code.

    ``started``, ``released`` and ``ended`` are not called for native code.

    ``driver.interleaved`` executes it. ``ending``: ranks whose kernel has ended without the release at its end.
    ``chunk_of``: returns the work-group of a wavefront, by its number, whose record native code made.
    """

    interleaves = True
    ending: Sequence[int] = ()
    chunk_of: Callable[[Launch, int], Chunk] | None = None

    @property
    def decisions(self) -> Decisions:
        """The state in which native code takes decisions; the same for all launches until ``restart``."""
        raise NotImplementedError

    @property
    def events(self) -> int:
        """Address of the state of ``native.race_state``, or 0: native code reports barriers and ends to it."""
        return 0

    def translated(self) -> None:
        """Called before ``begin``, if translated code of decoded programs is going to run."""

    def untranslated(self) -> None:
        """Called after translated code has run, also if it has failed."""

    def address_of(self, launch: Launch) -> int:
        """Return the address of what native functions need of a launch that has started."""
        raise NotImplementedError

    def end_kernel(self) -> None:
        """Perform the release at the end of the first kernel of ``ending``."""
        raise NotImplementedError
