"""What the rules with `unused` of a policy would delete, for `plan`; and the acceptance of such a plan.

After it, `doctor` no longer warns about the rules that the plan showed.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from shared.adapters.kubernetes.state_configmap import ConfigMapState
from shared.cli.deleters.brakes import find_user
from shared.cli.input.options import Options
from shared.cli.input.target import connected
from shared.cli.output.printing import echo, inform, warn
from shared.cli.output.tables import make_table, output_console
from shared.cli.usage.findings import UsageFinding, carriers_of, find_all_usage
from shared.cli.usage.usage_report import describe_never_used, usage_as_json
from shared.core.policy.policy import Policy
from shared.core.usage.unused_reasons import UnusedReason as Reason
from shared.core.values.objects import get_text, printable
from shared.core.values.timing import format_duration
from shared.errors import TtlError
from shared.evaluation.usage_reader import UsageReader
from shared.safeguards.state_schema import NAME, AcceptedPlan, hash_unused_rules, with_accepted_plan

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster

_TITLES = ("NAMESPACE", "KIND", "DUE NOW", "WITHIN 1H", "LATER", "NOT MARKED", "AUDIT ONLY", "NEVER USED", "OTHERS")
_SOON = timedelta(hours=1)
_NOT_MARKED = (Reason.NEWLY_UNUSED, Reason.CHANGED)
_NOT_PLANNED = (Reason.NOT_ENABLED, Reason.NOT_OPTED_IN)

accept_option = click.option(
    "--accept",
    is_flag=True,
    help="Record that you have seen what the rules with `unused` would delete. Then `doctor` warns about none of them "
    "until it changes. Not with --namespace or --kinds.",
)


@dataclass(frozen=True, slots=True)
class PlannedUsage:
    """The unused Secrets and ConfigMaps that the rules with `unused` of a policy match.

    Attributes:
        findings: The objects; empty if the policy has no such rule.
        problem: Why it is unknown what is unused; empty if it is known.
        is_asked: Whether the policy has such a rule.
    """

    findings: Sequence[UsageFinding] = ()
    problem: str = ""
    is_asked: bool = False

    @property
    def at_once(self) -> Mapping[str, int]:
        """The number of objects that are deleted at once, by rule.

        These are the objects that are due, and those that are not marked yet: the first pass marks all of them, so they
        are due at one instant.
        """
        due = (one for one in self.findings if _column(one) in ("DUE NOW", "NOT MARKED") and not _is_audit(one))
        return Counter(f"{one.decision.facts.rule.source} (unused)" for one in due if one.decision.facts.rule)

    def as_json(self) -> list[dict[str, Any]]:
        """Return the documented JSON of the objects that are deleted, now or later, only reported, or never used."""
        return [usage_as_json(one) for one in self.findings if _column(one) != "OTHERS"]


NOTHING_PLANNED = PlannedUsage()


async def find_planned(cluster: "KubernetesCluster", options: Options, policy: Policy) -> PlannedUsage:
    """Make a pass, and decide about what is unused, if a rule of the policy has unused objects deleted.

    Raises:
        TtlError: Secrets or ConfigMaps cannot be listed.
    """
    if options.kinds or not any(rule.unused for rule in policy.rules):
        return NOTHING_PLANNED
    reader = UsageReader(cluster, carriers_of(options))
    found, findings = await find_all_usage(reader, cluster, namespace=options.namespace, policy=policy)
    planned = [one for one in findings if one.decision.facts.rule and one.decision.reason not in _NOT_PLANNED]
    return PlannedUsage(planned, found.of.find_problem(), is_asked=True)


def print_planned(planned: PlannedUsage) -> None:
    """Print how many unused objects of each namespace and kind are due, and when."""
    if not planned.is_asked:
        return
    groups: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in planned.findings:
        names = get_text(one.target.obj, "metadata.namespace"), get_text(one.target.obj, "kind")
        groups[names][_column(one)] += 1
    rows = [(*names, *(str(counts[title]) for title in _TITLES[2:])) for names, counts in sorted(groups.items())]
    if rows:
        console = output_console()
        console.print(make_table(_TITLES, rows, width=console.width, names=2, gap=2))
    totals = sum(groups.values(), Counter[str]())
    due = min((at for one in planned.findings if (at := one.decision.facts.due_at)), default=None)
    unused = f"{totals['DUE NOW']} due now, {totals['WITHIN 1H'] + totals['LATER']} due later"
    echo(f"unused: {unused}, {totals['NOT MARKED']} not marked yet{_next(due, planned)}; two passes confirm each")
    if never := [one for one in planned.findings if one.is_never_used]:
        echo(f"{describe_never_used(never)}; to list them: kubectl ttl unused")


def warn_about_planned(planned: PlannedUsage) -> None:
    """Warn that it is unknown what is unused."""
    if planned.problem:
        warn(f"it is unknown what is unused, so nothing unused is deleted: {printable(planned.problem)}", fg="yellow")


def _next(due: datetime | None, planned: PlannedUsage) -> str:
    now = planned.findings[0].now if planned.findings else None
    return f", the next in {format_duration(due - now)}" if due and now and due > now else ""


def _column(one: UsageFinding) -> str:
    """Return the column of the table that counts an object."""
    reason, due_at = one.decision.reason, one.decision.facts.due_at
    if reason is Reason.NEVER_USED:
        return "NEVER USED"
    if reason in _NOT_MARKED:
        return "NOT MARKED"
    if due_at is None:
        return "OTHERS"
    if _is_audit(one):
        return "AUDIT ONLY"
    if due_at <= one.now:
        return "DUE NOW"
    return "WITHIN 1H" if due_at - one.now <= _SOON else "LATER"


def _is_audit(one: UsageFinding) -> bool:
    rule = one.decision.facts.rule
    return rule is not None and rule.audits_unused


def check_scope(options: Options, *, accept: bool) -> None:
    """Check that a plan shows all objects if it is accepted.

    Raises:
        UsageError: It shows only some of them.
    """
    if accept and (options.namespace or options.kinds):
        raise click.UsageError("--accept: expected a plan of all namespaces and kinds: leave out -n and -k")


async def accept_plan(options: Options, policy: Policy, namespace: str, *, code: int) -> None:
    """Record in the shared state of an installation that the rules with `unused` of a policy were planned.

    Args:
        options: The cluster.
        policy: The policy that was planned.
        namespace: The namespace of the installation.
        code: The exit code of the plan, which is accepted if it is 0.

    Raises:
        UsageError: No rule has `unused`.
        TtlError: The plan is not complete, or it cannot be recorded.
    """
    hashes = hash_unused_rules(policy)
    if not hashes:
        raise click.UsageError("--accept: expected a policy that has rules with unused; this one has none")
    if code:
        raise TtlError(f"the plan is not accepted: expected exit code 0, got {code}; solve the problems above first")
    async with connected(options) as cluster:
        user, at = await find_user(cluster)
        plan = AcceptedPlan(at, user, frozenset(hashes.values()))
        try:
            await ConfigMapState(cluster, namespace).write(lambda data: with_accepted_plan(data, plan))
        except TtlError as error:
            expected = f"expected the right to get and update ConfigMap {namespace}/{NAME}"
            raise TtlError(f"the plan is not accepted: {expected}: {error}") from None
    inform(f"accepted: the plan of {', '.join(hashes)}; recorded in ConfigMap {namespace}/{NAME}")
