"""``iris-harness``: the command line. It joins the suite, the reports and the harness; no other package imports it.

main.py       the command group, exit statuses, error lines       commands/   one file per subcommand
suite/        the conformance suite as a child process            bench/      benchmarks of collectives
preflight.py  validation of a request before the run starts       output.py   writing to a terminal or a pipe
"""
