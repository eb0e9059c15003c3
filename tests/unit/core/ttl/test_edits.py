"""The writes of `hold`, `release` and `set` on an object, also while other clients write it."""

import json

import pytest

from shared.core.kinds.rule import Outcome
from shared.core.kinds.ttl_and_deadline import NativeTtl
from shared.core.ttl import edits
from shared.core.ttl.edits import HELD_TTL
from shared.core.values.objects import format_instant, get_annotations, ref_of
from shared.core.values.timing import parse_duration
from shared.errors import ForbiddenError, PermanentError, TryLaterError, TtlError
from shared.usecases.hold import WRITE_ATTEMPTS_MAX, hold_object, write
from tests.builders import JOB, POD, ago, annotated, having, job, later, not_none, pod, without
from tests.fakes import FakeCluster

pytestmark = pytest.mark.anyio

FIELD = "spec.ttlSecondsAfterFinished"
NEVER = POD.model_copy(update={"never_finishes": "it is a service"})
TERMINATING = having(job(), "metadata.deletionTimestamp", "2026-03-14T15:00:00Z")


@pytest.fixture
def cluster():
    return FakeCluster()


async def stored(cluster, obj):
    return (await cluster.get(JOB, ref_of(obj))).obj


# Hold and release


async def test_hold_removes_the_field_and_release_restores_it_in_one_write_each(cluster):
    before = cluster.put(job(ttl=60))

    await hold_object(JOB, ref_of(before), "why", editor=cluster)
    held = await stored(cluster, before)
    await write(JOB, ref_of(before), lambda obj: edits.release(obj, JOB), editor=cluster)
    after = await stored(cluster, before)

    assert get_annotations(held) == {"hold": "why", HELD_TTL: json.dumps({FIELD: 60})}
    assert "ttlSecondsAfterFinished" not in held["spec"]
    assert after["spec"] == before["spec"]
    assert get_annotations(after) == {}
    assert cluster.counted()["patch"] == 2


@pytest.mark.parametrize("ttl", [None, 0])
def test_hold_removes_only_a_field_that_is_set(ttl):
    change = edits.hold(job(ttl=ttl), JOB, "why")
    assert change.fields == ({} if ttl is None else {FIELD: None})
    assert (HELD_TTL in change.annotations) is (ttl is not None)


def test_hold_keeps_a_field_without_a_controller():
    ours = JOB.model_copy(update={"ttl": not_none(JOB.ttl).model_copy(update={"honoured_by": None})})
    assert edits.hold(job(ttl=60), ours, "why").fields == {}
    assert edits.hold(pod(), POD, "why").fields == {}


def test_hold_removes_each_ttl_field_except_those_of_the_status():
    paths = ("spec.ttl.afterSuccess", "spec.ttl.afterFailure", "status.spec.ttl.afterSuccess")
    fields = [{"path": path} for path in paths]
    rule = JOB.model_copy(update={"ttl": NativeTtl.model_validate({"fields": fields, "honouredBy": "its operator"})})
    obj = having(having(having(job(), paths[0], 1), paths[1], 2), paths[2], 3)

    change = edits.hold(obj, rule, "why")

    assert change.patch(obj)["spec"] == {"ttl": {"afterSuccess": None, "afterFailure": None}}
    assert json.loads(not_none(change.annotations[HELD_TTL])) == {paths[0]: 1, paths[1]: 2}
    assert "status" not in change.patch(obj)


def test_second_hold_keeps_the_saved_values():
    kept = json.dumps({FIELD: 60})
    again = edits.hold(job(hold="first", held_ttl=kept), JOB, "second")
    later_set = edits.hold(job(ttl=5, hold="first", held_ttl=kept), JOB, "second")

    assert again.annotations == {"hold": "second"}
    assert json.loads(not_none(later_set.annotations[HELD_TTL])) == {FIELD: 5}


