"""A part that is made when it is first needed."""

import asyncio

import pytest

from shared.bootstrap.process import Once
from shared.errors import TryLaterError

pytestmark = pytest.mark.anyio


async def test_concurrent_callers_share_one_part():
    made = []

    async def make():
        await asyncio.sleep(0)
        made.append(object())
        return made[-1]

    part = Once(make)
    assert part.made is None
    parts = await asyncio.gather(part(), part())
    assert list(parts) == [part.made, part.made]
    assert len(made) == 1


async def test_part_that_could_not_be_made_is_tried_again():
    answers = [TryLaterError("busy"), "part"]

    async def make():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    part = Once(make)
    with pytest.raises(TryLaterError):
        await part()
    assert await part() == "part"
