"""The check of the queue at the start of a process."""

import asyncio
import logging

from shared.adapters.timers.cloudtasks.task_queue import TaskQueue
from shared.core.timing import backoff_seconds
from shared.errors import TryLaterError

_log = logging.getLogger("ttl")


async def check_until_answered(queue: TaskQueue) -> None:
    """Check the queue, again and again until Cloud Tasks answers.

    Raises:
        TtlError: There is no such queue, or the right to read it is missing.
    """
    attempts = 0
    while True:
        try:
            return await queue.check()
        except TryLaterError as error:
            seconds = backoff_seconds(attempts, least=error.retry_after_seconds)
            fields = {"error": str(error), "retry_seconds": seconds}
            _log.warning("queue of timers not checked", extra={"fields": fields})
        await asyncio.sleep(seconds)
        attempts += 1
