"""Places at which a rank stops inside its kernels: steps spread over those that a call before had."""

PLACES = 6
"""Calls in which a rank stops, each time at another step."""


def place(number: int, steps: int) -> int:
    """Return the step, from 1, before which a rank stops in its call ``number``, from 1 to PLACES.

    The last step is left out: the number of steps may differ by one from call to call, as waits are longer or shorter.
    Example: with 11 steps, the calls 1 to 6 stop before the steps 1, 2, 4, 6, 8 and 10.
    """
    last = max(1, steps - 1)
    return 1 + (number - 1) * (last - 1) // (PLACES - 1)
