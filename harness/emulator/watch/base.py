"""The base of a watched mode: a watch that changes nothing and is told everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from harness.emulator.listing import Instruction
from harness.emulator.ops.table import Step
from harness.emulator.program import Decoded
from harness.emulator.state import Wavefronts
from harness.emulator.watch.choices import Choices

if TYPE_CHECKING:
    from harness.emulator.launch import Chunk, Launch


class Watch:
    """One watched mode of one driver; sees every launch until the driver is replaced.

    ``choices`` decides what is left open; None: the scheduler's fixed order. Runs on the launching thread.

    State of a wavefront belongs under its number: ``wf.wave`` (int64[W], numbers within the launch, those of one
    work-group are consecutive), since wavefronts that part and meet are copied. ``wf.chunk.launch`` is the launch, and
    ``launch.rank`` the rank that launched.
    """

    name: ClassVar[str] = ""
    interleaves: bool = False
    """True: wavefronts run one at a time and may be switched at every global memory instruction, wait or cache
    operation. False: those that stand at the same instruction run as one array."""

    closed: bool = False
    """True: nobody outside can change the memory that a launch reads, so waiting for ever is reported."""
    red_zones: bool = False
    """True: of a segment from which something is carved, only that can be accessed."""

    def __init__(self, choices: Choices | None = None) -> None:
        self.choices = choices

    def restart(self, choices: Choices | None) -> None:
        """Forget what was seen and go on with other choices; programs stay decoded."""
        self.choices = choices

    def instrument(self, decoded: Decoded) -> Step | None:
        """The step to execute for an instruction, called once while its program is decoded; by default the plain
        one."""
        return decoded.step

    def before_end(self, instruction: Instruction) -> Step | None:
        """A step to execute before the branch, s_barrier, s_sleep or s_endpgm that ends a block; by default none."""
        return None

    def forget(self, address: int, size: int) -> None:
        """What these bytes hold is unspecified until they are written, as after an allocation."""

    def begin(self, closed: bool) -> None:
        """Launches are about to run; those before have all ended, and the host has seen what they wrote.

        ``closed``: nobody outside can change the memory that these launches read.
        """

    def start(self, launch: Launch) -> None:
        """A launch begins: no wavefront of it has been made."""

    def started(self, chunk: Chunk) -> None:
        """The wavefronts of these work-groups have been made; registers are as at entry."""

    def blocked(self, wf: Wavefronts) -> bool:
        """After an instruction at which wavefronts may be switched: True when it waits, and is executed again.

        Asked where ``interleaves`` is True; an s_waitcnt is then a block of its own.
        """
        return False

    def lingers(self, wf: Wavefronts) -> bool:
        """At s_endpgm, where ``interleaves``: True when these wavefronts cannot end yet, and are asked again later."""
        return False

    def arrived(self, wf: Wavefronts, barrier: int) -> None:
        """Wavefronts arrived at the s_barrier at the end of block ``barrier``."""

    def released(self, chunk: Chunk, groups: list[int]) -> None:
        """All live wavefronts of these work-groups (numbers within the launch) have arrived at a barrier, and go on."""

    def ended(self, wf: Wavefronts) -> None:
        """Wavefronts executed s_endpgm."""

    def finish(self, launch: Launch) -> None:
        """The last wavefront of a launch has ended."""

    def over(self) -> None:
        """All launches have finished, and the caller is about to go on."""

    def settled(self) -> bool:
        """False while memory may still change, or be seen to, without any wavefront doing anything."""
        return True
