"""Positions of wavefronts in words: for reports of hangs, and for errors of the emulator itself."""

from __future__ import annotations

from harness.emulator.driver.awaited import awaited
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.watch.base import Watch
from harness.emulator.wavefront.state import Wavefronts


def where(wavefronts: Wavefronts, watch: Watch | None) -> str:
    """Describe the position of wavefronts that are at the same block, and what they poll."""
    launch = wavefronts.chunk.launch
    instruction = launch.program.listing.instructions[launch.program.blocks[wavefronts.block].first]
    spin = f", {wavefronts.turn} turns used" if wavefronts.turn else ""
    waves = wavefronts.wave
    which = f"wavefronts {waves[0]}..{waves[-1]} ({len(waves)})" if len(waves) > 1 else f"wavefront {waves[0]}"
    return f"{which} at {instruction.text!r} ({instruction.source}){spin}{_polls(wavefronts, watch)}"


def _polls(wavefronts: Wavefronts, watch: Watch | None) -> str:
    """List the addresses that the wavefronts poll; wavefronts that poll the same one share an entry."""
    return "".join(f", polling {target} {waves}" for target, waves in awaited(wavefronts, watch).items())


def failed(wf: Wavefronts, step: object, error: Exception) -> UnimplementedInstruction:
    """Return the error to raise when a step of wavefronts raised an exception, which is not the fault of the kernel."""
    name, instruction = wf.chunk.launch.program.name, _instruction_of(wf, step)
    return UnimplementedInstruction(f"kernel {name}: executing {instruction} failed in the emulator: {error!r}")


def _instruction_of(wf: Wavefronts, step: object) -> str:
    for segment in wf.chunk.launch.program.blocks[wf.block].segments:
        for candidate, instruction in zip(segment.steps, segment.instructions, strict=True):
            if candidate is step:
                instruction = getattr(step, "instruction", instruction)  # a fused step names the failed one
                return f"{instruction.text!r} ({instruction.source})"
    return "an unknown instruction"