def test_hold_of_a_held_object_names_the_reason_that_it_replaces():
    for obj in (annotated(job(), hold="before"), annotated(job(ttl=60), hold="before")):
        assert edits.hold(obj, JOB, "now").message[0] == "it was held already; the reason is replaced, and was 'before'"
        assert not any("replaced" in one for one in edits.hold(obj, JOB, "before").message)


def test_release_keeps_and_reports_a_field_that_was_set_during_the_hold():
    change = edits.release(job(ttl=5, hold="why", held_ttl=json.dumps({FIELD: 60})), JOB)
    assert change is not None
    assert change.fields == {}
    assert change.annotations == {"hold": None, HELD_TTL: None}
    assert change.message == (f"{FIELD} was set to 5 during the hold, and is kept; before, it was 60",)


def test_release_restores_the_field_if_the_hold_was_removed_by_hand():
    assert not_none(edits.release(job(held_ttl=json.dumps({FIELD: 60})), JOB)).fields == {FIELD: 60}


KEPT = json.dumps({FIELD: 60})


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (job(held_ttl=KEPT), f"a hold that was removed left {FIELD}: 60 saved, and no controller acts on it"),
        (job(held_ttl="{"), "a hold that was removed left a saved TTL, which cannot be restored until this is fixed"),
        (job(held_ttl=KEPT, hold="why"), ""),
        (job(held_ttl=KEPT, ttl=5), ""),
        (job(ttl=5), ""),
    ],
)
def test_saved_ttl_of_a_removed_hold_is_reported(obj, message):
    found = edits.describe_saved(obj, JOB)
    assert found.startswith(message) if message else not found


def test_release_writes_nothing_to_an_object_without_a_hold():
    assert edits.release(job(ttl=60, ttl_failed="1h"), JOB) is None


@pytest.mark.parametrize(
    "kept",
    ["", "60", "[]", "{", '{"spec.suspend": true}', '{"spec.ttlSecondsAfterFinished": 1, "metadata.name": "x"}'],
)
def test_release_writes_nothing_but_ttl_fields_of_the_kind(kept):
    with pytest.raises(ValueError, match=rf"annotation ttlafterfinished.dev/{HELD_TTL}: expected JSON of values"):
        edits.release(job(hold="why", held_ttl=kept), JOB)


@pytest.mark.parametrize(
    ("obj", "rule", "reason", "message"),
    [
        (job(), JOB, " ", "expected a reason"),
        (pod(), NEVER, "why", "a Pod never finishes: it is a service"),
        (TERMINATING, JOB, "why", "is being deleted already"),
    ],
)
def test_hold_that_is_impossible_is_an_error(obj, rule, reason, message):
    with pytest.raises(ValueError, match=message):
        edits.hold(obj, rule, reason)


# Set


@pytest.mark.parametrize(
    ("wish", "outcome", "annotations"),
    [
        ("1h", None, {"ttl": "1h"}),
        ("never", None, {"ttl": "never"}),
        ("3600", Outcome.FAILED, {"ttl-failed": "3600"}),
        ("2026-01-02T03:04:05Z", None, {"expire-at": "2026-01-02T03:04:05Z"}),
    ],
)
def test_set_writes_the_annotation_for_the_value(wish, outcome, annotations):
    assert edits.set_ttl(job(), JOB, wish, outcome=outcome).annotations == annotations


def test_set_removes_an_instant_that_takes_precedence():
    change = edits.set_ttl(job(expire_at="2026-01-02T03:04:05Z"), JOB, "1h")
    assert change.annotations == {"ttl": "1h", "expire-at": None}


def test_set_reports_a_ttl_of_one_outcome_that_takes_precedence():
    (message,) = edits.set_ttl(job(ttl_failed="2d"), JOB, "1h").message
    assert message == "ttlafterfinished.dev/ttl-failed, 2d, takes precedence if it failed"


@pytest.mark.parametrize("wish", ["", "soon", "-1h", "1h30", "2026-01-02", "Never"])
def test_set_rejects_a_malformed_value(wish):
    with pytest.raises(ValueError, match="expected seconds"):
        edits.set_ttl(job(), JOB, wish)


