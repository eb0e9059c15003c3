"""Views of a cluster for the tests of the page."""

from datetime import timedelta
from typing import Any

from shared.adapters.kubernetes.journal_events import Sum, event_of, event_of_sum, key_of
from shared.adapters.kubernetes.journal_reading import JournalEvent, parse_event
from shared.cli.deleters.in_force import InForce, NamespaceState, PolicyInForce
from shared.cli.objects.journal import FoundEntries
from shared.cli.objects.preview import find_all
from shared.cli.ui.cluster_view import ClusterView, UnreadPart, group_objects
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY
from shared.installation.inventory import LastSweep
from shared.installation.leader import Leader
from shared.safeguards.state_schema import StateContents, Trip
from tests.builders import JOB, NOW, POD, ago, job, kind_rules, later, not_none
from tests.fakes import FakeCluster
from tests.journals import entry

KINDS = Catalogue(tuple(kind_rules().values()))
SCRIPT = "<script>document.title='broken'</script>"
"""A text that must never become markup."""

FLEET = (
    *(job(name=f"due-{n}", uid=f"d{n}", namespace="ci", complete=ago(60), ttl=1) for n in range(3)),
    *(job(name=f"soon-{n}", uid=f"s{n}", namespace="ci", complete=ago(60), ttl=60 + 5_400) for n in range(2)),
    job(name="held", uid="h", namespace="web", complete=ago(60), ttl=1, hold="why"),
    job(name="forever", uid="f", namespace="web", failed=ago(600)),
    job(name="later", uid="l", namespace="web", complete=ago(60), ttl=999_999),
)


def read(event: dict[str, Any]) -> JournalEvent:
    return not_none(parse_event(event))


def deletions() -> FoundEntries:
    named = [read(event_of(entry("gone", place, ttl_from=SCRIPT), "x")) for place in ("ci", "web")]
    counted = [read(event_of_sum(key_of(entry()), Sum(7, NOW, later(2)), "x", number=1))]
    return FoundEntries(named, counted)


async def view_of(*objects: dict[str, Any], **fields: Any) -> ClusterView:
    """A view of a cluster with these objects, an open breaker, a leader and two deletions."""
    cluster = FakeCluster()
    for one in objects or FLEET:
        cluster.put(one)
    found = await find_all(cluster, (JOB, POD), policies=[NO_POLICY], kinds=KINDS, namespace="")
    usual: dict[str, Any] = {
        "server": "https://cluster",
        "read_at": NOW,
        "force": InForce("ttl", KINDS, states=[state()]),
        "chosen": PolicyInForce(NO_POLICY, why="nothing is installed"),
        "groups": group_objects(found.objects),
        "deletions": deletions(),
        "last_sweep": LastSweep(
            NOW - timedelta(minutes=3), is_complete=True, message="listed all objects of jobs.batch"
        ),
        "recent": 12,
        "unread": [UnreadPart("cronjobs.batch", "may not list"), UnreadPart("objects", "Job x/y", is_public=False)],
    }
    return ClusterView(**usual | fields)


def state() -> NamespaceState:
    trip = Trip(ago(90), f"too many {SCRIPT}", "sweep")
    leader = Leader("ttl", "pod-1/7", ago(3), NOW)
    return NamespaceState("ttl", StateContents(trip, {"Job.batch/ci/loop": later(600)}), leader)
