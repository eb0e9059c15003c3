"""Open an archive of a policy: a folder, or a bucket with the credentials of the environment."""

from __future__ import annotations  # obstore has the types of its dictionaries for type checkers only

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from shared.adapters.archive.archive import FileStore, StoreArchive
from shared.adapters.archive.bucket import AnyBucket, BucketStore
from shared.adapters.archive.folder import FolderStore
from shared.adapters.config.settings import read_signing_keys
from shared.core.archive.destination import AZ, FILE, GS, MEMORY, S3, Destination, parse_destination
from shared.errors import PermanentError
from shared.usecases.archives.byte_gate import ByteGate

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, RetryConfig, S3Config

CONNECT_SECONDS = 5.0
"""How long a connection to a store may take."""

REQUEST_SECONDS = 20.0
"""How long one request to a store may take, with its body."""

_RETRIES_MAX = 2  # of a request that failed or was refused with 5xx; the timers do the longer retries
_RETRIES_SECONDS = 15.0


def open_archive(
    name: str,
    url: str,
    encryption: Mapping[str, str] | None = None,
    *,
    reads: ByteGate | None = None,
    for_tests: bool = False,
) -> StoreArchive:
    """Open an archive; neither a request is sent nor a folder made before its first use.

    The credentials of its store and the keys that sign its documents come from the environment.

    Args:
        name: The name of the archive in the policy; it is a part of every error.
        url: `file:///PATH`, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`, with options.
        encryption: `sse` (`AES256`, `aws:kms` or `aws:kms:dsse`) and `kmsKeyId`, for S3 only.
        reads: Bounds the bytes of documents in memory; by default the archive has its own gate.
        for_tests: Whether `memory:` is allowed: documents that end with the process.

    Raises:
        PermanentError: The URL or the encryption is invalid.
        SettingsError: A key is invalid.
    """
    keys = read_signing_keys()
    if for_tests and url == f"{MEMORY}:":
        return StoreArchive(name, BucketStore(name, Destination(MEMORY, "tests", ""), MemoryStore()), reads, keys)
    try:
        return StoreArchive(name, _open_store(name, parse_destination(url), encryption or {}), reads, keys)
    except (ValueError, BaseError) as error:
        problem = str(error).partition("\n")[0]
        raise PermanentError(f"archive {name}: {problem}; correct the archive in the policy") from None


def _open_store(name: str, destination: Destination, encryption: Mapping[str, str]) -> FileStore:
    """Open a folder or a bucket.

    Raises:
        ValueError: An option or the encryption is invalid.
        BaseError: A variable of the environment is missing or invalid.
    """
    if encryption and destination.scheme != S3:
        where = destination.location()
        raise ValueError(f"encryption: expected an s3 URL beside it; set the encryption of {where} in its store")
    if destination.scheme == FILE:
        return FolderStore(name, destination)
    return BucketStore(name, destination, _open_bucket(destination, _encryption(encryption)))


def _open_bucket(destination: Destination, encryption: S3Config) -> AnyBucket:
    bucket, options, prefix = destination.bucket, destination.options, destination.path or None
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "timeout": timedelta(seconds=REQUEST_SECONDS),
    }
    if options.get("endpoint", "").startswith("http://"):
        client["allow_http"] = True
    retry: RetryConfig = {"max_retries": _RETRIES_MAX, "retry_timeout": timedelta(seconds=_RETRIES_SECONDS)}
    if destination.scheme == GS:
        gcs: GCSConfig = {"base_url": options["endpoint"]} if "endpoint" in options else {}
        return GCSStore(bucket, prefix=prefix, config=gcs, client_options=client, retry_config=retry)
    if destination.scheme == AZ:
        azure: AzureConfig = {}
        if "account" in options:
            azure["account_name"] = options["account"]
        if "endpoint" in options:
            azure["endpoint"] = options["endpoint"]
        return AzureStore(bucket, prefix=prefix, config=azure, client_options=client, retry_config=retry)
    s3: S3Config = {
        **encryption,
        "conditional_put": "etag",
        "virtual_hosted_style_request": options.get("addressing") == "virtual",
    }
    if "endpoint" in options:
        s3["endpoint"] = options["endpoint"]
    if "region" in options:
        s3["region"] = options["region"]
    return S3Store(bucket, prefix=prefix, config=s3, client_options=client, retry_config=retry)


def _encryption(encryption: Mapping[str, str]) -> S3Config:
    """Raise ValueError if the encryption is not one of S3."""
    if not encryption:
        return {}
    if not {"sse"} <= encryption.keys() <= {"sse", "kmsKeyId"}:
        raise ValueError(f"encryption: expected sse, and kmsKeyId for aws:kms, got {', '.join(encryption)}")
    if encryption["sse"] not in ("AES256", "aws:kms", "aws:kms:dsse"):
        raise ValueError(f"encryption: sse: expected AES256, aws:kms or aws:kms:dsse, got {encryption['sse']!r}")
    found: S3Config = {"server_side_encryption": encryption["sse"]}
    if "kmsKeyId" in encryption:
        found["sse_kms_key_id"] = encryption["kmsKeyId"]
    return found
