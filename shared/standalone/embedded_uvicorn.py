"""A uvicorn server that runs inside another program."""

from collections.abc import Generator
from contextlib import contextmanager

import uvicorn


class InProcessServer(uvicorn.Server):
    """A uvicorn server that leaves signals to the program that it runs in."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture no signals."""
        yield
