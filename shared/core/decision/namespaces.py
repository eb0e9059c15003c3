"""Read the settings of a Namespace for the objects in it: default TTLs and deadlines, maxima, and an exemption."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from shared.core.deadlines.deadline import Deadline, InvalidDeadlineError, Stage, read_deadline
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.ttl.ttl import InvalidTtlError, Ttl, read_duration
from shared.core.values.objects import ANNOTATION_DOMAIN, ObjectRef, get_annotations, get_in, quote, ref_of
from shared.core.values.timing import parse_duration

NAMESPACES = KindRule(
    api_versions=("v1",),
    kind="Namespace",
    plural="namespaces",
    scope="Cluster",
    never_finishes="it contains objects",
)
"""The kind rule by which Namespaces are read; they never finish."""

TEXT_MAX = 16_384
"""The most characters of the labels, and of the annotations, that are kept of one Namespace."""

DEFAULTS = {"default-ttl": None, "default-ttl-succeeded": Outcome.SUCCEEDED, "default-ttl-failed": Outcome.FAILED}
"""The annotations that set a default TTL, with the outcome of each; None for any outcome."""


ARCHIVE = "archive"
"""The annotation that opts an object, or all objects of a namespace, in to an archive or out of it."""

UNUSED = "unused"
"""The annotation that allows, or forbids, the deletion of unused Secrets and ConfigMaps in a namespace."""

DEFAULT_DEADLINES = {Stage.ACTIVE: "default-active-deadline", Stage.PENDING: "default-pending-deadline"}
"""The annotations that set a default deadline, by the stage that it limits."""

MAX_DEADLINE = "max-active-deadline"


@dataclass(frozen=True, slots=True)
class Namespace:
    """The parts of a Namespace that decisions need.

    Attributes:
        ref: Its identity; without a name for cluster-scoped objects.
        labels: Its labels.
        annotations: All its annotations. If they have more than `TEXT_MAX` characters, only those of the domain
            `ttlafterfinished.dev`.
        is_cut: Whether the other annotations were dropped for that reason.
        defaults: The default TTLs, by outcome; the key None is for outcomes without their own default.
        max_ttl: The longest TTL of a finished object; None for no limit.
        default_deadlines: The deadlines of objects for which no other source sets one, by the stage that they limit.
        max_deadline: The longest active deadline; None for no limit.
        is_exempt: Whether all objects in it are kept.
        archive: The value of its annotation `archive`; None if it has none.
        unused: Whether its unused Secrets and ConfigMaps may be deleted; None if it has no such annotation.
        problem: The annotation that cannot be read, and what was expected; empty if all can be read.
    """

    ref: ObjectRef
    labels: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    is_cut: bool = field(default=False, kw_only=True)
    defaults: Mapping[Outcome | None, Ttl] = field(default_factory=dict)
    max_ttl: timedelta | None = None
    default_deadlines: Mapping[Stage, Deadline] = field(default_factory=dict)
    max_deadline: timedelta | None = None
    is_exempt: bool = False
    archive: str | None = None
    problem: str = ""
    unused: bool | None = field(default=None, kw_only=True)

    @property
    def characters(self) -> int:
        """The characters of its labels and annotations: its size in memory, except for a few hundred bytes."""
        return _characters(self.labels) + _characters(self.annotations)

    def default_for(self, outcome: Outcome | None) -> Ttl | None:
        """The default TTL for an outcome; a default for this outcome takes precedence over the general one."""
        return self.defaults.get(outcome) or self.defaults.get(None)


CLUSTER_SCOPED = Namespace(ObjectRef("v1", "Namespace", "", "", ""))
"""The namespace of cluster-scoped objects: it has no settings."""


def plain_namespace(name: str) -> Namespace:
    """A namespace without labels and annotations."""
    return Namespace(ObjectRef("v1", "Namespace", "", name, ""))


def namespace_of(obj: Any) -> Namespace:
    """Read a Namespace object. Total: a malformed annotation is a `problem`, which keeps all objects in it."""
    ref = ref_of(obj)
    labels, annotations = (_mapping(get_in(obj, f"metadata.{part}")) for part in ("labels", "annotations"))
    settings = get_annotations(obj)
    of_domain = {name: value for name, value in annotations.items() if name.startswith(f"{ANNOTATION_DOMAIN}/")}
    for part, texts in (("labels", labels), (f"annotations {ANNOTATION_DOMAIN}/*", of_domain)):
        if (count := _characters(texts)) > TEXT_MAX:
            expected = f"expected at most {TEXT_MAX} characters, got {count}"
            return Namespace(ref, problem=f"namespace {ref.name}: {part}: {expected}")
    is_cut = _characters(annotations) > TEXT_MAX
    kept = of_domain if is_cut else annotations
    try:
        return Namespace(
            ref,
            labels,
            kept,
            _defaults(settings),
            _max_ttl(settings),
            _default_deadlines(settings),
            _max_deadline(settings),
            _get_bool(settings, "exempt") is True,
            _archive(settings),
            is_cut=is_cut,
            unused=_get_bool(settings, UNUSED),
        )
    except (InvalidTtlError, InvalidDeadlineError) as error:
        return Namespace(ref, labels, kept, problem=f"namespace {ref.name}: {error}", is_cut=is_cut)


def _characters(texts: Mapping[str, Any]) -> int:
    """The characters of all names and values; a value that is no text counts as empty."""
    return sum(len(name) + (len(value) if isinstance(value, str) else 0) for name, value in texts.items())


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _defaults(settings: Mapping[str, Any]) -> Mapping[Outcome | None, Ttl]:
    return {
        outcome: read_duration(name, settings[name], origin="namespace")
        for name, outcome in DEFAULTS.items()
        if name in settings
    }


def _max_ttl(settings: Mapping[str, Any]) -> timedelta | None:
    if "max-ttl" not in settings:
        return None
    source, value = f"annotation {ANNOTATION_DOMAIN}/max-ttl", settings["max-ttl"]
    if not isinstance(value, str):
        raise InvalidTtlError(f"{source}: expected text, got {quote(value)}")
    try:
        return parse_duration(value)
    except ValueError as error:
        raise InvalidTtlError(f"{source}: {error}") from None


def _default_deadlines(settings: Mapping[str, Any]) -> Mapping[Stage, Deadline]:
    return {
        stage: read_deadline(name, settings[name], origin="namespace")
        for stage, name in DEFAULT_DEADLINES.items()
        if name in settings
    }


def _max_deadline(settings: Mapping[str, Any]) -> timedelta | None:
    if MAX_DEADLINE not in settings:
        return None
    return read_deadline(MAX_DEADLINE, settings[MAX_DEADLINE], origin="namespace", may_be_never=False).after


def _get_bool(settings: Mapping[str, Any], name: str) -> bool | None:
    value = settings.get(name)
    if name in settings and value not in ("true", "false"):
        raise InvalidTtlError(f'annotation {ANNOTATION_DOMAIN}/{name}: expected "true" or "false", got {quote(value)}')
    return bool(value == "true") if name in settings else None


def _archive(settings: Mapping[str, Any]) -> str | None:
    """The value as text; which values are valid, the archives of the policy decide."""
    value = settings.get(ARCHIVE)
    if ARCHIVE in settings and not isinstance(value, str):
        raise InvalidTtlError(f"annotation {ANNOTATION_DOMAIN}/{ARCHIVE}: expected text, got {quote(value)}")
    return value
