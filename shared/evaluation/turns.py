"""Let other tasks run during long work, by the time that it has taken: one object may be as long as thousands."""

import asyncio

TURN_SECONDS_MAX = 0.02
"""How long the work runs before other tasks run: a health check and other answers wait no longer for it."""


class Turns:
    """The turns of the event loop during one work, which several tasks may share."""

    def __init__(self) -> None:
        self._since = 0.0

    @property
    def is_over(self) -> bool:
        """Return whether the present turn has taken long; ask it after each part of the work on one object."""
        return asyncio.get_running_loop().time() - self._since >= TURN_SECONDS_MAX

    async def pause(self) -> None:
        """Let other tasks run, if the present turn has taken long; call it after each object."""
        if self.is_over:
            await asyncio.sleep(0)
            self._since = asyncio.get_running_loop().time()
