"""Decide which documents an archive no longer keeps, and whether a round may delete them.

A round deletes nothing if it would delete too much: a wrong clock or a wrong `keep` then costs a message, and not the
archive.

Instead, a bucket can delete the documents itself, by a lifecycle rule.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from xml.sax.saxutils import escape

from shared.core.archive.destination import AZ, GS, S3, Destination
from shared.core.archive.layout import LAYOUT

PRUNE_SHARE_MAX = 0.5
"""The largest share of the stored files that one round deletes, unless an operator asks for all of them."""


@dataclass(frozen=True, slots=True)
class PruneCount:
    """What a round has found, before it deletes.

    Attributes:
        expired: The files that are older than `keep`.
        expired_bytes: Their bytes in the store.
        kept: The files that are not; at least as many as were counted.
    """

    expired: int = 0
    expired_bytes: int = 0
    kept: int = 0

    def kept_needed(self) -> int:
        """How many kept files prove that the share of the expired ones is not too large."""
        return math.ceil(self.expired * (1 - PRUNE_SHARE_MAX) / PRUNE_SHARE_MAX)


def is_expired(stored_at: datetime, keep: timedelta, now: datetime) -> bool:
    """Whether a file was stored longer ago than it is kept."""
    return stored_at + keep <= now


def select_days(days: Iterable[str], keep: timedelta, now: datetime) -> tuple[list[str], list[str]]:
    """Divide the days of keys into those that may have expired files, and those that have none.

    The day of a key is that of the finish. An object is stored after it has finished, so a file of a later day than the
    last one that expired was stored later as well. A day after now is a wrong finish time, which a user may write: its
    files may be of any age. `is_expired` decides about each file by the time at which it was stored.

    Raises:
        ValueError: A day is not a date.
    """
    last, today = (now - keep).date(), now.date()
    old, new = list[str](), list[str]()
    for day in days:
        (new if last < date.fromisoformat(day) <= today else old).append(day)
    return old, new


def find_prune_refusal(count: PruneCount, *, everything: bool) -> str:
    """Return why a round deletes nothing; empty if it may delete what has expired.

    Args:
        count: What the round has found.
        everything: Whether an operator has asked to delete all that has expired, however much it is.
    """
    if not count.expired or everything:
        return ""
    if not count.kept:
        return f"all {count.expired} files have expired; check keep and the clock, or set --all to delete all of them"
    if count.kept < count.kept_needed():
        total = count.expired + count.kept
        return (
            f"{count.expired} of {total} files have expired, which is more than {PRUNE_SHARE_MAX:.0%}; check keep and "
            "the clock, or set --all to delete them"
        )
    return ""


LIFECYCLE_RULE = "ttl-after-finished-archive"
"""The name of the rule."""

UNFINISHED_DAYS = 7
"""After how many days a bucket deletes the parts of uploads that were not completed."""


def lifecycle_rule(destination: Destination, keep: timedelta, form: str = "json") -> str:
    """Return the lifecycle configuration of a bucket, as its own tools read it.

    Args:
        destination: The destination of the archive.
        keep: How long documents are kept. Buckets count whole days, so it is rounded up.
        form: `json`, or `xml` for the REST API of S3.

    Raises:
        ValueError: A folder has no lifecycle rules, or the bucket does not read this form.
    """
    days = max(1, math.ceil(keep / timedelta(days=1)))
    prefix = "/".join(part for part in (destination.path, LAYOUT) if part) + "/"
    if destination.scheme == S3 and form == "xml":
        return _s3_xml(prefix, days)
    if form != "json":
        raise ValueError(f"expected json{', or xml' if destination.scheme == S3 else ''}, got {form!r}")
    if destination.scheme == S3:
        return _as_json(_s3(prefix, days))
    if destination.scheme == GS:
        return _as_json(_gcs(prefix, days))
    if destination.scheme == AZ:
        return _as_json(_azure(f"{destination.bucket}/{prefix}", days))
    raise ValueError("a folder has no lifecycle rules: run `archive prune` regularly")


def lifecycle_command(destination: Destination, file: str) -> str:
    """Return the command that applies a lifecycle configuration; it replaces all rules of `lifecycle_scope`.

    Raises:
        ValueError: A folder has no lifecycle rules.
    """
    bucket, account = destination.bucket, destination.options.get("account", "ACCOUNT")
    if destination.scheme == S3:
        endpoint = f" --endpoint-url {destination.options['endpoint']}" if "endpoint" in destination.options else ""
        return (
            f"aws s3api put-bucket-lifecycle-configuration --bucket {bucket}{endpoint} "
            f"--lifecycle-configuration file://{file}"
        )
    if destination.scheme == GS:
        return f"gcloud storage buckets update gs://{bucket} --lifecycle-file={file}"
    if destination.scheme == AZ:
        return (
            f"az storage account management-policy create --account-name {account} --resource-group GROUP "
            f"--policy @{file}"
        )
    raise ValueError("a folder has no lifecycle rules: run `archive prune` regularly")


def lifecycle_scope(destination: Destination) -> str:
    """Name what has one lifecycle configuration: a bucket, and in Azure a storage account with all its containers."""
    if destination.scheme != AZ:
        return f"bucket {destination.bucket}"
    account = destination.options.get("account")
    return f"{f'storage account {account}' if account else 'the storage account'}, for all its containers"


def _as_json(configuration: Mapping[str, object]) -> str:
    return json.dumps(configuration, indent=2) + "\n"


def _s3(prefix: str, days: int) -> Mapping[str, object]:
    rule = {
        "ID": LIFECYCLE_RULE,
        "Status": "Enabled",
        "Filter": {"Prefix": prefix},
        "Expiration": {"Days": days},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 1},  # of a bucket with versions; else it has no effect
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": UNFINISHED_DAYS},
    }
    return {"Rules": [rule]}


def _s3_xml(prefix: str, days: int) -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">\n'
        "  <Rule>\n"
        f"    <ID>{LIFECYCLE_RULE}</ID>\n"
        f"    <Filter><Prefix>{escape(prefix)}</Prefix></Filter>\n"
        "    <Status>Enabled</Status>\n"
        f"    <Expiration><Days>{days}</Days></Expiration>\n"
        "    <NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>\n"
        "    <AbortIncompleteMultipartUpload>\n"
        f"      <DaysAfterInitiation>{UNFINISHED_DAYS}</DaysAfterInitiation>\n"
        "    </AbortIncompleteMultipartUpload>\n"
        "  </Rule>\n"
        "</LifecycleConfiguration>\n"
    )


def _gcs(prefix: str, days: int) -> Mapping[str, object]:
    matching = {"matchesPrefix": [prefix]}
    return {
        "rule": [
            {"action": {"type": "Delete"}, "condition": {"age": days, **matching}},
            {"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": UNFINISHED_DAYS, **matching}},
        ]
    }


def _azure(prefix: str, days: int) -> Mapping[str, object]:
    definition = {
        "filters": {"blobTypes": ["blockBlob"], "prefixMatch": [prefix]},
        "actions": {"baseBlob": {"delete": {"daysAfterCreationGreaterThan": days}}},
    }
    return {"rules": [{"enabled": True, "name": LIFECYCLE_RULE, "type": "Lifecycle", "definition": definition}]}
