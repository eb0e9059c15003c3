"""Why what is due is not deleted, as far as a cluster tells: nobody deletes, or not this kind, or not now."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.cli.deleters.in_force import InForce, NamespaceState, PolicyInForce
from shared.core.decide import Decision, Ignore
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef, format_instant
from shared.core.ttl.durations import format_duration
from shared.doctor.findings import Place
from shared.installation.delete_guard import guard_name
from shared.installation.guard_status import GuardState
from shared.installation.installed import Installed
from shared.installation.leader import Leader
from shared.safeguards.recreation import name_of
from shared.safeguards.safeguards import Safeguard
from shared.safeguards.state_schema import Stop, Trip

DRY_RUN = "dry-run"
NOT_ENABLED = "kind-not-enabled"
OTHER_NAMESPACE = "namespace-not-enabled"
NOBODY = "nobody-deletes"
_NAMES_SHOWN = 5
STALE_GUARD = "delete-guard-stale"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason.

    Attributes:
        reason: In a word, for programs.
        message: In a sentence.
        cure: What to do, a command where there is one.
        since: When it began, where that is known.
        until: When it ends by itself, if it does.
    """

    reason: str
    message: str
    cure: str
    since: datetime | None = None
    until: datetime | None = None

    def as_json(self) -> dict[str, Any]:
        """The documented JSON."""
        instants = {"since": self.since, "until": self.until}
        return {
            "reason": self.reason,
            "message": self.message,
            **{name: at and format_instant(at) for name, at in instants.items()},
            "cure": self.cure,
        }


@dataclass(frozen=True, slots=True)
class ExplainContext:
    """What was found of the cluster, where one was asked.

    Attributes:
        named: The policy that the object is judged by.
        obstacles: What keeps it although it is due, now or later.
        flags: What leads kubectl there.
        guard: The state of the kind's delete guard; None where it could not be read.
    """

    named: PolicyInForce
    obstacles: Sequence[Obstacle] = ()
    flags: tuple[str, ...] = ()
    guard: GuardState | None = None


def find_obstacles(
    found: InForce, ref: ObjectRef, rule: KindRule, decision: Decision, now: datetime
) -> Iterator[Obstacle]:
    """What keeps an object that is due, now or later, from being deleted; nothing for one that stays anyway.

    Args:
        found: What is in force.
        ref: The object.
        rule: Its kind.
        decision: About it.
        now: By the API server's clock.
    """
    if isinstance(decision, Ignore):
        return
    yield from find_idle(found, ref, rule, decision)
    yield from find_open(found, now)
    until = looped_until(found, ref, now)
    if until is not None:
        yield _loop(ref, until, now, found)


def find_stale_guard(
    found: InForce, rule: KindRule, decision: Decision, guard: GuardState | None
) -> Iterator[Obstacle]:
    """That the API server may refuse the DELETE of what is due, since its policy is made from another rule."""
    if isinstance(decision, Ignore) or guard not in (GuardState.STALE, GuardState.ALTERED):
        return
    told = f"the API server may refuse the DELETE: {guard_name(rule)} is not what this version makes of the rule"
    place = Place(found.home, manifests="", options=found.flags)
    yield Obstacle(STALE_GUARD, told, f"`{place.guard([rule.name])}`")


def looped_until(found: InForce, ref: ObjectRef, now: datetime) -> datetime | None:
    """Until when an object is left alone since its name is in a recreate loop; None where it is in none."""
    known = [home.contents.loops for home in _active(found) if home.contents.loops]
    untils = [loops[name] for loops in known if (name := name_of(ref)) in loops]
    return max((until for until in untils if until > now), default=None)


def find_open(found: InForce, now: datetime) -> Iterator[Obstacle]:
    """What keeps everything: a stop, a breaker that is open, or that neither can be read, and a dry run."""
    installed = found.installed
    if installed and installed.dry_run and found.leader is None:
        told = f"the installation in namespace {found.home} deletes nothing: TTL_DRY_RUN is on"
        yield Obstacle(DRY_RUN, told, f"apply it with TTL_DRY_RUN=false: `{_command(found, 'doctor', found.home)}`")
    for home in _active(found):
        if home.contents.stop:
            yield _stopped(home, home.contents.stop, found)
        if home.contents.trip:
            yield _open(home, home.contents.trip, now, found)
    if problem := next((one.problem for one in _active(found) if one.problem), ""):
        cure = "ask somebody who may read ConfigMaps and Leases there"
        yield Obstacle(
            Safeguard.STOP_UNREAD, f"could not read whether deletions are stopped or a breaker is open: {problem}", cure
        )


def _active(found: InForce) -> Iterator[NamespaceState]:
    """Where what stands counts: with an installation or a `run`, or nobody knows whose it is."""
    leaders = [home.leader for home in found.homes if home.leader and home.leader.leads]
    for home in found.homes:
        is_installed = found.installed is not None and home.namespace == found.home
        is_elsewhere = home.leader in leaders and home.leader is not None and home.leader.state != home.namespace
        is_unknown = found.installed is None and not is_elsewhere
        if is_installed or is_unknown or any(one.state == home.namespace for one in leaders):
            yield home


