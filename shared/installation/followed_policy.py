"""The installed policy in a process outside the installation: read again while the process runs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from shared.core.policy.policy import Policy
from shared.errors import TtlError
from shared.installation.installed import Installed

FOLLOW_SECONDS = 10.0
"""Time between two reads of the installation: less than the kubelet takes to update a mounted ConfigMap."""

_log = logging.getLogger("ttl")


class FollowedPolicy:
    """The policy of an installation: the last one that could be read, as a policy file keeps its last valid content.

    Args:
        read: Reads the installation; returns None if nothing is installed.
        policy: The policy in force at the start.
        is_installed: Whether there is an installation at the start.
        report: Called once with each problem.

    Attributes:
        problem: Why the policy now installed is unknown; empty if it is in force.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Installed | None]],
        policy: Policy,
        report: Callable[[str], None],
        *,
        is_installed: bool,
    ) -> None:
        self._read, self._policy, self._report, self._is_installed = read, policy, report, is_installed
        self.problem = ""

    def policy(self) -> Policy:
        """Return the policy in force."""
        return self._policy

    @property
    def is_good(self) -> bool:
        """Whether the policy of the last read is in force."""
        return not self.problem

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Read the installation again and again until the block ends."""
        task = asyncio.create_task(self._follow(), name="installed-policy")
        task.add_done_callback(self._report_end)
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):  # reported when it ended
                await task

    def _report_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self.problem = f"it is not read any more: {error!r}; restart `run`"
            self._report(self.problem)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            await self.refresh()

    async def refresh(self) -> None:
        """Read the installation once. A policy that cannot be read, or is gone, keeps the last one in force."""
        try:
            self._apply(await self._read())
        except TtlError as error:
            if str(error) != self.problem:
                self._report(str(error))
            self.problem = str(error)
        else:
            self.problem = ""

    def _apply(self, installed: Installed | None) -> None:
        if installed is None and not self._is_installed:
            return
        if installed is None:
            raise TtlError("the installation does not exist any more: expected its policy, restart `run` to drop it")
        if installed.problem:
            raise TtlError(installed.problem)
        self._is_installed = True
        if installed.policy.digest != self._policy.digest:
            self._policy = installed.policy
            fields = {"file": installed.policy_name or "none", "rules": len(installed.policy.rules)}
            _log.info("policy loaded", extra={"fields": fields})
