"""`explain` of one object of a cluster: what is in force there, and what prevents the deletion."""

import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from shared.cli.deleters.in_force import InForce, PolicyInForce, opened_archives, read_in_force
from shared.cli.deleters.obstacles import Obstacle, ObstacleReason, find_obstacles, find_stale_guard, find_stops
from shared.cli.explanation.explanation_text import is_unsure, print_explanations
from shared.cli.explanation.gone_object import explain_gone, find_record
from shared.cli.input.options import Options
from shared.cli.input.target import connected, find_rule, namespace_of, parse_target, ref_to, split_target
from shared.cli.objects.archive_report import if_archived
from shared.cli.objects.deadline_report import is_stop_ahead
from shared.cli.objects.journal import find_entries_of
from shared.cli.objects.object_report import ExplainContext
from shared.cli.objects.preview import AbsentObjectError, find_one
from shared.cli.output.words import describe_time, plural
from shared.cli.usage.findings import find_usage_kind
from shared.cli.usage.usage_report import print_usage
from shared.core.deadlines.decide_stop import StopDecision
from shared.core.decision.decide import Decision, Ignore
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef
from shared.errors import TtlError
from shared.installation.guard_status import read_guard
from shared.ports import JournalAction
from shared.safeguards.safeguards import Safeguard

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


async def explain_live(options: Options, target: tuple[str, ...], output: str) -> None:
    """Connect to the cluster, and print the decision about one object there.

    Raises:
        UsageError: The arguments are not one kind and one name.
        TtlError: The object cannot be read.
    """
    word, name = split_target(target, or_else=", or -f FILE")
    async with connected(options) as cluster:
        force = await read_in_force(cluster, options)
        if (usage_kind := find_usage_kind(word)) is not None:
            await _explain_usage(cluster, usage_kind, name, options=options, force=force, output=output)
            return
        chosen = force.choose(options.policy)
        rules, _ = parse_target(target, force.kinds)
        rule = await find_rule(cluster, rules, target[0])
        place = namespace_of(options) if rule.scope == "Namespaced" else ""
        try:
            async with opened_archives(force, chosen) as archives:
                one = await find_one(
                    cluster,
                    rule,
                    kinds=force.kinds,
                    enabled=force.enabled,
                    namespace=place,
                    name=name,
                    policy=chosen.policy,
                    flags=force.flags,
                    archives=archives,
                )
        except AbsentObjectError as error:
            await _explain_gone(cluster, error, ref_to(rule, place, name), rule, chosen, force=force, output=output)
            return
        guard = await read_guard(cluster, force.kinds.of(rule.group, rule.kind), force.home)
        # A running object can only be stopped, and a finished one only be deleted.
        ahead = one.stop if one.stop and is_stop_ahead(one.stop) else if_archived(one.decision, one.now)
        may_be_due = isinstance(ahead, Ignore) and is_unsure(one.decision, chosen)
        obstacles = (
            *(stop for stop in find_stops(force, one.now) if may_be_due and stop.reason is not Safeguard.STOP_UNREAD),
            *find_obstacles(force, one.ref, rule, decision=ahead, now=one.now),
            *find_stale_guard(force, rule, one.decision, guard=guard),
            *await find_last_refusal(cluster, force, one.ref, decision=ahead, now=one.now),
        )
        print_explanations([(one, ExplainContext(chosen, obstacles, force.flags, guard))], output)
    if is_unsure(one.decision, chosen) or one.unread:
        raise SystemExit(1)


async def _explain_usage(
    cluster: "KubernetesCluster", rule: KindRule, name: str, *, options: Options, force: InForce, output: str
) -> None:
    """Print whether a Secret or a ConfigMap is used, and the decision about it."""
    try:
        await print_usage(cluster, rule, name, options=options, force=force, output=output)
    except AbsentObjectError as error:
        chosen, ref = force.choose(options.policy), ref_to(rule, namespace_of(options), name)
        await _explain_gone(cluster, error, ref, rule, chosen, force=force, output=output)


async def _explain_gone(
    cluster: "KubernetesCluster",
    error: TtlError,
    ref: ObjectRef,
    rule: KindRule,
    chosen: PolicyInForce,
    *,
    force: InForce,
    output: str,
) -> None:
    """Print what is known about an object that does not exist any more."""
    await explain_gone(
        error,
        ref,
        rule,
        chosen,
        identity=force.identity,
        flags=force.flags,
        output=output,
        deletion=await find_record(cluster, ref),
    )


async def find_last_refusal(
    cluster: "KubernetesCluster", found: InForce, ref: ObjectRef, *, decision: Decision | StopDecision, now: datetime
) -> tuple[Obstacle, ...]:
    """Find the newest refusal of exactly this object; none if the object is kept, or if the Events cannot be read.

    Args:
        cluster: The cluster.
        found: What is in force on the cluster.
        ref: The object.
        decision: The decision about it.
        now: The time by the API server's clock.
    """
    if isinstance(decision, Ignore):
        return ()
    try:
        entries = await find_entries_of(cluster, ref, JournalAction.REFUSE)
    except TtlError:  # its other obstacles do not depend on the Events
        return ()
    doctor = shlex.join(("kubectl", "ttl", "doctor", "-n", found.home, *found.flags))
    cure = f"follow the answer; to check the rights: `{doctor}`"

    def obstacles() -> Iterator[Obstacle]:
        for one in entries.named:
            if one.ref.uid == ref.uid:
                message = f"{one.note.replace('refused', f'refused {describe_time(one.at, now)}', 1)} ({one.reason})"
                yield Obstacle(ObstacleReason.REFUSED, message, cure, since=one.at)
                return
        if entries.counted:
            count = plural(entries.count, f"refusal of kind {ref.kind}", f"refusals of kind {ref.kind}")
            message = f"it may be among {count} in its namespace that Events only count"
            yield Obstacle(ObstacleReason.REFUSED, message, cure, since=entries.counted[0].at)

    return tuple(obstacles())
