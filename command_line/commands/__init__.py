"""The subcommands of ``iris-harness``, one file each; ``command_line.main`` lists them."""
