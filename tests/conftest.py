"""For all tests: output as into a pipe."""

import importlib.util
import os

import pytest

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
