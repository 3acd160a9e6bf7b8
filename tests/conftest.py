"""Before a run: tests that run pytest are not taken for its workers. After a run of the corpus: how many opcodes the
emulator has, the corpus met, and tests check at their edges."""

import os
import tempfile


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # xdist's workers inherit it: runs of tests are no newest runs of the user's
        folder = tempfile.TemporaryDirectory(prefix="iris-harness-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ["XDG_STATE_HOME"] = folder.name
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
        del os.environ[name]


def pytest_terminal_summary(terminalreporter):
    met: dict[str, set[str]] = {}
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name.startswith("opcodes of "):
                met.setdefault(name.removeprefix("opcodes of "), set()).update(value.split())
    if not met:
        return
    from tests.emulator.covering import counts

    terminalreporter.section("emulator coverage")
    for arch, names in sorted(met.items()):
        terminalreporter.line(counts(arch, names))
