"""A 401 whose token cannot be renewed now: its connection is closed, since no caller reads its body."""

from http import HTTPStatus
from types import SimpleNamespace
from typing import cast

import pytest

from shared.adapters.auth.identity import Identity
from shared.adapters.kubernetes.requests import ApiServer
from shared.adapters.kubernetes.transport import Transport
from shared.errors import TryLaterError

pytestmark = pytest.mark.anyio


class Tokens:
    """A source that has no newer token now."""

    async def token(self, *, refused: str = "") -> str:
        if refused:
            raise TryLaterError("the token file cannot be read")
        return "old"


async def test_answer_is_closed_if_no_newer_token_can_be_had() -> None:
    closed: list[int] = []
    response = SimpleNamespace(status=HTTPStatus.UNAUTHORIZED, close=lambda: closed.append(1))

    async def send(*_arguments: object, **_options: object) -> SimpleNamespace:
        return response

    transport = cast("Transport", SimpleNamespace(server="https://10.0.0.1", send=send))
    api = ApiServer(transport, identity=cast("Identity", Tokens()))

    with pytest.raises(TryLaterError, match="the token file cannot be read"):
        await api.request("GET", "/version")
    assert closed == [1]
