"""Authentication of callers: valid and forged tokens of a loopback issuer, at functions behind real HTTP."""

import asyncio
import json
import shutil
import time
from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import Any

import certifi
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from shared.adapters.auth import callers as callers_module
from shared.adapters.auth.callers import (
    FETCH_SECONDS,
    KEPT_SECONDS,
    KEYS_BYTES_MAX,
    KEYS_PAUSE_SECONDS,
    RETRY_SECONDS,
    ApiServerIssuer,
    Callers,
    Issuer,
    Keys,
)
from shared.adapters.config.settings import SettingsError, read_settings
from shared.adapters.events.cloudevents import EVENT_BYTES_MAX
from shared.adapters.http_client import RedirectError
from shared.bootstrap.start import build_admission
from shared.errors import TryLaterError
from tests.functions.wire import FIRED, TAKEN, binary, timer
from tests.issuers import AUDIENCE, DISCOVERY, OTHER, SIGNER, SUBJECT, LoopbackIssuer, Signer
from tests.loopback import answering_with, answering_without_end, elsewhere

pytestmark = pytest.mark.anyio


@pytest.fixture
async def issuer(monkeypatch):
    monkeypatch.setattr(callers_module, "FETCH_SECONDS", 60.0)  # no slow machine fails a fetch
    issuer = LoopbackIssuer()
    async with answering_with(issuer.handle) as issuer.url:
        yield issuer


@pytest.fixture
def now():
    """Seconds on the clock of the keys; a test moves it."""
    return [0.0]


@pytest.fixture
def guarded(functions, config, issuer, now):
    """The functions, which accept requests of SUBJECT only."""
    keys = Keys(Issuer(issuer.url), clock=lambda: now[0])
    callers = Callers((SUBJECT, "someone:else"), audience=AUDIENCE, keys=keys)
    return functions.use(replace(config, admit=callers.admit))


async def call(functions, authorization, name="schedule"):
    headers, body = binary(*TAKEN[name])
    return await functions.post(name, {**headers, **({"authorization": authorization} if authorization else {})}, body)


@pytest.mark.parametrize("name", list(TAKEN))
async def test_valid_token_is_admitted(guarded, issuer, name):
    answer = await call(guarded, f"Bearer {issuer.token()}", name)

    assert answer.status in (200, 204)
    assert [path for path, _ in issuer.asked] == [DISCOVERY, "/keys"]


async def test_request_without_a_token_is_admitted_if_callers_is_unset(functions):
    assert (await call(functions, None)).status == 200


@pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
async def test_authorization_scheme_ignores_case(guarded, issuer, scheme):
    assert (await call(guarded, f"{scheme}  {issuer.token()} ")).status == 200


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "token"])
async def test_missing_token_is_401_without_a_fetch(guarded, issuer, header):
    answer = await call(guarded, header)

    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.text == "authorization: expected a bearer token, got none\n"
    assert issuer.asked == []


def unsigned(claims, **headers):
    parts = ({"alg": "none", "kid": "one", **headers}, claims)
    return ".".join([*(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), ""])


def signed_with_the_public_key(claims):
    """A token signed with the public key as a shared secret; written by hand, because the library refuses it."""
    pem = SIGNER.public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    head = unsigned(claims, alg="HS256").rstrip(".")
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(head.encode(), pem)
    return f"{head}.{urlsafe_b64encode(signature).decode().rstrip('=')}"


