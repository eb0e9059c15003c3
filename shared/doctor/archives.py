"""Check the archives of the policy: their rights, their clocks, and the objects that wait for them."""

import heapq
import os
import shlex
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from shared.adapters.archive.archive import ProbeResult, StoreArchive
from shared.adapters.archive.open_archive import open_archive
from shared.adapters.archive.webhook import WebhookArchive
from shared.bootstrap.archives import OpenedArchives
from shared.core.archive.copies import CLOCK_DIFFERENCE_MAX
from shared.core.archive.decide_archive import ToArchive
from shared.core.archive.document import digest_of
from shared.core.archive.identity import HOME_OF_ID
from shared.core.archive.layout import ArchiveKey, prefix_of
from shared.core.decision.finish import finish_of
from shared.core.decision.reasons import Reason
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.policy.archives import ArchiveDestination
from shared.core.policy.policy import Policy
from shared.core.values.objects import ref_of
from shared.core.values.timing import format_duration
from shared.doctor.findings import Finding, Level, fail, ok, unknown, warn
from shared.doctor.server import SKEW_MAX
from shared.errors import ForbiddenError, OtherArchiveError, PermanentError, TryLaterError, TtlError
from shared.evaluation.archive_identity import ClusterIdentity, IdentifiedArchive, IdentifiedArchives
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.namespaces_and_owners import list_served
from shared.installation.place import Place
from shared.ports import ArchiveIds, Archives, Clock, Cluster, Page, Snapshot
from shared.safeguards.archive_ids import ReadArchiveIds

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

    Such an object is kept until its archive acknowledges it.

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


_ENVIRONMENT = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_SERVICE_ACCOUNT_KEY",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


@dataclass(frozen=True, slots=True)
class ArchivePolicy:
    """The policy whose archives are checked.

    Attributes:
        policy: The policy.
        name: Its file or ConfigMap.
        is_local: Whether it is a file of this machine, so that a `run` here uses the same folders and credentials.
        cluster: The name of the cluster in the archives.
        ids: The ids of the archives, as the processes remember them.
    """

    policy: Policy
    name: str
    is_local: bool
    cluster: str
    ids: ArchiveIds = field(default_factory=lambda: ReadArchiveIds(()))


async def check_archives(
    cluster: Cluster, kinds: Catalogue, given: ArchivePolicy, clock: Clock, *, place: Place
) -> list[Finding]:
    """Check each archive of a policy, and find the oldest object that waits for its archive.

    Args:
        cluster: The cluster, with the operator's credentials.
        kinds: All known kinds.
        given: The policy.
        clock: This machine's clock.
        place: The installation.
    """
    findings: list[Finding] = []
    identity = ClusterIdentity.of(given.cluster, cluster)
    if any(one.native is None for one in given.policy.archives.values()):
        findings.append(await _check_cluster(identity, given, place))
    for name, destination in given.policy.archives.items():
        if destination.url is not None:
            findings += await _check_store(name, destination, given, clock, place=place)
        elif destination.webhook is not None:
            findings.append(await _check_webhook(name, destination.webhook, given, clock=clock))
        else:
            detail = (
                "the annotations of Tekton Results are the acknowledgement; nothing is stored by ttl-after-finished"
            )
            findings.append(ok(f"archive {name}", detail))
    if findings and all(one.level is Level.OK for one in findings):
        opened = OpenedArchives(identity)
        archives = IdentifiedArchives(opened, given.ids, clock.now)
        try:
            findings.append(await check_unacknowledged(cluster, kinds, given.policy, archives, place))
        finally:
            await _close(opened, given.policy.archives)
    return findings


async def _check_cluster(identity: ClusterIdentity, given: ArchivePolicy, place: Place) -> Finding:
    """Read the id of the cluster, without which nothing is archived."""
    what = "archive: cluster"
    try:
        here = await identity.find()
    except TtlError as error:
        problem = fail if given.is_local else warn
        return problem(what, str(error), place.command("auth", "can-i", "get", f"namespace/{HOME_OF_ID}"))
    return ok(what, f"{here}: the keys of its documents begin with {prefix_of(here.part)}")


async def _close(archives: OpenedArchives, destinations: Mapping[str, ArchiveDestination]) -> None:
    """Close the connections to the archives that have any of their own."""
    for name, destination in destinations.items():
        if destination.webhook is None:
            continue
        if isinstance(archive := await archives.open(name, destination), WebhookArchive):
            await archive.close()


async def _check_store(
    name: str, destination: ArchiveDestination, given: ArchivePolicy, clock: Clock, *, place: Place
) -> list[Finding]:
    """Write, read, list and delete a probe, and compare the clock of the store with that of this machine."""
    what, url = f"archive {name}", destination.url or ""
    if urlsplit(url).scheme == "file" and not given.is_local:
        detail = f"cannot be checked: {url} is a folder of the Pods, not of this machine"
        return [warn(what, detail, place.command("get", "pods", "-o", "wide"))]
    encryption = destination.encryption
    options = encryption.model_dump(by_alias=True, exclude_none=True) if encryption else None
    sent_at = clock.now()
    try:
        archive = open_archive(name, url, options)
        if other := await _find_other(archive, given):
            adopt = shlex.join(("kubectl", "ttl", "archive", "adopt", "--archive", name, *place.options))
            return [fail(what, other, f"{adopt}    # only if this destination is the right one")]
        result = await archive.probe(_probe_name())
    except PermanentError as error:
        return [fail(what, str(error), f"correct the archive in {given.name}")]
    received_at = clock.now()
    if "write" in result.problems:
        return [_explain_write(what, result.problems["write"], url, given)]
    findings = [_explain_rights(what, result, destination, url=url)]
    if result.stored_at is not None:
        findings.append(compare_store_clock(what, sent_at, result.stored_at, received_at))
    return findings