def find_idle(found: InForce, ref: ObjectRef, rule: KindRule, decision: Decision) -> Iterator[Obstacle]:
    """That nobody deletes what is due, or nobody of its kind, or in its namespace."""
    ttl, installed = decision.facts.ttl, found.installed
    if rule.ttl and rule.ttl.honoured_by and ttl and ttl.origin == "native":
        return  # its own controller deletes it, too
    if found.leader is not None:
        left_out = _left_out(found.leader, ref, rule)
        if left_out and installed is None:
            yield left_out
        if left_out is None or installed is None:
            return
    if installed and installed.enabled is not None and rule.name not in installed.enabled:
        named = ",".join(installed.kinds_named)
        told = f"the installation in namespace {found.home} leaves {rule.name} alone: TTL_KINDS is {named}"
        yield Obstacle(NOT_ENABLED, told, f"let {rule.name} join: knative/README.md says how")
    if installed is None and not found.problem and not any(one.problem for one in found.homes):
        places = " or ".join(one.namespace for one in found.homes)
        told = f"nobody deletes it: nothing is installed in namespace {found.home}, and no `run` leads in {places}"
        yield Obstacle(NOBODY, told, "`ttl-after-finished run`, or an installation; another namespace: $TTL_NAMESPACE")
    if installed and _is_leaderless(found, installed):
        told = f"nobody deletes it: no Pod of Deployment {found.home}/standalone leads"
        yield Obstacle(NOBODY, told, f"`{_command(found, 'doctor', found.home)}` says why")


def _is_leaderless(found: InForce, installed: Installed) -> bool:
    """Whether an installation of one Deployment deletes nothing since none of its Pods leads."""
    if not installed.is_alone or installed.dry_run or any(one.problem for one in found.homes):
        return False
    home = next(one for one in found.homes if one.namespace == found.home)
    return not (home.leader and home.leader.leads)


def _left_out(leader: Leader, ref: ObjectRef, rule: KindRule) -> Obstacle | None:
    """That the `run` which leads does not handle the object; None where it does, or does not say what it handles."""
    scope, who = leader.scope, f"`run` {leader.holder}, which leads,"
    if scope is None:
        return None
    if scope.dry_run:
        return Obstacle(DRY_RUN, f"{who} deletes nothing: it is a dry run", "run it without --dry-run")
    if not scope.handles_kind(rule.name):
        told = f"{who} handles only {scope.named_kinds}, not {rule.name}"
        return Obstacle(NOT_ENABLED, told, f"run it with {rule.name} among its --kinds")
    if not scope.handles_namespace(ref.namespace):
        told = f"{who} handles only namespace {scope.namespace}"
        return Obstacle(OTHER_NAMESPACE, told, "run it without --namespace, or another one with a --lease-namespace")
    return None


def _stopped(home: NamespaceState, stop: Stop, found: InForce) -> Obstacle:
    told = f"deletions are stopped in namespace {home.namespace} {stop}"
    cure = f"`{_command(found, 'start', home.namespace)}` starts them again"
    return Obstacle(Safeguard.STOPPED, told, cure, since=stop.at)


def _open(home: NamespaceState, trip: Trip, now: datetime, found: InForce) -> Obstacle:
    lasts = f" for {_distance(trip.at, now)}" if trip.at else ""
    told = f"the breaker in namespace {home.namespace} is open{lasts}; nothing is deleted {trip}"
    told += home.contents.name_kept(_NAMES_SHOWN)
    cure = f"see what wants to be deleted, then `{_command(found, 'release', home.namespace, '--breaker')}`"
    return Obstacle(Safeguard.BREAKER_OPEN, told, cure, since=trip.at)


def _loop(ref: ObjectRef, until: datetime, now: datetime, found: InForce) -> Obstacle:
    told = (
        f"its name is in a recreate loop: whenever it was deleted it came back, so it is left alone until "
        f"{format_instant(until.replace(microsecond=0))}, for another {_distance(now, until)}"
    )
    place = ("-n", ref.namespace) if ref.namespace else ("-A",)
    look = shlex.join(("kubectl", "get", "events", *place, "--field-selector", "reason=RecreateLoop", *found.flags))
    cure = f"have what makes it stop: `{look}` names it; then it goes by itself, with nothing to release"
    return Obstacle(Safeguard.RECREATE_LOOP, told, cure, until=until)


def _command(found: InForce, command: str, namespace: str, *words: str) -> str:
    return shlex.join(("kubectl", "ttl", command, *words, "-n", namespace, *found.flags))


def _distance(earlier: datetime, later: datetime) -> str:
    return format_duration(max(timedelta(), later - earlier))
