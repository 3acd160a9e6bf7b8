"""``python -m harness`` is ``iris-harness``."""

from harness.cli import main

main()
