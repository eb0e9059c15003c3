"""Find the oldest finished object that its archive has not acknowledged: it is kept for as long."""

import heapq
import shlex
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.decide_archive import ToArchive
from shared.core.finish import finish_of
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.objects import ref_of
from shared.core.policy.policy import Policy
from shared.core.reasons import Reason
from shared.core.ttl.durations import format_duration
from shared.doctor.findings import Finding, fail, ok, unknown, warn
from shared.errors import TtlError
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.served import list_served
from shared.installation.place import Place
from shared.ports import Archives, Cluster, Page, Snapshot

CHECKED_MAX = 100
"""How many of the objects that finished first are looked up in the archive."""

UNARCHIVED_MAX = timedelta(minutes=10)
"""How long an object may wait for its archive before doctor reports a problem."""

_WHAT = "archive: oldest unacknowledged"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A finished object for which an archive may be wanted."""

    finished_at: datetime
    obj: dict[str, Any]
    rule: KindRule
    read_at: datetime

    def __lt__(self, other: "_Candidate") -> bool:
        return self.finished_at < other.finished_at


async def check_unacknowledged(
    cluster: Cluster, kinds: Catalogue, policy: Policy, archives: Archives, place: Place
) -> Finding:
    """Look up the objects that finished first, and report the first one that is not acknowledged.

    Args:
        cluster: The cluster, with the operator's credentials.
        kinds: The enabled kinds.
        policy: The policy.
        archives: The archives, with the credentials of this machine.
        place: The installation.
    """
    evaluator = Evaluator(cluster, kinds, lambda: policy, archives=archives)
    wanted = [rule for rule in kinds.rules if policy.archives_kind(rule) and not rule.never_finishes]
    try:
        served = await list_served(Catalogue(tuple(wanted)), cluster=cluster, namespace="")
        count, oldest = 0, list[_Candidate]()
        for rule in served:
            async for page in _pages(cluster, rule):
                found = list(_candidates(page, rule, evaluator))
                count += len(found)
                oldest = heapq.nsmallest(CHECKED_MAX, [*oldest, *found])
        for one in oldest:
            decision = (await evaluator.evaluate_archive(Snapshot(one.obj, one.read_at), one.rule)).decision
            if isinstance(decision, ToArchive) or decision.reason is Reason.NOT_ARCHIVED:
                return _report(one, decision.facts.problem, place)
    except TtlError as error:
        return unknown(_WHAT, str(error), place)
    if count > len(oldest):
        return ok(_WHAT, f"none of the {len(oldest)} that finished first, of {count} finished objects")
    return ok(_WHAT, f"none of {count} finished objects")


async def _pages(cluster: Cluster, rule: KindRule) -> AsyncIterator[Page]:
    token = ""
    while True:
        page = await cluster.list_page(rule, continue_token=token)
        yield page
        if not (token := page.continue_token):
            return


def _candidates(page: Page, rule: KindRule, evaluator: Evaluator) -> Iterator[_Candidate]:
    for obj in page.items:
        finish = finish_of(obj, rule)
        if finish.finished and finish.at is not None and evaluator.may_archive(obj, rule):
            yield _Candidate(finish.at, obj, rule, page.read_at)


def _report(one: _Candidate, problem: str, place: Place) -> Finding:
    ref = ref_of(one.obj)
    waiting = one.read_at - one.finished_at
    where = ("-n", ref.namespace) if ref.namespace else ()
    fix = shlex.join(("kubectl", "ttl", "explain", f"{one.rule.name}/{ref.name}", *where, *place.options))
    if problem:
        return warn(_WHAT, f"cannot be checked: {problem}", fix)
    detail = f"{ref}, finished {format_duration(waiting)} ago: it is kept until it is archived"
    if waiting <= UNARCHIVED_MAX:
        return ok(_WHAT, detail)
    return fail(_WHAT, detail, fix)
