"""Requests to NATS that the servers refuse, or that a closed connection leaves without an answer."""

from typing import Any, cast

import pytest

from shared.adapters.timers.nats.acks import Acks
from shared.errors import TryLaterError

pytestmark = pytest.mark.anyio


class Client:
    def new_inbox(self) -> str:
        return "_INBOX.x"

    async def publish(self, *_words: object) -> None:
        pass


@pytest.fixture
def acks() -> Acks:
    return Acks(cast("Any", Client()), "TIMERS")


async def test_refusal_names_the_subject_in_small_letters(acks: Acks) -> None:
    refused = await acks.send("$JS.API.STREAM.MSG.GET.TIMERS", b"")
    other = await acks.send("$JS.API.STREAM.MSG.GET.OTHER", b"")

    acks.refuse('nats: permissions violation for publish to "$js.api.stream.msg.get.timers"')

    with pytest.raises(TryLaterError, match="grant the right"):
        await refused
    assert not other.done()


async def test_request_after_the_close_ends_at_once(acks: Acks) -> None:
    acks.close()

    with pytest.raises(TryLaterError, match="before the connection was closed"):
        await acks.send("$JS.API.STREAM.INFO.TIMERS", b"")
