"""Read from a cluster what the page shows: objects, deletions, and the state of the deleters; not too often."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.state_configmap import ConfigMapState
from shared.cli.deleters.in_force import InForce, PolicyInForce, opened_archives, read_in_force
from shared.cli.input.options import Options
from shared.cli.objects.journal import FoundEntries, find_entries
from shared.cli.objects.preview import Preview, describe_unread
from shared.cli.planning.due_rows import By, DueRow, Pile, count_piles, count_rows
from shared.cli.planning.plan_preview import NamedKinds, preview_kinds
from shared.cli.planning.plan_view import forecast
from shared.core.decision.decide import Ignore, find_fate
from shared.core.kinds.rule import KindRule
from shared.core.policy.policy import Policy
from shared.core.values.objects import ObjectRef
from shared.errors import TtlError
from shared.evaluation.batch import BatchResult
from shared.installation.inventory import ABOUT_INSTALLATION, LastSweep, find_last_sweep, path_of, read_list
from shared.safeguards.deletion_counts import DeletionCounts

DELETED_SINCE = timedelta(hours=24)
"""How far back deletions are shown; most API servers keep an Event for one hour."""

DELETIONS_KEPT_MAX = 100
"""Events of deletions, and Events that only count them, that are kept of each namespace: a user can forge many."""


_LAST_SWEEP, _POLICY = "last sweep", "policy"


@dataclass(frozen=True, slots=True)
class KindPlace:
    """A kind in a namespace: the unit for which the API server grants `list`.

    Attributes:
        group: The API group of the kind.
        plural: The resource name of the kind.
        namespace: The namespace; empty if the kind is cluster-scoped.
    """

    group: str
    plural: str
    namespace: str


@dataclass(frozen=True, slots=True)
class ObjectGroup:
    """The objects of one kind in one namespace.

    Attributes:
        rule: The kind rule.
        place: The kind and the namespace.
        row: The counts by term.
        windows: How many objects are due now, in each window of the forecast, and later.
        pile: The finished objects; None if there are none.
        kept: How many objects are kept, by reason.
        examples: The first objects of each reason.
    """

    rule: KindRule
    place: KindPlace
    row: DueRow
    windows: Sequence[int]
    pile: Pile | None
    kept: Mapping[str, int]
    examples: Mapping[str, Sequence[ObjectRef]]


@dataclass(frozen=True, slots=True)
class UnreadPart:
    """What could not be read.

    Attributes:
        about: A kind, or what else could not be read.
        problem: Why.
        is_public: Whether every user of the page may see it: it names no object.
        is_status: Whether it is about the state of the deleters: a user who may not see that sees `HIDDEN` instead.
    """

    about: str
    problem: str
    is_public: bool = True
    is_status: bool = False


HIDDEN = UnreadPart("state", "the policy or the state could not be read, or is not certain; you may not see why")
"""What a user sees of problems with the state of the deleters without the right to see it."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What was read from a cluster.

    Attributes:
        server: The API server's URL.
        read_at: When the objects were read, by this machine's clock.
        force: What is in force.
        chosen: The policy that decides.
        groups: The objects by kind and namespace.
        deletions: The recent deletions.
        last_sweep: The last sweep; None if no Event shows one.
        recent: The deletions of all processes within the breaker's window; None if that is unknown.
        unread: What could not be read.
    """

    server: str
    read_at: datetime
    force: InForce
    chosen: PolicyInForce
    groups: Sequence[ObjectGroup]
    deletions: FoundEntries
    last_sweep: LastSweep | None
    recent: int | None
    unread: Sequence[UnreadPart]

    @property
    def is_complete(self) -> bool:
        """Return whether everything could be read; a policy that differs from the one in force was."""
        return all(one.about == _POLICY and self.chosen.is_known for one in self.unread)


async def read_cluster_view(cluster: KubernetesCluster, options: Options) -> ClusterView:
    """Read everything that the page shows. What cannot be read is in the result.

    Args:
        cluster: The cluster, with the rights of the operator or of this Pod.
        options: The namespace and the kinds to read; the policy to apply.

    Raises:
        TtlError: The policy file or a kind rule is invalid, or the API server cannot be reached.
    """
    now = SystemClock().now()
    force = await read_in_force(cluster, options)
    chosen = force.choose(options.policy)
    (preview, objects_problem), (deletions, events_problem), (sweep, sweep_problem), recent = await asyncio.gather(
        _read_objects(cluster, options, force, chosen),
        _read_deletions(cluster, options.namespace, now),
        _read_last_sweep(cluster, force),
        _count_recent(cluster, force, chosen.policy, now),
    )
    problems = {"objects": objects_problem, "deletions": events_problem, _LAST_SWEEP: sweep_problem}
    unread = [
        *(UnreadPart(about, text, is_status=about == _LAST_SWEEP) for about, text in problems.items() if text),
        *_find_unread(preview, force, chosen),
    ]
    groups = await asyncio.to_thread(group_objects, preview.objects)
    return ClusterView(cluster.server, now, force, chosen, groups, deletions, sweep, recent, unread)


async def _read_objects(
    cluster: KubernetesCluster, options: Options, force: InForce, chosen: PolicyInForce
) -> tuple[Preview, str]:
    named = NamedKinds.choose(options.kinds)
    try:
        async with opened_archives(force, chosen) as archives:
            preview, _ = await preview_kinds(
                cluster,
                force.kinds,
                [chosen.policy],
                named=named,
                namespace=options.namespace,
                archives=archives,
            )
    except TtlError as error:
        return Preview([], []), str(error)
    return preview, ""


def _find_unread(preview: Preview, force: InForce, chosen: PolicyInForce) -> Iterator[UnreadPart]:
    """Yield what is missing in the numbers."""
    for rule, error in preview.refused:
        yield UnreadPart(rule.name, str(error))
    if preview.unreadable:
        text = f"{len(preview.unreadable)} objects cannot be read and are kept, such as {preview.unreadable[0].ref}"
        yield UnreadPart("objects", text, is_public=False)
    for text in describe_unread(preview.objects):
        yield UnreadPart("objects", text, is_public=False)
    if not chosen.is_known or chosen.differs:
        yield UnreadPart(_POLICY, chosen.message, is_status=True)
    for state in force.states:
        if state.problem:
            yield UnreadPart(f"state in namespace {state.namespace}", state.problem, is_status=True)


async def _read_deletions(cluster: KubernetesCluster, namespace: str, now: datetime) -> tuple[FoundEntries, str]:
    try:
        found = await find_entries(cluster, namespace=namespace, since=now - DELETED_SINCE, most=DELETIONS_KEPT_MAX)
    except TtlError as error:
        return FoundEntries([], []), str(error)
    more = f"{found.left_out} older deletions are left out: at most {DELETIONS_KEPT_MAX} of a namespace are read"
    return found, more if found.left_out else ""


async def _read_last_sweep(cluster: KubernetesCluster, force: InForce) -> tuple[LastSweep | None, str]:
    """Find the newest sweep of the installation and of each `run`."""
    namespaces = [state.namespace for state in force.states]
    lists = await asyncio.gather(
        *(read_list(cluster, path_of("v1/events", one), fieldSelector=ABOUT_INSTALLATION) for one in namespaces)
    )
    sweep = find_last_sweep(event for listed in lists for event in listed.items)
    problem = next((listed.problem for listed in lists if listed.problem), "")
    return sweep, "" if sweep else problem


async def _count_recent(cluster: KubernetesCluster, force: InForce, policy: Policy, now: datetime) -> int | None:
    """Count the deletions that all processes with this policy wrote to their shared state."""
    counts: list[int] = []
    for state in force.states:
        with suppress(TtlError):  # the state of the namespace has the same problem
            counted = DeletionCounts(policy.limits.breaker)
            counted.learn(await ConfigMapState(cluster, state.namespace).read(), now, is_written=False)
            counts.append(counted.total(now))
    return sum(counts) if counts else None


class CachedView:
    """The newest view of a cluster, for any number of readers.

    Args:
        read: Reads the cluster.
        seconds: How long a view is used. For as long again, readers get the old view while a new one is read.
        monotonic: A clock, in seconds.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[ClusterView]],
        *,
        seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._seconds, self._monotonic = read, seconds, monotonic
        self._view: ClusterView | None = None
        self._read_at = 0.0
        self._reading: asyncio.Task[ClusterView] | None = None

    async def get(self) -> ClusterView:
        """Return the view; if it is too old, wait for a new one.

        Raises:
            TtlError: The cluster cannot be read.
        """
        age = self._monotonic() - self._read_at
        if self._view is not None and age < self._seconds:
            return self._view
        reading = self._start()
        if self._view is not None and age < 2 * self._seconds:
            return self._view
        return await asyncio.shield(reading)  # a reader that leaves must not end it for the others

    async def close(self) -> None:
        """Stop reading."""
        if self._reading:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def _start(self) -> asyncio.Task[ClusterView]:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._renew())
            self._reading.add_done_callback(_ignore_error)
        return self._reading

    async def _renew(self) -> ClusterView:
        view = await self._read()
        self._view, self._read_at = view, self._monotonic()
        return view


