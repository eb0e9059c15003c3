"""What a put into a bucket concludes from the size of what the bucket then has."""

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from shared.adapters.archive.bucket import ERROR_CHARACTERS_MAX, BucketStore, convert_bucket_error
from shared.core.archive.destination import Destination, parse_destination
from shared.errors import ForbiddenError, PermanentError, TryLaterError
from shared.ports.archive import StoredFile
from tests.builders import NOW

pytestmark = pytest.mark.anyio

BUCKET = Destination("memory", "tests", "")


class RacedStore(BucketStore):
    """A store in which another document is under the key when the put asks for it."""

    async def head(self, path: str) -> StoredFile:
        return StoredFile(path, NOW, 100)


async def test_put_that_replaces_is_tried_again_if_another_archiver_replaced_the_document_too():
    store = RacedStore("main", BUCKET, MemoryStore())
    with pytest.raises(TryLaterError, match="has 100 bytes instead of 4") as caught:
        await store.put("key", b"mine", replaces=True)
    assert "delete" not in str(caught.value)
    assert not caught.value.outage


async def test_put_of_a_new_document_that_the_bucket_cut_is_an_error():
    store = RacedStore("main", BUCKET, MemoryStore())
    with pytest.raises(PermanentError, match="has 100 of 4 bytes; delete it"):
        await store.put("key", b"mine")


class LongerResult:
    """An answer with more bytes than its header says; it counts the chunks that are read."""

    meta = {"size": 3}  # noqa: RUF012 - never changed

    def __init__(self):
        self.read = 0

    async def stream(self, *, min_chunk_size):
        for _ in range(100):
            self.read += 1
            yield bytes(min_chunk_size)


async def test_file_that_is_longer_than_its_size_is_read_up_to_the_limit(monkeypatch):
    result = LongerResult()

    async def get(*_):
        return result

    monkeypatch.setattr(obstore, "get_async", get)
    with pytest.raises(OverflowError):
        await BucketStore("main", BUCKET, MemoryStore()).get("key", 1_000_000)
    assert result.read == 4


S3 = parse_destination("s3://bucket/prefix")
WHAT = "archive main: cannot store s3://bucket/prefix/key"


def answered(status, code="", message="", url="https://bucket.s3.amazonaws.com/prefix/key"):
    body = f"<Error><Code>{code}</Code><Message>{message}</Message><AWSAccessKeyId>AKIAHIDDEN</AWSAccessKeyId></Error>"
    return GenericError(
        f"Generic S3 error: Error performing PUT {url}?X-Amz-Signature=hidden in 2ms, after 2 retries - Server "
        f"returned non-2xx status code: {status} Some Reason: {body}\n\nDebug source:\nGeneric {{ hidden }}"
    )


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (400, "InvalidBucketName", PermanentError, "400 InvalidBucketName: said; check region"),
        (400, "ExpiredToken", ForbiddenError, "400 ExpiredToken)"),
        (400, "InvalidAccessKeyId", ForbiddenError, "400 InvalidAccessKeyId)"),
        (301, "PermanentRedirect", PermanentError, "301 PermanentRedirect"),
        (401, "", ForbiddenError, "(401)"),
        (403, "AccessDenied", ForbiddenError, "(403 AccessDenied)"),
        (403, "RequestTimeTooSkewed", TryLaterError, "set the clocks"),
        (404, "NoSuchBucket", PermanentError, "expected a bucket bucket"),
        (404, "XAdminUserNotFound", ForbiddenError, "404 XAdminUserNotFound"),
        (408, "", TryLaterError, "busy"),
        (409, "ConditionalRequestConflict", TryLaterError, "another request for it is in progress"),
        (412, "PreconditionFailed", TryLaterError, "deleted a moment ago"),
        (413, "EntityTooLarge", PermanentError, "413 EntityTooLarge"),
        (429, "TooManyRequests", TryLaterError, "busy"),
        (500, "InternalError", TryLaterError, "500 InternalError: said"),
        (501, "NotImplemented", PermanentError, "501 NotImplemented"),
        (503, "SlowDown", TryLaterError, "503 SlowDown: said"),
        (507, "XMinioStorageFull", TryLaterError, "the store is full"),
    ],
)
def test_answer_of_a_store_has_its_class_and_its_code(status, code, kind, words):
    error = convert_bucket_error(answered(status, code, "said"), WHAT, S3)
    assert type(error) is kind
    assert str(error).startswith(f"{WHAT}: ")
    assert words in str(error)
    assert "idden" not in str(error).replace("Forbidden", "")
    assert "HIDDEN" not in str(error)


