"""Access to a remote API server by the settings: an incomplete or contradictory setting is one sentence."""

import asyncio
import base64

import pytest

from shared.adapters.auth.identity import GivenToken, RenewedToken
from shared.adapters.config.settings import SettingsError, read_settings
from shared.adapters.kubernetes.access import get_access
from tests.builders import not_none

SERVER = {"TTL_API_SERVER": "https://10.0.0.1"}
SECRET = "s3cret.t0ken"
TOKEN = {"TTL_API_TOKEN": SECRET}


def access_of(**environment):
    return get_access(read_settings(environment=environment))


def test_settings_without_an_api_server_give_no_access():
    assert access_of() is None


def test_token_from_the_settings_is_used_without_its_line_break():
    access = access_of(**SERVER, TTL_API_TOKEN=f"{SECRET}\n")

    assert (access.server, access.ca) == ("https://10.0.0.1", "")
    assert asyncio.run(access.identity.token()) == SECRET


@pytest.mark.parametrize("form", ["pem", "base64", "base64 in lines", "file", "file with base64"])
def test_ca_is_read_in_each_form(form, pem, tmp_path):
    encoded = base64.b64encode(pem.encode()).decode()
    file = tmp_path / "ca.crt"
    given = {"pem": pem, "base64": encoded, "base64 in lines": encoded[:64] + "\n" + encoded[64:]}.get(form, str(file))
    file.write_text(pem if form == "file" else encoded)

    assert access_of(**SERVER, **TOKEN, TTL_API_CA=given).ca == pem


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("https://10.0.0.1/", "https://10.0.0.1"),
        ("https://[2001:db8::1]:6443", "https://[2001:db8::1]:6443"),
        ("https://gateway.example/v1/projects/1/memberships/c", "https://gateway.example/v1/projects/1/memberships/c"),
        ("http://127.0.0.1:8001", "http://127.0.0.1:8001"),
        ("http://localhost:8001", "http://localhost:8001"),
        ("http://[::1]:8001", "http://[::1]:8001"),
    ],
)
def test_server_with_https_or_on_loopback_is_accepted(server, expected):
    assert access_of(TTL_API_SERVER=server, **TOKEN).server == expected


@pytest.mark.parametrize(
    "server",
    [
        "10.0.0.1",
        "https://",
        "https:///path",
        "http://10.0.0.1",
        "http://localhost.example",
        "ftp://127.0.0.1",
        "https://me:secret@10.0.0.1",
        "https://10.0.0.1?timeout=1",
        "https://10.0.0.1:port",
        "https://[::1",
    ],
)
def test_server_without_https_or_a_valid_url_is_rejected(server):
    with pytest.raises(SettingsError, match=r"^TTL_API_SERVER: .*expected"):
        access_of(TTL_API_SERVER=server, **TOKEN)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (TOKEN, "TTL_API_TOKEN: expected TTL_API_SERVER to be set"),
        ({"TTL_API_TOKEN_FILE": "/x"}, "TTL_API_TOKEN_FILE: expected TTL_API_SERVER to be set"),
        ({"TTL_API_IDENTITY": "google"}, "TTL_API_IDENTITY: expected TTL_API_SERVER to be set"),
        ({"TTL_API_CA": "/x"}, "TTL_API_CA: expected TTL_API_SERVER to be set"),
        (
            SERVER,
            "TTL_API_SERVER: expected exactly one of TTL_API_TOKEN, TTL_API_TOKEN_FILE, TTL_API_IDENTITY to be set",
        ),
        ({**SERVER, **TOKEN, "TTL_API_IDENTITY": "google"}, "got TTL_API_TOKEN and TTL_API_IDENTITY"),
        ({**SERVER, **TOKEN, "TTL_API_TOKEN_FILE": "/x"}, "got TTL_API_TOKEN and TTL_API_TOKEN_FILE"),
        ({**SERVER, "TTL_API_IDENTITY": "aws"}, "TTL_API_IDENTITY: "),
        ({**SERVER, "TTL_API_TOKEN": f"{SECRET} {SECRET}"}, "TTL_API_TOKEN: "),
        ({**SERVER, "TTL_API_TOKEN": f"{SECRET}\nx"}, "TTL_API_TOKEN: "),
        ({**SERVER, "TTL_API_TOKEN": f"{SECRET}ü"}, "TTL_API_TOKEN: "),
        ({**SERVER, "TTL_API_TOKEN_FILE": "/none/token"}, "TTL_API_TOKEN_FILE: expected a file with a token"),
        ({**SERVER, "TTL_API_TOKEN_FILE": "/"}, "TTL_API_TOKEN_FILE: expected a file with a token"),
        ({**SERVER, **TOKEN, "TTL_API_CA": "/none/ca"}, "TTL_API_CA: expected certificates in PEM"),
        ({**SERVER, **TOKEN, "TTL_API_CA": "x" * 5_000}, "TTL_API_CA: expected certificates in PEM"),
        ({**SERVER, **TOKEN, "TTL_API_CA": "a\0b"}, "TTL_API_CA: expected certificates in PEM"),
        (
            {**SERVER, **TOKEN, "TTL_API_CA": "-----BEGIN CERTIFICATE-----\nno"},
            "TTL_API_CA: expected certificates in PEM",
        ),
        ({**SERVER, **TOKEN, "TTL_API_CA": "LS0tLS1CRUdJTi!"}, "TTL_API_CA: expected certificates in PEM"),
        (
            {"TTL_API_SERVER": "http://127.0.0.1", **TOKEN, "TTL_API_CA": "/x"},
            "TTL_API_CA: expected TTL_API_SERVER to be an https:// URL",
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_invalid_access_settings_are_one_sentence_with_the_variable_and_no_secret(environment, words):
    with pytest.raises(SettingsError) as error:
        access_of(**environment)

    assert words in str(error.value)
    assert str(error.value).startswith("TTL_API_")
    assert "\n" not in str(error.value)
    assert SECRET not in str(error.value)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("content", ["", "\n", "two words", b"\xff\xfe"])
def test_token_file_without_a_token_is_rejected(content, tmp_path):
    path = tmp_path / "token"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(SettingsError, match=r"^TTL_API_TOKEN_FILE: expected .*/token'"):
        access_of(**SERVER, TTL_API_TOKEN_FILE=str(path))


def test_repr_of_settings_and_access_contains_no_secret(tmp_path):
    (tmp_path / "token").write_text(SECRET)
    settings = read_settings(environment={**SERVER, **TOKEN})
    access, by_file = not_none(get_access(settings)), access_of(**SERVER, TTL_API_TOKEN_FILE=str(tmp_path / "token"))

    assert isinstance(access.identity, GivenToken)
    assert isinstance(by_file.identity, RenewedToken)
    for each in (settings, settings.model_dump(), access, access.identity, by_file, vars(by_file.identity)):
        assert SECRET not in repr(each)
