"""For all tests: output as into a pipe."""

import os

import pytest

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it in its workers; a command under test would wrap its lines


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio, as the functions do."""
    return "asyncio"
