"""Arbitrary JSON, and objects that are almost valid."""

import copy
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from shared.core.values.objects import ANNOTATION_DOMAIN, format_instant
from tests.builders import FIXTURES, condition, ended, fixture, having, pod, status_written, waiting

FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)

# Any character, lone surrogates and the null byte included.
any_text = st.text(st.characters(exclude_categories=()), max_size=12)

instants = st.datetimes(timezones=st.just(UTC)) | st.sampled_from(
    [
        FIRST,
        FIRST + timedelta(microseconds=1),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2026, 3, 2, 9, 30, tzinfo=UTC),
        datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
        LAST - timedelta(microseconds=1),
        LAST,
    ]
)

# The instants of real objects: whole seconds, close to each other.
recent_instants = st.integers(0, 10**8).map(
    lambda seconds: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)

_offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
instant_texts = (
    instants.map(format_instant)
    | st.datetimes(timezones=_offsets).map(datetime.isoformat)
    | st.datetimes().map(datetime.isoformat)
    | st.sampled_from(["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "T", "Z"])
)

duration_texts = st.from_regex(r"\A([0-9]{1,13}[wdhmsy]?){0,4}\Z") | st.sampled_from(
    ["never", "0", "0s", "1h", "36500d", "36501d", "9" * 5000]
)

words = st.sampled_from(
    ["True", "False", "Unknown", "Succeeded", "Failed", "Complete", "Running", "status", "Job", "Pod", "batch/v1", "v1"]
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([-1, 0, 1, 2**31, 2**63, 10**18, 10**400, -(10**4000), 10**4000])
    | st.floats()
    | any_text
    | words
    | instant_texts
    | duration_texts
)

keys = any_text | st.sampled_from(
    [
        "type",
        "status",
        "conditions",
        "lastTransitionTime",
        "name",
        "state",
        "terminated",
        "finishedAt",
        "annotations",
        "phase",
        "time",
        "subresource",
        f"{ANNOTATION_DOMAIN}/ttl",
        f"{ANNOTATION_DOMAIN}/expire-at",
        f"{ANNOTATION_DOMAIN}/\ud800",
        "",
        ".",
        "größe",
    ]
)


def result_of(error: type[ValueError], read: Callable[..., Any], *args: Any) -> Any:
    """The result of a call: its value, or its error of exactly this type."""
    try:
        return read(*args)
    except error as raised:
        return raised


def nested(depth: int) -> Any:
    value: Any = {}
    for level in range(depth):
        value = [value] if level % 2 else {"state": value}
    return value


# Hypothesis has to copy and print what it finds; test_decide goes deeper by hand.
deep = st.sampled_from([10, 100]).map(nested)

json_values = (
    st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )
    | deep
)

FIXTURE_NAMES = sorted(path.stem for path in FIXTURES.glob("*.yaml"))
_FIXTURES = {name: fixture(name) for name in FIXTURE_NAMES}

fixtures = st.sampled_from(FIXTURE_NAMES).map(lambda name: copy.deepcopy(_FIXTURES[name]))

# The fields that a decision reads.
INTERESTING = [
    ("status",),
    ("status", "conditions"),
    ("status", "conditions", 0),
    ("status", "conditions", 0, "type"),
    ("status", "conditions", 0, "status"),
    ("status", "conditions", 0, "lastTransitionTime"),
    ("status", "phase"),
    ("status", "startTime"),
    ("status", "containerStatuses"),
    ("status", "containerStatuses", 0),
    ("status", "containerStatuses", 0, "name"),
    ("status", "containerStatuses", 0, "state"),
    ("status", "containerStatuses", 0, "state", "terminated"),
    ("status", "containerStatuses", 0, "state", "terminated", "finishedAt"),
    ("status", "initContainerStatuses"),
    ("status", "ephemeralContainerStatuses"),
    ("spec",),
    ("spec", "containers"),
    ("spec", "containers", 0, "name"),
    ("spec", "ttlSecondsAfterFinished"),
    ("metadata", "annotations"),
    ("metadata", "creationTimestamp"),
    ("metadata", "deletionTimestamp"),
    ("metadata", "managedFields"),
    ("metadata", "managedFields", 0),
    ("metadata", "managedFields", 0, "time"),
    ("metadata", "managedFields", 0, "subresource"),
    ("metadata", "ownerReferences"),
    ("metadata", "annotations", f"{ANNOTATION_DOMAIN}/ttl"),
    ("metadata", "annotations", f"{ANNOTATION_DOMAIN}/ttl-succeeded"),
    ("metadata", "annotations", f"{ANNOTATION_DOMAIN}/ttl-failed"),
    ("metadata", "annotations", f"{ANNOTATION_DOMAIN}/expire-at"),
    ("metadata", "annotations", f"{ANNOTATION_DOMAIN}/hold"),
    ("metadata", "annotations", f"{ANNOTATION_DOMAIN}/owner"),
]

SKELETONS = [
    {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {}},
    {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {}},
]


def put(obj: Any, path: tuple, value: Any) -> None:
    """Set the value at the path, in place; a value that is no container on the way is replaced."""
    for key, following in zip(path, (*path[1:], None), strict=True):
        is_last = following is None
        if isinstance(key, int):
            if not obj:
                obj.append(None)
            key = min(key, len(obj) - 1)  # noqa: PLW2901
        if is_last:
            obj[key] = value
            return
        wanted = list if isinstance(following, int) else dict
        present = obj[key] if isinstance(key, int) else obj.get(key)
        if not isinstance(present, wanted):
            obj[key] = wanted()
        obj = obj[key]


def paths_of(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Every path in an object that leads to something, its inner nodes included."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from paths_of(child, (*path, key))


_FIXTURE_PATHS = {name: sorted(paths_of(obj), key=str) for name, obj in _FIXTURES.items()}


@st.composite
def spliced_skeletons(draw: st.DrawFn) -> dict[str, Any]:
    """The right apiVersion, kind and metadata, and any value in the fields that a decision reads."""
    obj = copy.deepcopy(draw(st.sampled_from(SKELETONS)))
    for path in draw(st.lists(st.sampled_from(INTERESTING), max_size=8)):
        put(obj, path, draw(json_values))
    return obj


@st.composite
def mutated_fixtures(draw: st.DrawFn) -> dict[str, Any]:
    """A real object; a few of its fields have any value, or are removed."""
    name = draw(st.sampled_from(FIXTURE_NAMES))
    obj = copy.deepcopy(_FIXTURES[name])
    paths = st.sampled_from(_FIXTURE_PATHS[name]) | st.sampled_from(INTERESTING)
    for path in draw(st.lists(paths, min_size=1, max_size=4)):
        put(obj, path, draw(json_values | st.just(None)))
    return obj


@st.composite
def half_seen_pods(draw: st.DrawFn) -> tuple[dict[str, Any], datetime]:
    """A Pod with the instant at which its last container really ended.

    Its status has some containers only, its conditions may have turned at any time before, and the last write of
    its status came after the end.
    """
    end = draw(recent_instants)
    ends = [end, *(end - timedelta(seconds=s) for s in draw(st.lists(st.integers(0, 10**6), max_size=3)))]
    statuses = {}
    for name, at in ((f"c{index}", at) for index, at in enumerate(ends)):
        seen = [ended(name, at), ended(name, None), ended(name, "0001-01-01T00:00:00Z"), waiting(name), None]
        statuses[name] = draw(st.sampled_from(seen))
    turned = [end - timedelta(seconds=s) for s in draw(st.lists(st.integers(0, 10**6), max_size=3))]
    obj = pod(
        "Failed",
        containers=[status for _, status in sorted(statuses.items(), reverse=draw(st.booleans())) if status],
        conditions=[condition("Ready", at, status="False") for at in turned],
        declared=tuple(statuses),
        started=None,
    )
    obj = having(obj, "metadata.creationTimestamp", "2000-01-01T00:00:00Z")
    last_write = end + timedelta(seconds=draw(st.integers(0, 60)))
    return status_written(obj, end - timedelta(seconds=5), last_write), end


objects = fixtures | spliced_skeletons() | mutated_fixtures()
anything = json_values | objects
