"""URLs of archives: what is accepted, and what is said about the rest."""

import pytest

from shared.core.archive.destination import Destination, parse_destination


@pytest.mark.parametrize(
    ("url", "destination", "location"),
    [
        ("file:///var/x", Destination("file", "", "/var/x"), "file:///var/x/v1/a%253Ab"),
        ("file:///a%20b/", Destination("file", "", "/a b"), "file:///a%20b/v1/a%253Ab"),
        ("s3://bucket", Destination("s3", "bucket", ""), "s3://bucket/v1/a%3Ab"),
        ("s3://bucket/", Destination("s3", "bucket", ""), "s3://bucket/v1/a%3Ab"),
        ("gs://b/one/two/", Destination("gs", "b", "one/two"), "gs://b/one/two/v1/a%3Ab"),
        ("az://c?account=me", Destination("az", "c", "", {"account": "me"}), "az://c/v1/a%3Ab"),
        (
            "s3://b/p?endpoint=http://127.0.0.1:7070&region=eu-1&addressing=virtual",
            Destination(
                "s3", "b", "p", {"endpoint": "http://127.0.0.1:7070", "region": "eu-1", "addressing": "virtual"}
            ),
            "s3://b/p/v1/a%3Ab",
        ),
    ],
)
def test_destination_is_parsed(url, destination, location):
    assert parse_destination(url) == destination
    assert destination.location("v1/a%3Ab") == location


def test_location_without_a_key_is_the_root():
    assert parse_destination("file:///var/x").location() == "file:///var/x"
    assert parse_destination("s3://bucket/p?region=x").location() == "s3://bucket/p"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "expected file:///PATH"),
        ("s3://" + "b" * 3_000, "at most 2048"),
        ("s3://bucket/\u00fc", "printable ASCII"),
        ("s3://bucket/a\nb", "printable ASCII"),
        ("s3://bucket/%ff", "expected file:///PATH"),
        ("s3://bucket/%00", "without . and .."),
        ("s3://bucket/a//b", "empty parts"),
        ("s3://bucket/%2e%2e/b", "without . and .."),
        ("s3://user:pass@bucket", "the environment of the process"),
        ("s3://bucket?aws_secret_access_key=hidden", "the environment of the process"),
        ("az://c?sas=hidden", "the environment of the process"),
        ("az://c?sig=hidden", "the environment of the process"),
        ("gs://b?token=hidden", "the environment of the process"),
        ("s3://bucket?retries=3", "expected each of these options at most once: addressing, endpoint, region"),
        ("s3://bucket?region=", "expected a value for the option region"),
        ("s3://bucket?addressing=best", "addressing: expected path or virtual"),
        ("s3://bucket?endpoint=host", "endpoint: expected https://HOST"),
        ("s3://bucket?endpoint=ftp://host", "endpoint: expected https://HOST"),
        ("s3://bucket?endpoint=http://u:hidden@host", "endpoint: expected a URL without a user"),
        ("s3://bucket?endpoint=http://host:x", "endpoint: expected https://HOST"),
        ("memory:", "expected file:///PATH"),
    ],
)
def test_other_url_is_rejected_without_its_credentials(url, problem):
    with pytest.raises(ValueError, match="expected") as caught:
        parse_destination(url)
    assert problem in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert "pass@" not in str(caught.value)
