"""The policy on disk: read at the start, and again whenever what it says changes; a bad one changes nothing.

A ConfigMap that is mounted is swapped as a whole behind a link, so what counts is the content, not when it was written.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import NullableSchema, WithDefaultSchema

from shared.adapters.config.yaml_file import FileError, parse_model
from shared.core.kinds.catalogue import Catalogue
from shared.core.policy.policy import Policy

LOOK_SECONDS = 1.0
"""Between two looks at the file, however often it is asked for."""

DIGEST_DIGITS = 12
"""Of a policy's SHA-256: enough to tell policies apart, and to compare with `sha256sum`."""

_log = logging.getLogger("ttl")


def read_policy(path: Path, kinds: Catalogue) -> Policy:
    """A policy file.

    Raises:
        FileError: It cannot be read, or is not what a policy should be, or names a kind that is not known.
    """
    return parse_policy(_read(path), kinds, name=path.name)


def parse_policy(text: str, kinds: Catalogue, *, name: str) -> Policy:
    """A policy's text; `name` is what errors call it.

    Raises:
        FileError: As above.
    """
    policy = parse_model(text, Policy, name=name, refine=lambda policy: policy.of_kinds(kinds))
    return policy.with_digest(hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS])


class PolicyFile:
    """The policy in force: the last good one that the file held.

    Args:
        path: The file.
        kinds: All that are known.
        report: Told what is wrong with a bad one, once.
        clock: Seconds that only grow.

    Attributes:
        problem: What is wrong with what the file holds now; empty where that is in force.

    Raises:
        FileError: It is bad at the start: what a policy guards must not go because it could not be read.
    """

    def __init__(
        self, path: Path, kinds: Catalogue, report: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._kinds, self._report, self._clock = path, kinds, report, clock
        self._seen = _read(path)
        self._policy = parse_policy(self._seen, kinds, name=path.name)
        self._looked_at = clock()
        self.problem = ""

    def policy(self) -> Policy:
        """The policy in force; looks at the file if the last look was a while ago."""
        if self._clock() - self._looked_at >= LOOK_SECONDS:
            self._look()
        return self._policy

    @property
    def is_good(self) -> bool:
        """Whether what the file held at the last look is what is in force."""
        return not self.problem

    def _look(self) -> None:
        self._looked_at = self._clock()
        try:
            text = _read(self._path)
            if text == self._seen:
                return
            self._seen = text
            self._policy = parse_policy(text, self._kinds, name=self._path.name)
        except FileError as error:
            if str(error) == self.problem:  # a file that cannot be read is looked for again
                return
            self.problem = str(error)
            self._report(self.problem)
            return
        self.problem = ""
        _log.info("policy loaded", extra={"fields": {"file": str(self._path), "rules": len(self._policy.rules)}})


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path.name}: expected a text file: {error}") from None


class _Schema(GenerateJsonSchema):
    """Without null, and without what is empty: who says nothing leaves the field out."""

    def nullable_schema(self, schema: NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        says_nothing = schema.get("default", ...) in (None, ())
        return self.generate_inner(schema["schema"]) if says_nothing else super().default_schema(schema)


def schema() -> str:
    """The JSON Schema of a policy file, for editors."""
    told = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Policy.model_json_schema(schema_generator=_Schema),
        "title": "Policy of ttl-after-finished",
        "description": "What should happen to the finished objects of a fleet.",
    }
    return json.dumps(told, indent=2) + "\n"
