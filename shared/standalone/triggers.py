"""Read Knative Triggers: the local runner routes events by the same manifests that a cluster applies.

The checks are as strict as those of Knative's webhook, and reject unknown fields too: a typo must not change a route
unnoticed. An error names the file, the Trigger and the field.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from shared.adapters.config.yaml_file import describe_error
from shared.core.values.objects import quote
from shared.errors import TtlError

DIALECTS = ("exact", "prefix", "suffix", "all", "any", "not")

_AttributeName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*$")]
_Text = Annotated[str, StringConstraints(min_length=1)]
_Pairs = Annotated[dict[_AttributeName, _Text], Field(min_length=1)]

_TRIGGER = ("eventing.knative.dev/v1", "Trigger")


def _iso_8601(value: Any) -> Any:
    """Accept only an ISO 8601 text: pydantic would also accept plain seconds, which Knative's webhook rejects."""
    if not isinstance(value, str) or not value.startswith("P"):
        raise ValueError("expected an ISO 8601 duration such as PT0.2S")
    return value


_Duration = Annotated[timedelta, BeforeValidator(_iso_8601), Field(ge=timedelta())]


class _Spec(BaseModel):
    """The base of the models: frozen, camelCase in YAML, unknown fields rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Filter(_Spec):
    """One element of `spec.filters`: one dialect, which may contain other filters.

    Attributes:
        exact: The attributes and their exact values.
        prefix: The attributes and the prefixes of their values.
        suffix: The attributes and the suffixes of their values.
        all_of: Filters that must all match.
        any_of: Filters of which one must match.
        negated: A filter that must not match.
        cesql: Never set; the field exists so that the error can name it.
    """

    exact: _Pairs | None = None
    prefix: _Pairs | None = None
    suffix: _Pairs | None = None
    all_of: tuple["Filter", ...] | None = Field(None, alias="all", min_length=1)
    any_of: tuple["Filter", ...] | None = Field(None, alias="any", min_length=1)
    negated: "Filter | None" = Field(None, alias="not")
    cesql: None = None

    @field_validator("cesql", mode="before")
    @classmethod
    def _no_cesql(cls, _: Any) -> None:
        raise ValueError(f"expected one of the dialects {', '.join(DIALECTS)}: no SQL is evaluated outside a cluster")

    @model_validator(mode="after")
    def _one_dialect(self) -> Self:
        if sum(getattr(self, name) is not None for name in self.model_fields_set) != 1:
            raise ValueError(f"expected exactly one dialect of {', '.join(DIALECTS)}")
        return self

    def holds(self, attributes: Mapping[str, str]) -> bool:
        """Return whether the filter matches an event with these context attributes."""
        if self.exact is not None:
            return self.exact.items() <= attributes.items()  # every event asks every Trigger
        if self.prefix is not None:
            return all(attributes.get(name, "").startswith(value) for name, value in self.prefix.items())
        if self.suffix is not None:
            return all(attributes.get(name, "").endswith(value) for name, value in self.suffix.items())
        if self.any_of is not None:
            return any(part.holds(attributes) for part in self.any_of)
        if self.negated is not None:
            return not self.negated.holds(attributes)
        return all(part.holds(attributes) for part in self.all_of or ())

    def may_hold(self, event_type: str) -> bool:
        """Return whether the filter can match an event of this type; True if its other attributes decide."""
        if self.exact is not None:
            return self.exact.get("type", event_type) == event_type
        if self.any_of is not None:
            return any(part.may_hold(event_type) for part in self.any_of)
        return all(part.may_hold(event_type) for part in self.all_of or ())


class Delivery(_Spec):
    """The retries of a Trigger.

    Attributes:
        retry: The number of attempts after the first.
        backoff_policy: How the pause grows; without it or without `backoff_delay`, the next attempt follows at once.
        backoff_delay: The base of the pause.
        timeout: The limit of each attempt; None for the default of 15 minutes.
        retry_after_max: The longest Retry-After that is respected; None for the default, zero to ignore the header.
        dead_letter_sink: The sink in a cluster; the local broker reports all dead letters through its `dead_letter`.
        format: The encoding of the event in a cluster; the local broker ignores it.
    """

    retry: int = Field(0, ge=0, strict=True)
    backoff_policy: Literal["exponential", "linear"] | None = None
    backoff_delay: _Duration | None = None
    timeout: Annotated[_Duration, Field(gt=timedelta())] | None = None
    retry_after_max: _Duration | None = None
    dead_letter_sink: dict[str, Any] | None = None
    format: Literal["json", "binary"] | None = None

    def pause_seconds(self, retries: int) -> float:
        """Return the pause before the next attempt.

        Args:
            retries: The number of retries so far; so the first linear pause is 0, as with Knative.
        """
        if self.backoff_policy is None or self.backoff_delay is None:
            return 0.0
        factor = 2.0**retries if self.backoff_policy == "exponential" else retries
        return self.backoff_delay.total_seconds() * factor


# The delivery of Knative's config-br-defaults, for a Trigger without `spec.delivery`.
_BROKER_DELIVERY = Delivery.model_validate({"retry": 10, "backoffPolicy": "exponential", "backoffDelay": "PT0.2S"})


class _AttributesFilter(_Spec):
    attributes: dict[_AttributeName, str] = Field(default_factory=dict)


class _ServiceRef(_Spec):
    api_version: Literal["serving.knative.dev/v1"]
    kind: Literal["Service"]
    name: _Text
    namespace: str = ""


class _Subscriber(_Spec):
    ref: _ServiceRef


class _TriggerSpec(_Spec):
    broker: _Text
    filter: _AttributesFilter | None = None
    filters: tuple[Filter, ...] = ()
    subscriber: _Subscriber
    delivery: Delivery | None = None


class _Metadata(BaseModel):
    name: _Text


class Trigger(BaseModel):
    """A Knative Trigger: which events go to which function, and with which retries."""

    model_config = ConfigDict(frozen=True)

    metadata: _Metadata
    spec: _TriggerSpec

    @property
    def name(self) -> str:
        """The name of the Trigger."""
        return self.metadata.name

    @property
    def subscriber(self) -> str:
        """The name of the Knative Service of the function."""
        return self.spec.subscriber.ref.name

    @property
    def delivery(self) -> Delivery:
        """The retries."""
        return self.spec.delivery or _BROKER_DELIVERY

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Return whether it matches an event with these context attributes; without a filter it matches every event.

        The older `spec.filter` has exact values, "" for any value; it is ignored if there are `filters`.
        """
        if self.spec.filters:
            return all(part.holds(attributes) for part in self.spec.filters)
        wanted = self.spec.filter.attributes if self.spec.filter else {}
        return all(name in attributes and value in ("", attributes[name]) for name, value in wanted.items())

    def may_match(self, event_type: str) -> bool:
        """Return whether it can match an event of this type; see `Filter.may_hold`."""
        return all(part.may_hold(event_type) for part in self.spec.filters)