@pytest.mark.parametrize("name", ["oauth2-token-request", "computemetadata", "latest/api/token", "sts.assumerole"])
def test_name_of_an_object_is_not_taken_for_a_credential_service(name):
    error = convert_bucket_error(answered(500, "InternalError", url=f"https://host/bucket/prefix/{name}"), WHAT, S3)
    assert "500 InternalError" in str(error)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/api/token",
        "http://169.254.170.2/v2/credentials",
        "http://127.0.0.1:1/latest/meta-data/iam",
        "https://sts.eu-1.amazonaws.com/?Action=AssumeRoleWithWebIdentity&WebIdentityToken=hidden",
    ],
)
def test_credential_service_that_gives_none_is_named_without_its_url(url):
    error = convert_bucket_error(answered(403, "", url=url), WHAT, S3)
    assert type(error) is TryLaterError
    assert "no credentials: none are set, and the identity service gave none (it answered 403)" in str(error)
    assert "hidden" not in str(error)


def test_message_of_one_file_of_many_has_its_code():
    text = (
        "Generic S3 error: DeleteObjects request failed for key a: Access Denied. (code: AccessDenied)\n\nDebug source:"
    )
    assert type(convert_bucket_error(GenericError(text), WHAT, S3)) is ForbiddenError
    busy = GenericError(text.replace("AccessDenied", "SlowDown"))
    assert type(convert_bucket_error(busy, WHAT, S3)) is TryLaterError


def test_unknown_error_is_permanent_and_has_no_text_of_its_own():
    error = convert_bucket_error(GenericError("Generic S3 error: hidden"), WHAT, S3)
    assert type(error) is PermanentError
    assert "hidden" not in str(error)


@pytest.mark.parametrize(
    ("status", "code", "outage"),
    [
        (
            403,
            "RequestTimeTooSkewed",
            "the clocks of this machine and of the store differ (403 RequestTimeTooSkewed); set",
        ),
        (408, "", ""),
        (409, "ConditionalRequestConflict", ""),
        (412, "PreconditionFailed", ""),
        (429, "TooManyRequests", "the store is busy (429 TooManyRequests)"),
        (500, "InternalError", ""),
        (503, "SlowDown", "the store answered 503 SlowDown"),
        (507, "XMinioStorageFull", "the store is full (507 XMinioStorageFull); free space"),
    ],
)
def test_outage_of_a_store_is_told_apart_from_an_error_about_one_key(status, code, outage):
    error = convert_bucket_error(answered(status, code, "about prefix/key"), WHAT, S3)
    assert isinstance(error, TryLaterError)
    assert error.outage.startswith(outage)
    assert bool(error.outage) == bool(outage)
    assert "key" not in error.outage


def test_store_that_does_not_answer_is_an_outage_without_a_key():
    error = convert_bucket_error(GenericError("error sending request: ConnectionRefused"), WHAT, S3)
    assert isinstance(error, TryLaterError)
    assert error.outage == "no answer of the s3 service: the connection was refused"


def test_answer_that_looks_like_an_identity_service_is_the_answer_of_the_store():
    error = convert_bucket_error(answered(400, "Odd", "see http://169.254.169.254/latest/api/token"), WHAT, S3)
    assert "400 Odd" in str(error)
    assert "credentials" not in str(error)


def test_long_answer_is_looked_at_only_at_its_beginning():
    """A search of all of it for each URL in it would take minutes."""
    text = "Generic S3 error: Error performing PUT https://x/y - Server returned non-2xx status code: 400 Odd: "
    long = text + "://" * ERROR_CHARACTERS_MAX + "<Code>Late</Code>"
    assert "the store answered 400;" in str(convert_bucket_error(GenericError(long), WHAT, S3))
