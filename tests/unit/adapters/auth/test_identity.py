"""Bearer tokens and their renewal, with a clock and a source that the test controls."""

import asyncio
import json
import logging

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from shared.adapters.auth import identity
from shared.adapters.auth.identity import GoogleTokens, RenewedToken, Token, file_tokens
from shared.adapters.http_client import RedirectError
from shared.adapters.kubernetes.connect import fetch_account_token
from shared.adapters.kubernetes.requests import Answer
from shared.errors import TryLaterError
from tests.builders import NOW
from tests.loopback import answering_with, elsewhere

pytestmark = pytest.mark.anyio


class Source:
    """Gives token-1, token-2 and so on, each fresh for 10 seconds and valid for 20.

    Attributes:
        now: Seconds on the clock of the token's user.
        open: While it is not set, a fetch waits.
        fault: What a fetch raises, if anything.
    """

    def __init__(self):
        self.now, self.fetched, self.fault = 0.0, 0, None
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self):
        self.fetched += 1
        number = self.fetched
        await self.open.wait()
        if self.fault:
            raise self.fault
        return Token(f"token-{number}", fresh_seconds=10, valid_seconds=20)


@pytest.fixture
async def source():
    return Source()


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """On a slow machine, no token is late."""
    monkeypatch.setattr(identity, "WAIT_SECONDS_MAX", 60.0)


@pytest.fixture
async def mine(source):
    mine = RenewedToken(source, monotonic=lambda: source.now)
    yield mine
    mine.close()


async def settled(mine):
    """Wait for the renewal in the background."""
    await asyncio.wait([mine._renewal])


async def test_fresh_token_is_fetched_once(source, mine):
    assert [await mine.token() for _ in range(3)] == ["token-1"] * 3
    source.now = 9.9
    assert await mine.token() == "token-1"
    assert source.fetched == 1


async def test_concurrent_requests_share_one_fetch(source, mine):
    assert await asyncio.gather(*(mine.token() for _ in range(50))) == ["token-1"] * 50
    assert source.fetched == 1


async def test_stale_token_is_used_while_the_next_is_fetched(source, mine):
    await mine.token()
    source.open.clear()
    source.now = 10.0

    assert [await mine.token() for _ in range(3)] == ["token-1"] * 3  # the source does not answer, and no caller waits
    source.open.set()
    await settled(mine)

    assert await mine.token() == "token-2"
    assert source.fetched == 2


async def test_expired_token_is_never_used(source, mine):
    await mine.token()
    source.now = 20.0

    assert await mine.token() == "token-2"


async def test_refused_token_is_replaced_by_one_fetch(source, mine):
    refused = await mine.token()

    assert await asyncio.gather(*(mine.token(refused=refused) for _ in range(20))) == ["token-2"] * 20
    assert await mine.token(refused=refused) == "token-2"  # the refusal comes late, when there is a newer token
    assert source.fetched == 2


async def test_failed_renewal_keeps_a_valid_token_and_an_expired_one_raises_try_later(source, mine, caplog):
    await mine.token()
    source.fault = TryLaterError("the source is away")
    source.now = 15.0
    for _ in range(3):
        assert await mine.token() == "token-1"
        await settled(mine)
    source.now = 20.0
    for _ in range(2):
        with pytest.raises(TryLaterError, match="the source is away"):
            await mine.token()

    source.fault = None
    assert await mine.token() == "token-7"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]  # one for the whole outage


async def test_late_token_raises_try_later_and_is_used_afterwards(source, mine, monkeypatch):
    source.open.clear()
    with monkeypatch.context() as short:
        short.setattr(identity, "WAIT_SECONDS_MAX", 0.01)
        with pytest.raises(TryLaterError, match="no bearer token"):
            await mine.token()

    source.open.set()
    assert await mine.token() == "token-1"
    assert source.fetched == 1


async def test_cancelled_request_does_not_cancel_the_fetch(source, mine):
    source.open.clear()
    first, second = asyncio.create_task(mine.token()), asyncio.create_task(mine.token())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    source.open.set()

    assert await second == "token-1"


async def test_close_cancels_the_renewal(source):
    mine = RenewedToken(source, monotonic=lambda: source.now)
    source.open.clear()
    waiting = asyncio.create_task(mine.token())
    await asyncio.sleep(0)
    mine.close()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_rotated_token_file_is_read_again(tmp_path):
    now, path = [0.0], tmp_path / "token"
    path.write_text("first\n")
    mine = RenewedToken(file_tokens(path), monotonic=lambda: now[0])
    assert await mine.token() == "first"

    path.write_text("second")
    assert await mine.token() == "first"
    assert await mine.token(refused="first") == "second"

    path.write_text("third")
    now[0] += identity.TOKEN_FILE_CACHED_SECONDS
    assert await mine.token() == "second"
    await settled(mine)
    assert await mine.token() == "third"

    path.unlink()
    with pytest.raises(TryLaterError, match="No such file"):
        await mine.token(refused="third")


# Of the API server


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"token": "one"},
        {"token": "one", "expirationTimestamp": "soon"},
        {"expirationTimestamp": "2099-01-01T00:00:00Z"},
    ],
    ids=str,
)
async def test_token_request_without_a_token_raises_try_later(status):
    class Server:
        async def request(self, *_, **__):
            return Answer({"status": status}, NOW)

    async def connected():
        return Server()

    with pytest.raises(TryLaterError, match=r"^TokenRequest: "):
        await fetch_account_token(connected, "ns/name", "audience")


@pytest.mark.parametrize("code", [302, 307])
async def test_google_assertion_is_not_sent_to_a_redirect_target(code, tmp_path, monkeypatch):
    key = rsa.generate_private_key(65537, 2048)
    formats = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    login = {"type": "service_account", "client_email": "ttl", "private_key": key.private_bytes(*formats).decode()}
    asked = []
    async with elsewhere() as (url, arrived):

        async def redirect(request):
            asked.append(request.method)
            return web.Response(status=code, headers={"location": f"{url}/token?hidden"})

        async with answering_with(redirect) as google:
            path = tmp_path / "login.json"
            path.write_text(json.dumps({**login, "token_uri": f"{google}/token"}))
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
            with pytest.raises(RedirectError, match=f"{google} answered {code}, a redirect to {url};") as raised:
                await GoogleTokens()()

    assert asked == ["POST"]
    assert arrived == []
    assert "hidden" not in str(raised.value)
