"""Virtual time for the async tests of a module or of a folder: its conftest.py, or the module, imports the fixture."""

from typing import Any

import pytest

from tests.simulation.virtualloop import VirtualLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Without threads and sockets. Nothing depends on the speed of the machine, and waiting takes no time.

    A pause ends when nothing else is ready; if nothing can ever wake a test, it fails at once.
    """
    return "asyncio", {"loop_factory": lambda: VirtualLoop(0)}
