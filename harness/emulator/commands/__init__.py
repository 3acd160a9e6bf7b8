"""Subcommands of ``python -m harness.emulator``, one per file."""
