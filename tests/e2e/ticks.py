"""Ticks: one posted to the Broker as a PingSource sends it, and the first one that Knative's own adapter sends.

Knative reports readiness before it delivers each event. A PingSource is Ready if the Deployment of its adapter is
available, whether or not the adapter sends anything.
"""

import itertools
from collections.abc import Callable

from tests.e2e.cluster import wait
from tests.e2e.installation import PING_ADAPTER, broker_url, events, restart
from tests.e2e.post import post

DELIVERED_SECONDS = 120
LEASE_SECONDS = 100
"""An adapter ticks once it has the Lease: within 22 s if the one before released it, and within 82 s if it did not."""

_numbers = itertools.count()


def tick(purpose: str = "sweep") -> None:
    """What the PingSource of a purpose sends."""
    type_ = "dev.knative.sources.ping"
    headers = {"Ce-Id": "tick", "Ce-Source": "/e2e", "Ce-Specversion": "1.0", "Ce-Type": type_, "Ce-Purpose": purpose}
    assert post(f"tick-{next(_numbers)}", broker_url(), {**headers, "Content-Type": "application/json"}, "{}") == 202


def wait_until_delivered() -> None:
    """Post ticks until a sweep ends: from then on the Broker delivers."""
    wait("the end of a sweep after a tick that was posted to the Broker", _swept, DELIVERED_SECONDS)


def wait_until_ticking(source: str, has_ticked: Callable[[], bool]) -> None:
    """Wait for the first tick of a PingSource; if the Broker delivers and none comes, restart the adapter once."""
    what = f"the first tick of PingSource {source}"
    try:
        wait(what, has_ticked, LEASE_SECONDS)
    except AssertionError as error:
        print(f"{error}; restarting {PING_ADAPTER}")
        restart(f"deployment/{PING_ADAPTER}")
        wait(f"{what} after a restart of {PING_ADAPTER}", has_ticked, LEASE_SECONDS)


def _swept() -> bool:
    tick()
    try:
        return bool(wait("the Event of a sweep", lambda: events("Swept"), 10))
    except AssertionError:
        return False
