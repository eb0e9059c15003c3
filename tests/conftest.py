"""For all tests: output as into a pipe, the same random examples each time, and the marker `verify` by folder."""

import importlib.util
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

if importlib.util.find_spec("readline"):
    import readline  # noqa: F401 - it writes COLUMNS into the environment of the C library, at its first import

# pytest-xdist sets them in its workers, too; a command under test would wrap its lines.
for _variable in ("COLUMNS", "LINES"):
    os.environ.pop(_variable, None)
    os.unsetenv(_variable)  # os.environ does not know what the C library has

# The examples are the same in each run, and none has a deadline: on a busy machine a slow one is no failure.
settings.register_profile(
    "repeatable",
    parent=settings.default,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

_REAL = frozenset({"contract", "crash", "e2e", "integration"})
"""The folders whose tests need real servers."""

_REAL_SECONDS_MAX = 300
"""Their time-out: several times that of other tests, since they wait for processes."""


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio, as the functions do."""
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test of a folder that needs real servers, and give it the time that it takes on a busy machine."""
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).parts[0] in _REAL:
            item.add_marker(pytest.mark.verify)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_REAL_SECONDS_MAX))
