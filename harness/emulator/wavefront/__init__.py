"""State of a wavefront: registers, initial state, operands of instructions, cross-lane patterns."""