BAD_TOKENS = {
    "expired": lambda issuer: issuer.token(exp=time.time() - 3_600),
    "not yet valid": lambda issuer: issuer.token(nbf=time.time() + 3_600),
    "never expires": lambda issuer: issuer.token(exp=None),
    "for another audience": lambda issuer: issuer.token(aud=["eventing.knative.dev/broker/ns/default"]),
    "for a part of our audience": lambda issuer: issuer.token(aud="ttl"),
    "for no audience": lambda issuer: issuer.token(aud=None),
    "of another issuer": lambda issuer: issuer.token(iss="https://issuer.example"),
    "of no issuer": lambda issuer: issuer.token(iss=None),
    "of no subject": lambda issuer: issuer.token(sub=None),
    "of a subject that is no text": lambda issuer: jwt.PyJWS().encode(
        json.dumps(issuer.claims(sub=1)).encode(), SIGNER.private, "RS256", {"kid": "one"}
    ),
    "of four parts": lambda issuer: issuer.token().replace(".", ".e30.", 1),
    "signed by another issuer": lambda issuer: OTHER.sign(issuer.claims(), kid="one"),
    "without a signature": lambda issuer: unsigned(issuer.claims()),
    "of an algorithm in capitals": lambda issuer: unsigned(issuer.claims(), alg="NONE"),
    "signed with the public key": lambda issuer: signed_with_the_public_key(issuer.claims()),
    "of another algorithm than its key": lambda issuer: Signer("one", "ES256").sign(issuer.claims()),
    "of an unknown key": lambda issuer: OTHER.sign(issuer.claims()),
    "of no key": lambda issuer: jwt.encode(issuer.claims(), SIGNER.private, "RS256"),
    "of a key that is a number": lambda issuer: unsigned(issuer.claims(), kid=1),
    "cut off": lambda issuer: issuer.token()[:-10],
    "changed": lambda issuer: issuer.token().replace(".", ".x", 1),
    "garbage": lambda _: "garbage",
    "three dots": lambda _: "...",
    "not ASCII": lambda _: "\xe9.\xe9.\xe9",
    "a thousand levels": lambda _: urlsafe_b64encode(b"[" * 40_000).decode() + ".e30.x",
}


@pytest.mark.parametrize("name", list(BAD_TOKENS))
async def test_invalid_token_is_401(guarded, issuer, config, name):
    answer = await call(guarded, f"Bearer {BAD_TOKENS[name](issuer)}")

    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), answer.text
    assert answer.text.startswith("authorization: expected ")
    assert len(answer.text) < 400
    assert config.telemetry.records == []


async def test_valid_token_of_another_subject_is_403(guarded, issuer, config):
    subject = SUBJECT.replace("expire", "schedule")

    answer = await call(guarded, f"Bearer {issuer.token(sub=subject)}")

    assert (answer.status, "www-authenticate" in answer.headers) == (403, False)
    assert answer.text.endswith(f", got subject '{subject}'\n")
    assert config.telemetry.records == []


async def test_each_of_several_callers_is_admitted(guarded, issuer):
    assert (await call(guarded, f"Bearer {issuer.token(sub='someone:else')}")).status == 200


@pytest.mark.parametrize("body", [b"{", b"x" * (EVENT_BYTES_MAX + 1)])
async def test_rejected_caller_gets_no_detail_about_its_event(guarded, body):
    headers, _ = binary(FIRED, timer(), id=None)

    assert (await guarded.post("expire", headers, body)).status == 401
    assert (await guarded.post("expire", headers, b"", method="GET")).status == 401


async def test_elliptic_curve_signature_is_accepted(guarded, issuer):
    signer = Signer("curve", "ES256")
    issuer.signers = [SIGNER, signer]

    assert (await call(guarded, f"Bearer {issuer.token(signer)}")).status == 200


async def test_unusable_key_hides_no_other(guarded, issuer):
    class Strange:
        def jwk(self):
            return {"kty": "new", "kid": "new"}

    issuer.signers = [Strange(), SIGNER]

    assert (await call(guarded, f"Bearer {issuer.token()}")).status == 200


# Keys


async def test_keys_are_fetched_once(guarded, issuer, now):
    for _ in range(3):
        assert (await call(guarded, f"Bearer {issuer.token()}")).status == 200
        now[0] += KEPT_SECONDS / 4

    assert len(issuer.asked) == 2


