"""A uvicorn that is part of another program."""

from collections.abc import Generator
from contextlib import contextmanager

import uvicorn


class InProcessServer(uvicorn.Server):
    """Leaves signals to the program it runs in."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield
