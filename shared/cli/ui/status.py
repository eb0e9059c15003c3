"""The state of the deleters in the document of the page: policy, leaders, safeguards and the last sweep."""

from collections.abc import Iterator
from typing import Any

from shared.cli.deleters.obstacles import find_stops
from shared.cli.objects.time_text import instant_as_json
from shared.cli.ui.cluster_view import ClusterView
from shared.cli.ui.json_text import short
from shared.core.policy.limits import BreakerLimits, Rate
from shared.installation.leader import Leader

LOOPS_SHOWN_MAX = 10
"""The names in a recreate loop that are listed."""


def status_as_json(view: ClusterView) -> dict[str, Any]:
    """Return the documented JSON of the state of the deleters."""
    force, limits = view.force, view.chosen.policy.limits
    sweep = view.last_sweep
    loops = {name: until for state in force.states for name, until in state.contents.loops.items()}
    active = sorted((name, until) for name, until in loops.items() if until > view.read_at)
    return {
        "policy": short(view.chosen.message),
        "installed": None
        if force.installed is None
        else {"namespace": force.home, "dryRun": force.installed.dry_run, "kinds": list(force.installed.kinds_named)},
        "leaders": [_leader(state.leader) for state in force.states if state.leader],
        "obstacles": [_shortened(one.as_json()) for one in find_stops(force, view.read_at)],
        "breaker": {
            "open": any(state.contents.trip for state in force.states),
            "limits": _breaker(limits.breaker),
            "deletionsInWindow": view.recent,
        },
        "stopped": any(state.contents.stop for state in force.states),
        "budget": {"global": _rate(limits.everywhere), "perNamespace": _rate(limits.per_namespace)},
        "recreateLoops": [
            {"name": short(name), "until": instant_as_json(until)} for name, until in active[:LOOPS_SHOWN_MAX]
        ],
        "lastSweep": None
        if sweep is None
        else {"at": instant_as_json(sweep.at), "complete": sweep.is_complete, "message": short(sweep.message)},
    }


def _leader(leader: Leader) -> dict[str, Any]:
    return {
        "namespace": leader.namespace,
        "holder": short(leader.holder) or None,
        "leads": leader.leads,
        "renewedAt": instant_as_json(leader.renewed_at),
        "handles": short(str(leader.scope)) if leader.scope else None,
    }


def _breaker(limits: BreakerLimits) -> dict[str, Any] | None:
    if limits.count is None and limits.share is None:
        return None
    window = limits.window.total_seconds()
    return {"count": limits.count, "share": limits.share, "atLeast": limits.at_least, "windowSeconds": window}


def _rate(rate: Rate | None) -> dict[str, Any] | None:
    return {"perSecond": rate.per_second, "burst": rate.burst} if rate else None


def _shortened(fields: dict[str, Any]) -> dict[str, Any]:
    return dict(_shorten(fields))


def _shorten(fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        yield name, short(value) if isinstance(value, str) else value