async def test_concurrent_requests_fetch_the_keys_once(guarded, issuer):
    token = issuer.token()
    answered = await asyncio.gather(*(call(guarded, f"Bearer {token}") for _ in range(20)))

    assert {answer.status for answer in answered} == {200}
    assert len(issuer.asked) == 2


async def test_rotated_key_replaces_the_old_one(guarded, issuer, now):
    assert (await call(guarded, f"Bearer {issuer.token()}")).status == 200
    issuer.signers = [OTHER]
    now[0] += KEYS_PAUSE_SECONDS

    assert (await call(guarded, f"Bearer {issuer.token(OTHER)}")).status == 200
    now[0] += KEYS_PAUSE_SECONDS
    assert (await call(guarded, f"Bearer {issuer.token()}")).status == 401


async def test_withdrawn_key_is_trusted_for_an_hour_at_most(guarded, issuer, now):
    assert (await call(guarded, f"Bearer {issuer.token()}")).status == 200
    issuer.signers = [OTHER]
    now[0] += KEPT_SECONDS

    assert (await call(guarded, f"Bearer {issuer.token()}")).status == 401


async def test_invented_key_ids_do_not_force_a_fetch_each(guarded, issuer, now):
    assert (await call(guarded, f"Bearer {issuer.token()}")).status == 200
    for number in range(5):
        forged = OTHER.sign(issuer.claims(), kid=f"forged-{number}")
        answer = await call(guarded, f"Bearer {forged}")
        # Not 401: the issuer may have a new key, and the Broker does not retry a refused event.
        assert (answer.status, answer.headers["retry-after"]) == (503, "10")
        assert (await call(guarded, f"Bearer {issuer.token()}")).status == 200

    assert len(issuer.asked) == 2
    now[0] += KEYS_PAUSE_SECONDS
    assert (await call(guarded, f"Bearer {forged}")).status == 401
    assert len(issuer.asked) == 4


async def test_unreachable_issuer_is_503(guarded, issuer, now):
    issuer.is_down = True
    answer = await call(guarded, f"Bearer {issuer.token()}")
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert answer.text.startswith(f"cannot fetch the keys of {issuer.url}: 503")
    assert (await call(guarded, f"Bearer {issuer.token()}")).status == 503
    assert len(issuer.asked) == 1

    issuer.is_down = False
    now[0] += RETRY_SECONDS
    assert (await call(guarded, f"Bearer {issuer.token()}")).status == 200


async def test_known_keys_are_used_while_the_issuer_is_unreachable(guarded, issuer, now):
    assert (await call(guarded, f"Bearer {issuer.token()}")).status == 200
    issuer.is_down = True
    now[0] += KEPT_SECONDS

    assert (await call(guarded, f"Bearer {issuer.token()}")).status == 200
    assert (await call(guarded, f"Bearer {issuer.token(OTHER)}")).status == 503


@pytest.mark.parametrize("known", [{"one": object()}, {}], ids=["known", "unknown"])
async def test_concurrent_requests_wait_for_one_fetch_of_a_hanging_issuer(known):
    now = [2 * KEPT_SECONDS]

    class Hanging:
        url = "https://issuer.example"
        asked = 0

        async def fetch(self):
            self.asked += 1
            await asyncio.sleep(0)
            now[0] += FETCH_SECONDS
            raise TimeoutError

    issuer: Any = Hanging()
    keys = Keys(issuer, clock=lambda: now[0])
    keys._keys = known
    answers = await asyncio.gather(*(keys.get("one") for _ in range(10)), return_exceptions=True)

    assert issuer.asked == 1
    assert [type(answer) for answer in answers] == [object if known else TryLaterError] * 10


