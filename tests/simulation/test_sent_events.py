"""What whole systems send, by the JSON Schemas of docs/reference."""

from typing import Any
from unittest.mock import patch

from shared.messages import ArchiveDone, ArchiveRequest, Message, ObjectWarned
from tests.reference.schemas import list_messages
from tests.sent_events import SentEvents, checking_sent_events
from tests.simulation import process, simbroker, source
from tests.simulation.archive_world import ArchiveProcess, ArchiveWorld
from tests.simulation.deadline_world import DeadlineProcess, DeadlineWorld
from tests.simulation.world import World

NOT_SENT = (ArchiveDone, ArchiveRequest, ObjectWarned)
"""Only a foreign archiver sends the first, only its webhook receives the second, and no policy here has `warn`:
tests/functions sends that."""


def run_checked(world: Any, of_process: Any, sent: SentEvents) -> None:
    """Run a world whose process publishes messages without a Broker."""
    publish = of_process.publish

    async def checked(self: Any, message: Message | None) -> None:
        if message is not None:
            sent.check(message, source="simulation")
        await publish(self, message)

    with patch.object(of_process, "publish", checked):
        world(8).run()


def test_every_event_of_the_functions_is_sent_and_has_its_schema():
    with checking_sent_events(simbroker, process, source) as sent:
        World(4).run()
        run_checked(ArchiveWorld, ArchiveProcess, sent)
        run_checked(DeadlineWorld, DeadlineProcess, sent)
    assert {one.type for one in list_messages() if one not in NOT_SENT} <= set(sent.types)
