"""Read the archives of a policy, and the `archive` of its rules.

    archives:
      main:                                    # the name by which rules and annotations refer to it
        url: s3://bucket/prefix?endpoint=https://s3.example.com&region=eu-1   # or file:///PATH, gs://…, az://…
        keep: 90d                              # how long documents are kept; without it, for ever
        secrets: false                         # whether the data of Secrets is stored
        encryption: {sse: aws:kms, kmsKeyId: KEY}   # server-side encryption; for s3 only
      elsewhere: {webhook: "https://archiver.example.com"}   # a foreign archiver
      tekton: {native: tekton-results}         # Tekton Results' own annotations are the acknowledgement

    archive: {to: main, grace: 24h, logs: false, children: true}   # in a rule

Credentials are never a part of a policy: a process reads them from its environment.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from shared.core.archive.destination import parse_destination, shown_url
from shared.core.kinds.predicates import RuleModel
from shared.core.kinds.rule import KindRule
from shared.core.policy.matching import DURATION_SCHEMA, Duration
from shared.core.values.objects import quote
from shared.core.values.timing import format_duration

NATIVE_GROUP = "tekton.dev"
"""The API group of the kinds that Tekton Results archives."""


def _check_name(name: str) -> str:
    if name in ("true", "false"):
        raise ValueError(f"expected another name than true and false, which an annotation may have, got {name!r}")
    return name


ArchiveName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"), AfterValidator(_check_name)
]
"""The name of an archive: the characters of a namespace's name, and neither `true` nor `false`."""


def _check_url(text: str) -> str:
    try:
        parse_destination(text)
    except ValueError as error:
        said = str(error)
        raise ValueError(said if ", got " in said else f"{said}, got {shown_url(text)}") from None
    return text


def _check_webhook(text: str) -> str:
    expected = "expected an https:// or http:// URL"
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        raise ValueError(f"{expected}, got {shown_url(text)}") from None
    if "@" in url.netloc:
        raise ValueError(f"expected a URL without credentials: a webhook gets none, got {shown_url(text)}")
    is_plain = text.isprintable() and " " not in text and not url.fragment
    if url.scheme not in ("https", "http") or not url.hostname or not is_plain:
        raise ValueError(f"{expected}, got {shown_url(text)}")
    return text


def _check_keep(keep: timedelta) -> timedelta:
    if not keep:
        raise ValueError("expected a duration of more than 0, got 0: nothing would be archived")
    return keep


class ArchiveEncryption(RuleModel):
    """How a store encrypts the documents itself."""

    sse: Literal["AES256", "aws:kms", "aws:kms:dsse"] = Field(description="The server-side encryption of the store.")
    kms_key_id: Annotated[str, StringConstraints(min_length=1, max_length=2_048)] | None = Field(
        default=None, description="The key. Needs aws:kms or aws:kms:dsse. The default is the key of the bucket."
    )

    @model_validator(mode="after")
    def _has_a_key_for_kms(self) -> Self:
        if self.kms_key_id is not None and self.sse == "AES256":
            raise ValueError("kmsKeyId: expected sse: aws:kms or aws:kms:dsse beside it")
        return self


class ArchiveDestination(RuleModel):
    """Where objects are archived; exactly one of url, webhook and native."""

    url: Annotated[str, AfterValidator(_check_url)] | None = Field(
        default=None,
        description="A folder or a bucket: file:///PATH, s3://BUCKET/PREFIX?endpoint=URL&region=NAME, "
        "gs://BUCKET/PREFIX, or az://CONTAINER/PREFIX?account=NAME. Credentials come from the environment.",
    )
    webhook: Annotated[str, AfterValidator(_check_webhook)] | None = Field(
        default=None,
        description="The URL of a foreign archiver. It receives the CloudEvent archive.request, and answers with "
        "archive.done.",
    )
    native: Literal["tekton-results"] | None = Field(
        default=None,
        description="An archiver that marks the objects itself. With tekton-results, the annotations of Tekton "
        "Results are the acknowledgement.",
    )
    keep: Annotated[Duration, AfterValidator(_check_keep), WithJsonSchema(DURATION_SCHEMA)] | None = Field(
        default=None,
        description="How long documents are kept, counted from their storage. Needs url. Without it, for ever.",
    )
    secrets: bool = Field(
        default=False, strict=True, description="Whether the data of Secrets is archived. Needs url or webhook."
    )
    encryption: ArchiveEncryption | None = Field(
        default=None, description="The server-side encryption of the documents. Needs an s3 url."
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        given = [name for name in ("url", "webhook", "native") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected exactly one of url, webhook and native, got {' and '.join(given) or 'none'}")
        if self.keep is not None and self.url is None:
            raise ValueError("keep: expected a url beside it; a foreign archiver has a retention of its own")
        if self.encryption is not None and not (self.url or "").startswith("s3:"):
            raise ValueError("encryption: expected an s3 url beside it")
        if self.secrets and self.native is not None:
            raise ValueError("secrets: expected a url or a webhook beside it")
        return self


class RuleArchive(RuleModel):
    """The `archive` of a rule: the objects that it matches are archived before they are deleted."""

    to: ArchiveName = Field(description="The name of an archive of the policy.")
    grace: Duration = Field(
        default=timedelta(0),
        description="The time from the acknowledgement of the archive to the deletion. If the TTL ends later, the "
        "TTL counts.",
    )
    logs: bool = Field(default=False, strict=True, description="Whether the logs of Pods are archived as well.")
    children: bool = Field(
        default=True,
        strict=True,
        description="Whether the objects that the object owns are archived with it: those of the kinds that its "
        "kind rule names in children.",
    )


def find_archive_problems(
    rules: Sequence[tuple[RuleArchive | None, Sequence[KindRule]]], archives: Mapping[str, ArchiveDestination]
) -> list[InitErrorDetails]:
    """The rules whose `archive` does not fit the archives of the policy.

    Args:
        rules: The `archive` of each rule of the policy, in order, with the kinds that the rule matches.
        archives: The archives of the policy.
    """
    problems = []
    for index, (archive, kinds) in enumerate(rules):
        if archive is None:
            continue
        field, value, problem = _check_archive(archive, kinds, archives)
        if problem:
            error = PydanticCustomError("archive", "{problem}", {"problem": problem})
            problems.append(InitErrorDetails(type=error, loc=("rules", index, "archive", field), input=value))
    return problems


def _check_archive(
    archive: RuleArchive, kinds: Sequence[KindRule], archives: Mapping[str, ArchiveDestination]
) -> tuple[str, str, str]:
    """The field, its value, and what is wrong with it; the last is empty if nothing is."""
    target, grace = archives.get(archive.to), format_duration(archive.grace)
    if target is None:
        known = f"one of the archives {', '.join(archives)}" if archives else "an archive, and `archives` has none"
        return "to", archive.to, f"expected {known}, got {quote(archive.to)}"
    if target.keep is not None and archive.grace >= target.keep:
        kept = format_duration(target.keep)
        return "grace", grace, f"expected less than keep of the archive {archive.to}, which is {kept}, got {grace}"
    foreign = [kind.name for kind in kinds if kind.group != NATIVE_GROUP] if target.native else []
    if foreign:
        problem = (
            f"expected only kinds of tekton.dev, which Tekton Results archives, got a rule that matches {foreign[0]}"
        )
        return "to", archive.to, problem
    if not target.secrets and any(kind.name == "secrets" for kind in kinds):
        problem = f"expected an archive with secrets: true beside unused of Secrets, got {quote(archive.to)}"
        return "to", archive.to, problem
    return "", "", ""