async def _find_other(archive: StoreArchive, given: ArchivePolicy) -> str:
    """Return why the destination is not the archive that is expected; empty if it is, or if that cannot be read."""
    try:
        await IdentifiedArchive(archive, given.ids).identify()
    except OtherArchiveError as error:
        return str(error)
    except TtlError:  # the probe explains it
        return ""
    return ""


def _probe_name() -> str:
    return f"{os.uname().nodename}-{os.getpid()}-{time.time_ns()}"


def _explain_write(what: str, error: TtlError, url: str, given: ArchivePolicy) -> Finding:
    parts = urlsplit(url)
    if isinstance(error, ForbiddenError) or _has_no_credentials(error):
        variables = _ENVIRONMENT.get(parts.scheme)
        fix = f"set {variables} of an account that may write, and run doctor again"
        if variables is None:
            fix = f"allow this account to read and write {url}"
        if given.is_local:
            return fail(what, f"cannot write: {error}", fix)
        return warn(what, f"cannot be checked with the credentials of this machine: {error}", fix)
    fix = f"check that {url} can be reached, and that it has room"
    if isinstance(error, TryLaterError):
        return fail(what, f"does not accept a write now, so nothing is archived and deleted: {error}", fix)
    fix = f"correct the archive in {given.name}"
    if parts.scheme == "file" and not (parent := Path(unquote(parts.path)).parent).exists():
        fix = f"mkdir -p {shlex.quote(str(parent))}"
    return fail(what, f"cannot write: {error}", fix)


def _has_no_credentials(error: TtlError) -> bool:
    """Return whether a bucket was asked without credentials, which counts as an outage of the archive."""
    return isinstance(error, TryLaterError) and error.outage.startswith("no credentials")


def _explain_rights(what: str, result: ProbeResult, destination: ArchiveDestination, *, url: str) -> Finding:
    problems: Mapping[str, TtlError] = result.problems
    needed = {step: error for step, error in problems.items() if step != "delete"}
    if needed:
        step, error = next(iter(needed.items()))
        detail = f"a document can be written, and {step} fails: {error}; without it, no object is deleted"
        return fail(what, detail, f"grant the right to {step} on {url}")
    if "delete" in problems and destination.keep is not None:
        detail = f"write, read and list work; delete does not, and `archive prune` needs it: {problems['delete']}"
        fix = f"use the lifecycle rules of the bucket (`kubectl ttl archive lifecycle`), or grant delete on {url}"
        return warn(what, f"{detail}; the probe {result.location} was left there", fix)
    if "delete" in problems:
        return ok(what, f"{url}: write, read and list work; delete does not: `archive prune` needs it")
    return ok(what, f"{url}: write, read, list and delete of a probe work")


def compare_store_clock(what: str, sent_at: datetime, stored_at: datetime, received_at: datetime) -> Finding:
    """Compare the clock of a store with this machine's clock.

    Args:
        what: The name of the check.
        sent_at: When the write was sent, by this machine's clock.
        stored_at: When the store accepted it, by its own clock, rounded up to a whole second.
        received_at: When the write was answered, by this machine's clock.
    """
    ahead, behind = stored_at - timedelta(seconds=1) - received_at, sent_at - stored_at
    apart = max(ahead, behind)
    if apart <= SKEW_MAX:
        return ok(f"{what}: clock", "the store and this machine agree to two seconds")
    level = warn
    if ahead > CLOCK_DIFFERENCE_MAX:
        level, side, effect = fail, "ahead of", "what it stores does not count, so due objects are kept (not-archived)"
    elif ahead > behind:
        side, effect = "ahead of", "the grace counts from its clock, so objects are deleted later by as much"
    else:
        side, effect = "behind", "the times of `archive ls` are too early by as much; no grace is shorter"
    detail = f"the store is at least {apart.total_seconds():.1f} s {side} this machine: {effect}"
    return level(f"{what}: clock", detail, "timedatectl set-ntp true    # on the machine whose clock is wrong")


async def _check_webhook(name: str, webhook: str, given: ArchivePolicy, *, clock: Clock) -> Finding:
    """Ask the archiver about a version that has never been archived: it should answer that it does not hold it."""
    what = f"archive {name}"
    archive = WebhookArchive(name, webhook)
    key = ArchiveKey(given.cluster, "", "v1", "Probe", clock.now().date(), "probe", "probe", "0", digest_of(b"probe"))
    url = archive.location
    fix = f"check that {url} can be reached, and that it answers 404 about an object that it does not hold"
    try:
        held = await archive.confirm(key)
    except ForbiddenError as error:
        return fail(what, str(error), f"grant the archiver's right to this caller: {url}")
    except TryLaterError as error:
        problem = warn if not given.is_local else fail
        return problem(what, f"cannot be reached from this machine: {error}", fix)
    except PermanentError as error:
        return fail(what, str(error), fix)
    finally:
        await archive.close()
    if held is not None:
        return fail(what, f"{url} says that it holds an object that does not exist: nothing that it says counts", fix)
    return ok(what, f"{url} answers, and does not hold an object that does not exist")
