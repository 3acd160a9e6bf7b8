"""``python -m command_line`` is ``iris-harness``."""

import os
import sys
from pathlib import Path


def _forget_current_folder() -> None:
    """Remove the current folder from ``sys.path``, where ``python -m`` puts it, so that no module in it is imported.

    It stays if this package is imported from it (a checkout), or if PYTHONPATH names it.
    """
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False) or not sys.path:
        return
    try:
        here = Path.cwd()
    except OSError:  # the current folder was removed: no module can be imported from it
        return
    first = Path(sys.path[0]).resolve()
    named = {Path(place).resolve() for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place}
    if first == here.resolve() and first not in {Path(__file__).parent.parent.resolve(), *named}:
        del sys.path[0]


_forget_current_folder()

from command_line.main import main  # noqa: E402 - sys.path must be right before this import

main()
