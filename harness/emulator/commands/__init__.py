"""The subcommands of ``python -m harness.emulator``, one a file."""
