"""decide_unused on random objects and passes: total, deterministic, monotone, and never less careful."""

import copy
from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from shared.core.policy.usage import CONFIG_MAPS, SECRETS
from shared.core.usage.decide_unused import (
    DeleteUnused,
    Keep,
    RemoveMark,
    SetMark,
    UnusedContext,
    WaitUntil,
    decide_unused,
)
from shared.core.usage.unused_reasons import UnusedReason as Reason
from tests.builders import LONG_AGO, NOW, ago
from tests.properties.strategies import instant_texts, instants, json_values, paths_of, put
from tests.usage import (
    LONG_UNUSED,
    VERSIONS,
    config_map,
    context,
    having_mark,
    kind_of,
    opted_in,
    passed,
    refer,
    secret,
    unused_policy,
    written,
)

POLICIES = [unused_policy(), unused_policy(unused={"ttl": "1d", "audit": True})]
NAMESPACES = [opted_in(), opted_in(), opted_in(unused="false"), None]
marks = st.sampled_from([None, None, LONG_UNUSED, ago(60), LONG_AGO]) | instant_texts
references = st.lists(st.sampled_from([refer(), refer(problem="unreadable")]), max_size=2)
versions = st.sampled_from([VERSIONS, VERSIONS | {"pods": "9"}, {"pods": "7"}, {}])


@st.composite
def observations(draw):
    """Up to three passes, one after the other; most are complete and find nothing."""
    starts = sorted(draw(st.lists(st.integers(10, 300_000), max_size=3)), reverse=True)
    found = [
        passed(
            ago(start),
            *draw(st.just([]) | references),
            versions=draw(st.just(VERSIONS) | versions),
            problem=draw(st.sampled_from(["", "", "", "403"])),
        )
        for start in starts
    ]
    return draw(st.just((passed(ago(40)), passed(ago(20))))) if draw(st.booleans()) else tuple(found)


@st.composite
def things(draw):
    mark = draw(marks)
    obj = copy.deepcopy(draw(st.sampled_from([config_map(), secret()])))
    obj = obj if mark is None else having_mark(obj, mark)
    if draw(st.booleans()):
        obj["metadata"]["managedFields"] = [written(draw(st.sampled_from([LONG_AGO, ago(60), NOW])))]
    return obj


contexts = st.builds(UnusedContext, st.sampled_from(POLICIES), st.sampled_from(NAMESPACES), observations())


@given(json_values, st.sampled_from([CONFIG_MAPS, SECRETS]), instants)
def test_decision_about_any_json_is_to_keep_it(obj, kind, now):
    assert isinstance(decide_unused(obj, kind, now, context()), Keep)


@given(things(), contexts, instants, st.data())
def test_decision_about_almost_valid_objects_never_fails_and_is_the_same_again(obj, known, now, data):
    place = data.draw(st.sampled_from(sorted(paths_of(obj), key=str)))
    put(obj, place, data.draw(json_values))
    before = copy.deepcopy(obj)

    decision = decide_unused(obj, kind_of(obj), now, known)

    assert obj == before
    assert decide_unused(before, kind_of(before), now, known) == decision


@given(things(), contexts, st.integers(0, 10**9))
def test_object_that_is_deleted_now_is_deleted_at_every_later_instant(obj, known, seconds):
    if isinstance(decide_unused(obj, kind_of(obj), NOW, known), DeleteUnused):
        assert isinstance(decide_unused(obj, kind_of(obj), NOW + timedelta(seconds=seconds), known), DeleteUnused)


@given(things(), contexts, st.data(), st.sampled_from([refer(), refer(problem="unreadable")]))
def test_one_more_reference_never_deletes_an_object(obj, known, data, reference):
    """In any of the passes."""
    if not known.observations:
        return
    at = data.draw(st.integers(0, len(known.observations) - 1))
    changed = [*known.observations]
    changed[at] = replace(changed[at], references=(*changed[at].references, reference))
    before = decide_unused(obj, kind_of(obj), NOW, known)

    after = decide_unused(obj, kind_of(obj), NOW, replace(known, observations=tuple(changed)))

    assert not isinstance(after, DeleteUnused) or isinstance(before, DeleteUnused)
    if at == len(changed) - 1:
        assert not isinstance(after, DeleteUnused | SetMark | WaitUntil)


@given(things(), contexts, st.data())
def test_carrier_that_cannot_be_listed_never_deletes_or_marks_an_object(obj, known, data):
    if not known.observations:
        return
    last = known.observations[-1]
    problem = data.draw(st.sampled_from(["jobs.batch: 403", "no version"]))
    of = replace(last.of, problem=problem) if problem != "no version" else replace(last.of, versions={"pods": ""})
    unlisted = (*known.observations[:-1], replace(last, of=of))

    decision = decide_unused(obj, kind_of(obj), NOW, replace(known, observations=unlisted))

    assert isinstance(decision, Keep | RemoveMark)


@given(things(), contexts)
def test_fact_that_is_unknown_never_writes(obj, known):
    """The mark is written only when the state changes, and an unknown state is no change."""
    unknown = {Reason.USE_UNKNOWN, Reason.NAMESPACE_UNREAD, Reason.INVALID_POLICY, Reason.UNKNOWN_SHAPE}
    decision = decide_unused(obj, kind_of(obj), NOW, known)

    if decision.reason in unknown:
        assert isinstance(decision, Keep)


@given(things(), contexts)
def test_object_is_deleted_only_with_a_mark_two_passes_and_an_opted_in_namespace(obj, known):
    decision = decide_unused(obj, kind_of(obj), NOW, known)

    if isinstance(decision, DeleteUnused):
        first, second = known.observations[-2:]
        assert decision.facts.marked_at is not None
        assert decision.since <= first.of.started_at <= second.of.started_at <= NOW
        assert not first.references + second.references
        assert known.namespace is not None
        assert known.namespace.unused
        assert decision.facts.ref.uid
        assert decision.facts.resource_version


@given(things(), contexts)
def test_mark_is_stable_once_it_is_written(obj, known):
    """After the write of a mark, the same facts never ask for another write."""
    decision = decide_unused(obj, kind_of(obj), NOW, known)
    if isinstance(decision, SetMark):
        at = NOW + timedelta(seconds=1)

        assert isinstance(decide_unused(having_mark(obj, at), kind_of(obj), at, known), WaitUntil)
