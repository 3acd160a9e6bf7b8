"""The conformance suite as a child process: start it, follow its evidence, stop it, report how it ended."""