def test_set_rejects_an_instant_for_one_outcome():
    with pytest.raises(ValueError, match="an instant is for each outcome"):
        edits.set_ttl(job(), JOB, "2026-01-02T03:04:05Z", outcome=Outcome.FAILED)


def test_unset_removes_all_ttls_or_that_of_one_outcome():
    obj = annotated(job(hold="why"), ttl="1h", ttl_failed="2h", expire_at="2026-01-02T03:04:05Z")
    assert not_none(edits.unset_ttl(obj)).annotations == {"ttl": None, "ttl-failed": None, "expire-at": None}
    assert not_none(edits.unset_ttl(obj, Outcome.FAILED)).annotations == {"ttl-failed": None}
    assert edits.unset_ttl(obj, Outcome.SUCCEEDED) is None


# Writing


async def test_write_repeats_after_a_concurrent_write(cluster):
    obj = cluster.put(job(ttl=60))
    writes = iter([5, 6])

    def ask(read):
        if (value := next(writes, None)) is not None:
            cluster.write(obj["metadata"]["name"], FIELD, value)
        return edits.hold(read, JOB, "why")

    await write(JOB, ref_of(obj), ask, editor=cluster)

    assert json.loads(get_annotations(await stored(cluster, obj))[HELD_TTL]) == {FIELD: 6}


async def test_write_gives_up_after_repeated_conflicts(cluster):
    obj = cluster.put(job())

    def ask(read):
        cluster.write(obj["metadata"]["name"])
        return edits.hold(read, JOB, "why")

    with pytest.raises(TryLaterError, match=f"changed {WRITE_ATTEMPTS_MAX} times"):
        await write(JOB, ref_of(obj), ask, editor=cluster)


async def test_write_to_a_missing_object_is_an_error(cluster):
    with pytest.raises(TtlError, match="there is no Job build-42 in namespace ci"):
        await write(JOB, ref_of(job()), lambda obj: edits.release(obj, JOB), editor=cluster)


class Stubborn(FakeCluster):
    """An API server that rejects the removal of the field."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    async def patch(self, rule, ref, patch, **options):
        if "spec" in patch:
            raise self.error
        return await super().patch(rule, ref, patch, **options)


async def test_hold_is_written_without_the_field_if_the_field_is_immutable():
    cluster = Stubborn(PermanentError("field is immutable"))
    obj = cluster.put(job(ttl=60))

    written = await hold_object(JOB, ref_of(obj), "why", editor=cluster)

    assert written.refused == "field is immutable"
    assert get_annotations(await stored(cluster, obj)) == {"hold": "why"}
    assert without(written.snapshot.obj, "metadata")["spec"] == obj["spec"]


async def test_hold_without_permission_writes_nothing():
    cluster = Stubborn(ForbiddenError("jobs is forbidden"))
    obj = cluster.put(job(ttl=60))

    with pytest.raises(ForbiddenError):
        await hold_object(JOB, ref_of(obj), "why", editor=cluster)
    assert get_annotations(await stored(cluster, obj)) == {}


@pytest.mark.parametrize(
    ("wish", "maximum", "finished_at", "is_shorter"),
    [
        ("2d", "1h", None, True),
        ("1h", "1h", None, False),
        ("2d", None, None, False),
        ("never", "1h", None, False),
        (format_instant(later(7_200)), "1h", ago(0), True),
        (format_instant(later(7_200)), "1h", None, True),
        (format_instant(later(60)), "1h", ago(0), False),
    ],
)
def test_maximum_that_shortens_a_ttl_is_described(wish, maximum, finished_at, is_shorter):
    message = edits.describe_maximum(wish, maximum and parse_duration(maximum), finished_at)
    expected = f"max-ttl of its namespace takes precedence over {wish}: at most 1h after it finishes"
    assert message == (expected if is_shorter else "")