def _ignore_error(task: asyncio.Task[ClusterView]) -> None:
    """Mark the error of a read as seen: each reader that waits gets it, and maybe no reader waits."""
    if not task.cancelled():
        task.exception()


STEP_HOURS = 1
"""The hours of a window of the forecast."""

EXAMPLES_MAX = 3
"""Objects that are named for each reason."""


def group_objects(objects: Iterable[BatchResult]) -> list[ObjectGroup]:
    """Count the objects of each kind and namespace."""
    members: defaultdict[tuple[str, str], list[BatchResult]] = defaultdict(list)
    for one in objects:
        members[one.rule.name, one.ref.namespace].append(one)
    return [_group(found) for found in members.values()]


def _group(members: Sequence[BatchResult]) -> ObjectGroup:
    rule, namespace = members[0].rule, members[0].ref.namespace
    kept, examples = Counter[str](), defaultdict[str, list[ObjectRef]](list)
    for one in members:
        fate = find_fate(one.decisions[0])
        if isinstance(fate, Ignore):
            reason = str(fate.reason)
            kept[reason] += 1
            if len(examples[reason]) < EXAMPLES_MAX:
                examples[reason].append(one.ref)
    (row,) = count_rows(members, By.KIND)
    piles = count_piles(members, By.KIND)
    windows = [bar.count for bar in forecast(members, STEP_HOURS)]
    place = KindPlace(rule.group, rule.plural, namespace)
    return ObjectGroup(rule, place, row, windows, piles[0] if piles else None, kept, examples)
