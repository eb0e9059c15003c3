"""Properties of decisions for any policy and namespace: neither ever deletes an unfinished object."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from shared.core.decision.capacity import NO_PRESSURE, WITHIN_COUNT, Counted, QuotaPressure, QuotaUsage
from shared.core.decision.decide import Context, Expire, Ignore, Reason, Wait, decide
from shared.core.decision.finish import finish_of
from shared.core.decision.makers import APPLIERS, DISPATCHERS
from shared.core.decision.namespaces import namespace_of, plain_namespace
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.ttl.ttl import InvalidTtlError, find_ttl
from shared.core.values.objects import format_instant
from shared.core.values.timing import add, format_duration
from shared.evaluation.evaluator import find_lacking
from tests.builders import JOB, POD, TRAINJOB, annotated, created, having, job, namespace, not_none
from tests.properties.strategies import any_text, instants, json_values, objects, recent_instants, result_of
from tests.properties.test_decide import comparable, of_its_kind

# Each property covers a part of all contexts; other properties cover the rest.
searching = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
OPT_IN = {rule.kind: rule.model_copy(update={"opt_in": "data"}) for rule in (JOB, POD, TRAINJOB)}
HOME = plain_namespace("ci")

durations = st.integers(0, 10**7).map(lambda seconds: format_duration(timedelta(seconds=seconds)))
words = durations | st.just("never")
ttls = words | st.dictionaries(st.sampled_from(["succeeded", "failed"]), words, min_size=1)
conditions = st.sampled_from(
    ["true", "false", "outcome == 'failed'", "object.spec.backoffLimit > 1", "size(object.status) > 2", "1 / 0 > 1"]
)
groups = st.sampled_from(["owner", "namespace", {"label": "app"}, {"cel": "object.metadata.name"}])
limits = st.fixed_dictionaries(
    {},
    optional={
        # above every keepLast, so that each combination is valid
        "maxCount": st.integers(5, 8),
        "whenQuotaAbove": st.sampled_from(["1%", "50%", "99%"]),
    },
).flatmap(
    lambda fields: st.fixed_dictionaries(
        {name: st.just(value) for name, value in fields.items()}
        | ({"countBy": groups} if "maxCount" in fields else {})
        | ({"notBefore": durations} if "whenQuotaAbove" in fields else {})
    )
)
about_makers = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(["onDispatched", "onRecreated"], st.sampled_from(["keep", "delete"]))
)
ANY = {"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}


@st.composite
def policy_rules(draw: st.DrawFn) -> dict[str, Any]:
    match: dict[str, Any] = {"kinds": draw(st.sampled_from([["*"], ["jobs"], ["pods", "trainjobs"], ["*jobs"]]))}
    optional = {
        "namespaces": st.sampled_from([{"names": ["*"]}, {"names": ["c*"]}, {"except": ["ci"]}, {"selector": ANY}]),
        "labels": st.sampled_from([ANY, {"matchLabels": {"app": "x"}}]),
        "owners": st.sampled_from([[], [{"kind": "Job"}]]),
        "age": durations,
    }
    for name in draw(st.lists(st.sampled_from(sorted(optional)), max_size=2, unique=True)):
        match[name] = draw(optional[name])
    rule: dict[str, Any] = {"match": match, "minAge": draw(st.just("0s") | durations)}
    fields = {"ttl": ttls, "when": conditions, "keepLast": st.integers(1, 5), "keepLastFailed": st.integers(1, 5)}
    for name in draw(st.lists(st.sampled_from(sorted(fields)), unique=True)):
        rule[name] = draw(fields[name])
    if {"keepLast", "keepLastFailed"} & rule.keys():
        rule["keepLastBy"] = draw(groups)
        if "keepLastFailed" not in rule:
            rule["keepLastOutcomes"] = draw(st.sampled_from(["apart", "together"]))
    if draw(st.booleans()):
        rule |= draw(limits)
    if "age" not in match:
        rule |= draw(about_makers)
    if "ttl" in rule:
        rule |= {"onOwned": draw(st.sampled_from(["keep", "delete"]))}
    return rule


def policy_of(rules: list[dict[str, Any]]) -> Policy:
    return Policy.model_validate({"rules": [{"name": f"rule-{n}"} | one for n, one in enumerate(rules)]})


policies = st.lists(policy_rules(), max_size=4).map(policy_of)
namespaces = st.fixed_dictionaries(
    {},
    optional={
        "default_ttl": words,
        "default_ttl_succeeded": words,
        "default_ttl_failed": words | any_text,
        "max_ttl": durations,
        "exempt": st.sampled_from(["true", "false", "yes"]),
    },
).map(lambda fields: namespace_of(annotated(namespace(), **fields)))
contexts = st.builds(
    Context,
    policy=policies,
    namespace=st.none() | namespaces,
    owner_unfinished=st.none() | st.booleans(),
    owner_unknown=st.booleans(),
    newer=st.none() | st.integers(0, 6),
    counted=st.none() | st.builds(Counted, newer=st.integers(0, 10), total=st.just(20)),
    pressure=st.none()
    | st.builds(
        QuotaPressure,
        st.lists(st.builds(QuotaUsage, st.just("q"), st.just("count/x"), st.integers(1, 9), st.integers(0, 9))).map(
            tuple
        ),
        st.none() | st.integers(0, 9),
    ),
)


# Under most contexts no limit takes effect; under these, one mostly does.
limiting_contexts = st.builds(
    lambda limit, rules, newer, used: Context(
        policy_of([{"match": {"kinds": ["*"]}, "ttl": "30000d"} | limit, *rules]),
        namespace=HOME,
        newer=6,
        counted=Counted(newer=newer, total=20),
        pressure=QuotaPressure((QuotaUsage("q", "count/x", 9, used),), 0),
    ),
    limits.filter(bool),
    st.lists(policy_rules(), max_size=2),
    newer=st.integers(4, 10),
    used=st.integers(7, 9),
)


@st.composite
def jobs_of_their_time(draw: st.DrawFn) -> dict[str, Any]:
    """A Job that finished at a known time."""
    at = draw(recent_instants)
    began = at - timedelta(seconds=draw(st.integers(0, 10**6)))
    how: dict[str, Any] = {draw(st.sampled_from(["complete", "failed"])): at}
    obj = job(**how, ttl=draw(st.none() | st.integers(0, 10**6)))
    obj = having(created(obj, began), "status.startTime", format_instant(began))
    return having(obj, "metadata.labels", {"app": draw(st.sampled_from(["x", "y"]))})


MARKS = {one.label: "" for one in APPLIERS if one.label} | {one.label: one.value for one in DISPATCHERS if one.label}
marks = st.sets(st.sampled_from(sorted(MARKS)), min_size=1).map(lambda labels: {one: MARKS[one] for one in labels})
finished_jobs = jobs_of_their_time()
anything_finished = objects | finished_jobs


class TestDecisions:
    @searching
    @given(obj=anything_finished | json_values, context=contexts, now=instants)
    def test_any_json_and_any_policy_have_a_decision(self, obj, context, now):
        decision = decide(obj, of_its_kind(obj), now, context)

        assert isinstance(decision, Ignore | Wait | Expire)
        assert isinstance(decision.facts.summary(), str)

    @searching
    @given(obj=anything_finished, context=contexts, now=recent_instants, after=recent_instants)
    def test_later_decision_differs_only_from_wait_to_expire(self, obj, context, now, after):
        now, after = sorted([now, after])
        rule = of_its_kind(obj)
        first, second = decide(obj, rule, now, context), decide(obj, rule, after, context)

        if isinstance(first, Wait) and after >= first.until:
            assert isinstance(second, Expire)
            assert second.since == first.until
        else:
            assert comparable(second) == comparable(first)

    @searching
    @given(obj=anything_finished, context=contexts, now=instants)
    def test_unfinished_object_is_kept(self, obj, context, now):
        rule = of_its_kind(obj)
        assume(finish_of(obj, rule).finished is not True)

        assert isinstance(decide(obj, rule, now, context), Ignore)

    @searching
    @given(obj=finished_jobs, context=contexts, now=recent_instants)
    def test_decision_lacks_nothing_if_each_fact_was_read(self, obj, context, now):
        read = replace(
            context,
            namespace=context.namespace or HOME,
            owner_unfinished=bool(context.owner_unfinished),
            newer=context.newer or 0,
            counted=context.counted or WITHIN_COUNT,
            pressure=context.pressure or NO_PRESSURE,
        )

        assert find_lacking(decide(obj, JOB, now, read)) == ()

    @searching
    @given(obj=finished_jobs, context=contexts, now=recent_instants)
    def test_object_in_an_unread_namespace_is_kept(self, obj, context, now):
        unread = Context(context.policy, None, context.owner_unfinished, newer=context.newer)

        assert isinstance(decide(obj, JOB, now, unread), Ignore)

    @searching
    @given(obj=anything_finished, context=contexts, now=instants)
    def test_held_object_is_kept(self, obj, context, now):
        assume(isinstance(obj.get("metadata"), dict))
        held = having(obj, "metadata.annotations", {"ttlafterfinished.dev/hold": "why"})

        assert isinstance(decide(held, of_its_kind(held), now, context), Ignore)

    @searching
    @given(obj=finished_jobs, context=contexts, marks=marks, now=recent_instants)
    def test_mark_of_a_maker_makes_no_object_due(self, obj, context, marks, now):
        """A label that a person sets can keep an object, and never delete one."""
        marked = having(obj, "metadata.labels", {**obj["metadata"]["labels"], **marks})

        if isinstance(decide(marked, JOB, now, context), Expire):
            assert isinstance(decide(obj, JOB, now, context), Expire)


class TestPrecedence:
    @searching
    @given(obj=finished_jobs, context=contexts, seconds=st.integers(0, 10**7), now=recent_instants)
    def test_ttl_of_the_object_is_only_limited_by_a_policy(self, obj, context, seconds, now):
        """max-ttl may shorten it and minAge may delay it; no other TTL source applies."""
        assume(context.namespace is not None)
        context = replace(context, counted=WITHIN_COUNT, pressure=NO_PRESSURE)
        facts = decide(annotated(obj, ttl=str(seconds)), JOB, now, context).facts
        at, limit = not_none(finish_of(obj, JOB).at), context.namespace.max_ttl
        assume(facts.due_at is not None)

        own = add(at, timedelta(seconds=seconds))
        below = [add(at, rule.min_age) for rule in context.policy.rules]
        assert not_none(facts.ttl).source == "ttlafterfinished.dev/ttl"
        assert facts.due_at in (own, *below, *([add(at, limit)] if limit is not None else []))
        assert facts.due_at >= min(own, add(at, limit) if limit is not None else own)

    @searching
    @given(obj=finished_jobs, context=contexts, now=recent_instants)
    def test_policy_without_ttls_deletes_no_more_objects_and_none_sooner(self, obj, context, now):
        guards = [one for one in context.policy.rules if one.ttl is None and not one.limits]
        guarded = Context(Policy(rules=tuple(guards)), context.namespace, context.owner_unfinished, newer=context.newer)
        without = Context(NO_POLICY, context.namespace, context.owner_unfinished, newer=context.newer)

        if isinstance(decide(obj, JOB, now, guarded), Expire):
            assert isinstance(decide(obj, JOB, now, without), Expire)

    @searching
    @given(obj=finished_jobs, context=contexts, now=recent_instants)
    def test_rule_appended_last_changes_no_object_whose_ttl_another_source_sets(self, obj, context, now):
        """Of two rules with a ttl, the second is ignored if the first always matches.

        A limit, such as maxCount, is no such ttl: it deletes sooner than a ttl, and the ttl is added beside it.
        """
        assume(all(rule.match.age is None for rule in context.policy.rules))
        later_rule = policy_of([{"match": {"kinds": ["*"]}, "ttl": "0s"}]).rules[0].model_copy(update={"name": "last"})
        more = Policy(rules=(*context.policy.rules, later_rule))
        before = decide(obj, JOB, now, context)
        after = decide(obj, JOB, now, replace(context, policy=more))

        is_of_limit = before.reason in (Reason.OVER_COUNT, Reason.OVER_QUOTA)
        if before.facts.ttl is not None and before.facts.ttl.origin != "namespace" and not is_of_limit:
            assert comparable(after) == comparable(before)

    @searching
    @given(obj=finished_jobs, context=contexts, now=recent_instants)
    def test_opt_in_kind_expires_only_by_its_name_or_its_own_ttl(self, obj, context, now):
        decision = decide(obj, OPT_IN["Job"], now, context)

        facts = decision.facts
        if isinstance(decision, Expire) and not_none(facts.ttl).origin not in ("object", "native"):
            assert facts.policy_rule is not None
            assert "jobs" in facts.policy_rule.match.kinds

    @searching
    @given(
        obj=finished_jobs,
        context=contexts,
        fields=st.sampled_from([{"exempt": "true"}, {"exempt": "yes"}, {"max_ttl": "long"}, {"default_ttl": "soon"}]),
        now=recent_instants,
    )
    def test_exempt_or_unreadable_namespace_keeps_every_object(self, obj, context, fields, now):
        context = replace(context, namespace=namespace_of(namespace(**fields)))

        assert decide(obj, JOB, now, context).reason in (Reason.EXEMPT, Reason.INVALID_POLICY)

    @searching
    @given(obj=finished_jobs, policy=policies, now=recent_instants, newer=st.integers(0, 6))
    def test_older_object_of_a_group_is_due_no_later(self, obj, policy, now, newer):
        near = decide(obj, JOB, now, Context(policy, HOME, newer=newer))
        far = decide(obj, JOB, now, Context(policy, HOME, newer=newer + 1))

        if isinstance(near, Expire):
            assert isinstance(far, Expire)

    @searching
    @given(obj=finished_jobs, policy=policies, now=recent_instants)
    def test_max_ttl_limits_every_ttl_except_never(self, obj, policy, now):
        assume(all(rule.min_age == timedelta(0) for rule in policy.rules))
        assume(all(rule.match.age is None for rule in policy.rules))  # before that age the rule says nothing
        own = result_of(InvalidTtlError, find_ttl, obj, JOB, None)
        decision = decide(obj, JOB, now, Context(policy, namespace_of(namespace(max_ttl="1h")), newer=9))

        assert own is None or not isinstance(own, InvalidTtlError)
        if isinstance(decision, Wait):
            assert decision.until <= add(not_none(finish_of(obj, JOB).at), timedelta(hours=1))


class TestLimits:
    @searching
    @given(obj=finished_jobs, context=contexts, now=recent_instants)
    def test_limit_makes_no_object_due_later(self, obj, context, now):
        without = decide(obj, JOB, now, replace(context, counted=WITHIN_COUNT, pressure=NO_PRESSURE))
        limited = decide(obj, JOB, now, context)

        if not isinstance(without, Ignore):
            assert not isinstance(limited, Ignore)
            assert not_none(limited.facts.due_at) <= not_none(without.facts.due_at)
        elif not isinstance(limited, Ignore):
            assert without.reason is Reason.NO_TTL
            assert limited.facts.early is Reason.OVER_COUNT

    @searching
    @given(obj=finished_jobs, context=contexts | limiting_contexts, now=recent_instants)
    def test_object_that_goes_before_its_time_is_beyond_a_limit_and_old_enough(self, obj, context, now):
        facts = decide(obj, JOB, now, context).facts
        assume(facts.early is not None)

        at, rule = not_none(facts.finish.at), not_none(facts.policy_rule)
        if facts.early is Reason.OVER_COUNT:
            assert not_none(context.counted).newer >= not_none(rule.max_count)
        else:
            assert not_none(context.pressure).is_over(not_none(rule.when_quota_above))
            assert not_none(facts.due_at) >= add(at, not_none(rule.not_before))
        assert not_none(facts.due_at) >= at

    @searching
    @given(obj=finished_jobs, context=contexts, newer=st.integers(0, 4), now=recent_instants)
    def test_limit_deletes_none_of_the_newest_that_a_rule_keeps(self, obj, context, newer, now):
        decision = decide(obj, JOB, now, replace(context, newer=newer))
        rule = decision.facts.keep_last_rule
        kept = rule.kept_of(decision.facts.finish.outcome) if rule else 0

        assert isinstance(decision, Ignore) or newer >= (kept or 0)

    @searching
    @given(obj=finished_jobs, context=contexts, now=recent_instants)
    def test_unknown_count_and_unknown_quota_make_no_object_due_sooner(self, obj, context, now):
        unread = decide(obj, JOB, now, replace(context, counted=None, pressure=None))
        without = decide(obj, JOB, now, replace(context, counted=WITHIN_COUNT, pressure=NO_PRESSURE))

        assert (type(unread), unread.reason, unread.facts.due_at) == (
            type(without),
            without.reason,
            without.facts.due_at,
        )
