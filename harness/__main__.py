"""``python -m harness`` is ``iris-harness``."""

import os
import sys
from pathlib import Path


def _forget_current_folder() -> None:
    """Drop the current folder, which ``python -m`` puts first, so that no module that happens to lie there is imported.

    It stays where this package is imported from it (a checkout), or where PYTHONPATH names it.
    """
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False) or not sys.path:
        return
    try:
        here = Path.cwd()
    except OSError:  # it was removed, and holds nothing
        return
    first = Path(sys.path[0]).resolve()
    named = {Path(place).resolve() for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place}
    if first == here.resolve() and first not in {Path(__file__).parent.parent.resolve(), *named}:
        del sys.path[0]


_forget_current_folder()

from harness.cli import main  # noqa: E402 - imports what the path decides

main()
