"""Check the safeguards that keep due objects: the brake, the breaker, and names in a recreate loop."""

import shlex
from datetime import datetime

from shared.core.objects import get_in
from shared.core.ttl.durations import format_duration
from shared.doctor.findings import Finding, fail, ok, unknown, warn
from shared.installation.inventory import Inventory
from shared.installation.place import Place
from shared.safeguards.state_schema import NAME, StateContents, parse_state

_NAMES_SHOWN = 3


def check_safeguards(found: Inventory, now: datetime, place: Place) -> list[Finding]:
    """Check the safeguards in the shared state of a namespace.

    Args:
        found: The inventory of the namespace.
        now: The time, by the API server's clock.
        place: The namespace.
    """
    if problem := found.parts["ConfigMap"].problem:
        return [unknown(one, problem, place) for one in ("stop", "breaker", "recreate loops")]
    data = get_in(found.get("ConfigMap", NAME), "data")
    texts = {name: text for name, text in data.items() if isinstance(text, str)} if isinstance(data, dict) else {}
    contents = parse_state(texts)
    return [_check_stop(contents, place), _check_breaker(contents, now, place), _check_loops(contents, now, place)]


def _check_stop(contents: StateContents, place: Place) -> Finding:
    """Check the brake: whether a person stopped all deletions."""
    stop = contents.stop
    if stop is None:
        return ok("stop", "not set")
    start = shlex.join(("kubectl", "ttl", "start", "-n", place.namespace, *place.options))
    return fail("stop", f"nothing is deleted {stop}", start)


def _check_breaker(contents: StateContents, now: datetime, place: Place) -> Finding:
    """Check the breaker: whether it is open, and so stops all deletions."""
    trip = contents.trip
    if trip is None:
        return ok("breaker", "closed")
    since = ""
    if trip.at:
        ago = now.replace(microsecond=0) - trip.at.replace(microsecond=0)
        since = f" since {trip.at:%Y-%m-%d %H:%M:%S} UTC ({format_duration(ago)} ago)"
    by = f", reported by {trip.by}" if trip.by else ""
    words = ("kubectl", "ttl", "release", "--breaker", "-n", place.namespace, *place.options)
    release = f"{shlex.join(words)}    # first see what would be deleted: kubectl ttl plan"
    kept = contents.name_kept(_NAMES_SHOWN)
    return fail("breaker", f"open: nothing is deleted{since}: {trip.why}{by}{kept}", release)


def _check_loops(contents: StateContents, now: datetime, place: Place) -> Finding:
    """Check the names in a recreate loop: their objects come back after each deletion, so they are kept for a while."""
    names = sorted(name for name, until in contents.loops.items() if until > now)
    if not names:
        return ok("recreate loops", "none")
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    shown = ", ".join(names[:_NAMES_SHOWN])
    detail = f"recreated after each deletion, and kept for a while: {shown}{more}"
    show = f"{place.kubectl} get events -A --field-selector reason=RecreateLoop"
    return warn("recreate loops", detail, show)
