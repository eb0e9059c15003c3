"""The policy file: read at start and reread when its content changes. An invalid file keeps the last valid policy.

A mounted ConfigMap is replaced as a whole behind a symbolic link. So a change is detected by content, not by its time.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import NullableSchema, WithDefaultSchema

from shared.adapters.config.yaml_file import FileError, parse_model, read_text
from shared.core.kinds.rule import Catalogue
from shared.core.policy.matching import Grouping
from shared.core.policy.policy import Policy
from shared.core.values.timing import format_duration

POLICY_POLL_SECONDS = 1.0
"""Minimum time between two reads of the file, however often the policy is requested."""

DIGEST_DIGITS = 12
"""Digits of a policy's SHA-256 that are kept: enough to distinguish policies, and to compare with `sha256sum`."""

_log = logging.getLogger("ttl")


def read_policy(path: Path, kinds: Catalogue) -> Policy:
    """Read a policy file.

    Raises:
        FileError: The file cannot be read, is not a valid policy, or names an unknown kind.
    """
    return parse_policy(read_text(path), kinds, name=path.name)


def parse_policy(text: str, kinds: Catalogue, *, name: str) -> Policy:
    """Parse the text of a policy; `name` is the file name in errors.

    Raises:
        FileError: The text is not a valid policy, or names an unknown kind.
    """
    policy = parse_model(text, Policy, name=name, refine=lambda policy: policy.of_kinds(kinds))
    return policy.with_digest(hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS])


class PolicyFile:
    """The policy in force: the last valid content of the file.

    Args:
        path: The file.
        kinds: All known kinds.
        report: Called once with the error of each invalid content.
        clock: A monotonic clock, in seconds.

    Attributes:
        problem: The error of the file's present content; empty if that content is in force.

    Raises:
        FileError: The file is invalid at start: an unreadable policy must not remove the protection it sets.
    """

    def __init__(
        self,
        path: Path,
        kinds: Catalogue,
        report: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._kinds, self._report, self._clock = path, kinds, report, clock
        self._seen = read_text(path)
        self._policy = parse_policy(self._seen, kinds, name=path.name)
        self._read_at = clock()
        self.problem = ""

    def policy(self) -> Policy:
        """Return the policy in force; reread the file if the last read is older than `POLICY_POLL_SECONDS`."""
        if self._clock() - self._read_at >= POLICY_POLL_SECONDS:
            self._reread()
        return self._policy

    @property
    def is_good(self) -> bool:
        """Whether the content at the last read is the policy in force."""
        return not self.problem

    def _reread(self) -> None:
        self._read_at = self._clock()
        try:
            text = read_text(self._path)
            if text == self._seen:
                return
            self._seen = text
            self._policy = parse_policy(text, self._kinds, name=self._path.name)
        except FileError as error:
            if str(error) == self.problem:  # already reported: an unreadable file is read again each time
                return
            self.problem = str(error)
            self._report(self.problem)
            return
        self.problem = ""
        _log.info("policy loaded", extra={"fields": {"file": str(self._path), "rules": len(self._policy.rules)}})


class _Schema(GenerateJsonSchema):
    """Without null and empty values, which are rejected, and with each default as a file has it."""

    def nullable_schema(self, schema: NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        inner, written = self.generate_inner(schema["schema"]), _as_written(schema.get("default"))
        return inner if written is None else {**inner, "default": written}


def _as_written(default: object) -> str | int | None:
    """A default as a file has it; None for one that is only left out."""
    if isinstance(default, timedelta):
        return format_duration(default)
    if isinstance(default, Grouping):
        return default.by
    return default if isinstance(default, str | int) else None


def schema() -> str:
    """Return the JSON Schema of a policy file, for editors."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Policy.model_json_schema(schema_generator=_Schema),
        "title": "Policy of ttl-after-finished",
        "description": "When the finished objects of a cluster are deleted, and how fast.",
    }
    return json.dumps(document, indent=2) + "\n"
