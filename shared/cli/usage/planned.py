"""What the rules with `unused` of a policy would delete, for `plan`."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from shared.cli.input.options import Options
from shared.cli.output.messages import warn
from shared.cli.output.tables import make_table, output_console
from shared.cli.output.width import echo
from shared.cli.usage.findings import UsageFinding, carriers_of, find_all_usage
from shared.cli.usage.usage_report import describe_never_used, usage_as_json
from shared.core.objects import get_text, printable
from shared.core.policy.policy import Policy
from shared.core.ttl.durations import format_duration
from shared.core.unused.unused_reasons import UnusedReason as Reason
from shared.evaluation.usage import UsageReader

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster

_TITLES = ("NAMESPACE", "KIND", "DUE NOW", "WITHIN 1H", "LATER", "NOT MARKED", "AUDIT ONLY", "NEVER USED", "OTHERS")
_SOON = timedelta(hours=1)
_NOT_MARKED = (Reason.NEWLY_UNUSED, Reason.CHANGED)
_NOT_PLANNED = (Reason.NOT_ENABLED, Reason.NOT_OPTED_IN)


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