class ManifestError(TtlError):
    """A Trigger manifest is invalid; the message names the file, the Trigger, the field and what was expected."""


def read_triggers(*paths: Path) -> tuple[Trigger, ...]:
    """Read all Triggers from files, and from the YAML files in folders, in the order of their paths.

    Documents of another kind are ignored. Do not pass a folder that contains kustomize patches: a patch is not a
    complete Trigger.

    Raises:
        ManifestError: A file cannot be read, a Trigger is invalid, or two Triggers have the same name.
    """
    found: dict[str, tuple[Trigger, Path]] = {}
    for path in (file for given in paths for file in _files(given)):
        for document in _documents(path):
            trigger = _trigger(document, path)
            if trigger.name in found:
                raise ManifestError(
                    f"{path}: Trigger {trigger.name}: metadata.name: expected a unique name, "
                    f"got that of a Trigger in {found[trigger.name][1]}"
                )
            found[trigger.name] = (trigger, path)
    return tuple(trigger for trigger, _ in found.values())


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix in {".yaml", ".yml"})


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the Triggers in a file."""
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ManifestError(f"{path}: expected a readable file, got {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: {describe_error(error)}") from None
    for document in documents:
        if isinstance(document, dict) and (document.get("apiVersion"), document.get("kind")) == _TRIGGER:
            yield document


def _trigger(document: dict[str, Any], path: Path) -> Trigger:
    try:
        return Trigger.model_validate(document)
    except ValidationError as error:
        metadata = document.get("metadata")
        name = metadata.get("name", "?") if isinstance(metadata, dict) else "?"
        raise ManifestError(f"{path}: Trigger {name}: {_first_problem(error)}") from None


def _first_problem(error: ValidationError) -> str:
    """`spec.filters[0].any[1]: expected exactly one dialect of ..., got {...}`."""
    first = error.errors(include_url=False, include_context=False)[0]
    field = ""
    for part in first["loc"]:
        if part != "[key]":
            field += f"[{part}]" if isinstance(part, int) else f".{part}"
    if first["type"] == "missing":
        return f"{field.lstrip('.')}: expected a value, got none"
    if first["type"] == "extra_forbidden":
        return f"{field.lstrip('.')}: unknown field; expected a field of Knative's Trigger"
    wanted = first["msg"].removeprefix("Value error, ").replace("Input should", "expected to")
    return f"{field.lstrip('.')}: {wanted}, got {quote(first['input'])}"
