"""For all tests: output as into a pipe, slow tiers first, and the time of each tier after `--durations`."""

import importlib.util
import os
from collections import defaultdict

import pytest

from tests.tiers import start_order, summarize, tier_of

if importlib.util.find_spec("readline"):
    import readline  # noqa: F401 - it writes COLUMNS into the environment of the C library, at its first import

# pytest-xdist sets them in its workers, too; a command under test would wrap its lines.
for _variable in ("COLUMNS", "LINES"):
    os.environ.pop(_variable, None)
    os.unsetenv(_variable)  # os.environ does not know what the C library has


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio, as the functions do."""
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the slow tiers first; within a tier the order stays."""
    items.sort(key=lambda item: start_order(item.nodeid))


_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a phase of a test to its tier. pytest-xdist repeats the reports of all workers in the main process."""
    _seconds[tier_of(report.nodeid)] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the time of each tier if the slowest tests are printed as well."""
    if terminalreporter.config.getoption("durations") and _seconds:
        terminalreporter.section("time of each tier, summed over all workers")
        for line in summarize(_seconds):
            terminalreporter.write_line(line)