@pytest.mark.parametrize(
    "discovery",
    [{"issuer": "https://issuer.example"}, {"issuer": None}, {"jwks_uri": "file:///keys"}, {"jwks_uri": None}],
    ids=str,
)
async def test_discovery_document_of_another_issuer_is_rejected(guarded, issuer, discovery):
    issuer.discovery = discovery

    answer = await call(guarded, f"Bearer {issuer.token()}")

    assert answer.status == 503
    assert f"{next(iter(discovery))}: expected" in answer.text
    assert [path for path, _ in issuer.asked] == [DISCOVERY]


async def test_public_issuer_gets_no_token(guarded, issuer):
    await call(guarded, f"Bearer {issuer.token()}")

    assert {authorization for _, authorization in issuer.asked} == {None}


async def test_pod_without_a_token_is_503(functions, config, issuer, tmp_path):
    keys = Keys(ApiServerIssuer("https://127.0.0.1:1", tmp_path))
    functions.use(replace(config, admit=Callers((SUBJECT,), audience=AUDIENCE, keys=keys).admit))

    answer = await call(functions, f"Bearer {issuer.token()}")

    assert answer.status == 503
    assert f"{tmp_path}/token" in answer.text


@pytest.mark.parametrize("path", [DISCOVERY, "/keys"])
async def test_keys_are_not_fetched_from_a_redirect_target(guarded, issuer, path):
    async with elsewhere() as (url, arrived):
        issuer.redirects = {path: f"{url}/keys"}
        answer = await call(guarded, f"Bearer {issuer.token()}")

    assert answer.status == 503  # the event is valid: Knative sends it again
    assert f"{issuer.url} answered 307, a redirect to {url};" in answer.text
    assert arrived == []


async def test_pod_token_is_not_sent_to_a_redirect_target(issuer, tmp_path):
    (tmp_path / "token").write_text("hidden")
    shutil.copy(certifi.where(), tmp_path / "ca.crt")
    async with elsewhere() as (url, arrived):
        issuer.redirects = {DISCOVERY: url}
        with pytest.raises(RedirectError, match=f"a redirect to {url};"):
            await ApiServerIssuer(issuer.url, tmp_path).fetch()

    assert issuer.asked == [(DISCOVERY, "Bearer hidden")]
    assert arrived == []


# Settings


async def test_settings_without_callers_have_no_admission():
    assert build_admission(read_settings(environment={})) is None
    asked = read_settings(environment={"TTL_CALLERS": "a, b", "TTL_CALLERS_AUDIENCE": "c"})
    assert asked.callers == ("a", "b")
    assert build_admission(asked) is not None


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"TTL_CALLERS": "a"}, "TTL_CALLERS_AUDIENCE: expected "),
        ({"TTL_CALLERS_AUDIENCE": "c"}, "TTL_CALLERS: expected "),
        ({"TTL_CALLERS": ",", "TTL_CALLERS_AUDIENCE": "c"}, "TTL_CALLERS: expected "),
        ({"TTL_CALLERS_ISSUER": "https://issuer.example"}, "TTL_CALLERS: expected "),
        ({"TTL_CALLERS": "a", "TTL_CALLERS_AUDIENCE": "c", "TTL_CALLERS_ISSUER": "http://x"}, "TTL_CALLERS_ISSUER: "),
    ],
    ids=str,
)
async def test_incomplete_caller_settings_are_rejected(environment, words):
    with pytest.raises(SettingsError, match=f"^{words}"):
        build_admission(read_settings(environment=environment))


async def test_answer_of_an_issuer_without_end_is_read_up_to_its_limit():
    handle, sent = answering_without_end()
    async with answering_with(handle) as url:
        with pytest.raises(TryLaterError, match=f"at most {KEYS_BYTES_MAX} bytes"):
            await Keys(Issuer(url)).get("one")
    assert KEYS_BYTES_MAX <= sent[0] < 32 * 1024 * 1024


async def test_answer_of_an_issuer_that_is_nested_too_deeply_is_an_outage():
    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=b"[" * 100_000)

    async with answering_with(handle) as url:
        with pytest.raises(TryLaterError, match="nested too deeply"):
            await Keys(Issuer(url)).get("one")
