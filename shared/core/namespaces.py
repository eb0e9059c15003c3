"""What a Namespace says of the objects in it: defaults, a maximum, an exemption."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from shared.core.kinds.rule import KindRule, Outcome
from shared.core.objects import ANNOTATION_DOMAIN, ObjectRef, get_annotations, get_in, quote, ref_of
from shared.core.ttl.durations import parse_duration
from shared.core.ttl.ttl import InvalidTtlError, Ttl, read_duration

NAMESPACES = KindRule(
    api_versions=("v1",),
    kind="Namespace",
    plural="namespaces",
    scope="Cluster",
    never_finishes="it is where objects live",
)
"""How Namespaces are read; they never finish."""

TEXT_MAX = 16_384
"""Characters of the labels, and of the annotations, that are kept of one Namespace."""

DEFAULTS = {"default-ttl": None, "default-ttl-succeeded": Outcome.SUCCEEDED, "default-ttl-failed": Outcome.FAILED}
"""Annotations that give a default, and the outcome that each is for; None for any."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A Namespace as decisions need it.

    Attributes:
        ref: Its identity; nameless for objects that have no namespace.
        labels: Its labels.
        annotations: All its annotations; only ours where they have more than `TEXT_MAX` characters.
        is_cut: Whether that is so: what the others say is unknown.
        defaults: The TTL of objects of which nothing else speaks, by outcome; None for those without one of its own.
        max_ttl: The longest that a finished object may stay; None for no limit.
        is_exempt: Whether everything in it stays.
        problem: Which of our annotations cannot be read, and what was expected; empty where all can.
    """

    ref: ObjectRef
    labels: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    is_cut: bool = field(default=False, kw_only=True)
    defaults: Mapping[Outcome | None, Ttl] = field(default_factory=dict)
    max_ttl: timedelta | None = None
    is_exempt: bool = False
    problem: str = ""

    @property
    def characters(self) -> int:
        """Of its labels and annotations: what it takes in memory beside a few hundred bytes."""
        return _characters(self.labels) + _characters(self.annotations)

    def default_for(self, outcome: Outcome | None) -> Ttl | None:
        """The outcome's own default before the general one."""
        return self.defaults.get(outcome) or self.defaults.get(None)


CLUSTER_SCOPED = Namespace(ObjectRef("v1", "Namespace", "", "", ""))
"""In place of a namespace, for objects of a kind that has none."""


def plain_namespace(name: str) -> Namespace:
    """A namespace of which nothing is known to be said."""
    return Namespace(ObjectRef("v1", "Namespace", "", name, ""))


def namespace_of(obj: Any) -> Namespace:
    """What a Namespace says. Total: what cannot be read is a problem, which keeps all objects in it."""
    ref = ref_of(obj)
    labels, annotations = (_mapping(get_in(obj, f"metadata.{part}")) for part in ("labels", "annotations"))
    said = get_annotations(obj)
    ours = {name: value for name, value in annotations.items() if name.startswith(f"{ANNOTATION_DOMAIN}/")}
    for what, texts in (("labels", labels), (f"annotations {ANNOTATION_DOMAIN}/*", ours)):
        if (count := _characters(texts)) > TEXT_MAX:
            expected = f"expected at most {TEXT_MAX} characters, got {count}"
            return Namespace(ref, problem=f"namespace {ref.name}: {what}: {expected}")
    is_cut = _characters(annotations) > TEXT_MAX
    kept = ours if is_cut else annotations
    try:
        return Namespace(ref, labels, kept, _defaults(said), _max_ttl(said), _is_exempt(said), is_cut=is_cut)
    except InvalidTtlError as error:
        return Namespace(ref, labels, kept, problem=f"namespace {ref.name}: {error}", is_cut=is_cut)


def _characters(texts: Mapping[str, Any]) -> int:
    """What is no text is none of a real API server's."""
    return sum(len(name) + (len(value) if isinstance(value, str) else 0) for name, value in texts.items())


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _defaults(said: Mapping[str, Any]) -> Mapping[Outcome | None, Ttl]:
    return {
        outcome: read_duration(name, said[name], origin="namespace")
        for name, outcome in DEFAULTS.items()
        if name in said
    }


def _max_ttl(said: Mapping[str, Any]) -> timedelta | None:
    if "max-ttl" not in said:
        return None
    source, value = f"annotation {ANNOTATION_DOMAIN}/max-ttl", said["max-ttl"]
    if not isinstance(value, str):
        raise InvalidTtlError(f"{source}: expected text, got {quote(value)}")
    try:
        return parse_duration(value)
    except ValueError as error:
        raise InvalidTtlError(f"{source}: {error}") from None


def _is_exempt(said: Mapping[str, Any]) -> bool:
    value = said.get("exempt", "false")
    if value not in ("true", "false"):
        raise InvalidTtlError(f'annotation {ANNOTATION_DOMAIN}/exempt: expected "true" or "false", got {quote(value)}')
    return bool(value == "true")
