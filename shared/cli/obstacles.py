"""Why what is due is not deleted, as far as a cluster tells: nobody deletes, or not this kind, or not now."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.cli.inforce import Home, InForce, Named
from shared.core.decide import Decision, Ignore
from shared.core.durations import format_duration
from shared.core.kinds import KindRule
from shared.core.objects import ObjectRef, format_instant
from shared.usecases.recreation import name_of
from shared.usecases.restraint import Restraint
from shared.usecases.standing import Trip

DRY_RUN = "dry-run"
NOT_ENABLED = "kind-not-enabled"
NOBODY = "nobody-deletes"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason.

    Attributes:
        reason: In a word, for programs.
        told: In a sentence.
        cure: What to do, a command where there is one.
        since: When it began, where that is known.
        until: When it ends by itself, if it does.
    """

    reason: str
    told: str
    cure: str
    since: datetime | None = None
    until: datetime | None = None

    def as_json(self) -> dict[str, Any]:
        """The documented JSON."""
        instants = {"since": self.since, "until": self.until}
        return {
            "reason": self.reason,
            "told": self.told,
            **{name: at and format_instant(at) for name, at in instants.items()},
            "cure": self.cure,
        }


@dataclass(frozen=True, slots=True)
class Scene:
    """What was found of the cluster, where one was asked.

    Attributes:
        named: The policy that the object is judged by.
        obstacles: What keeps it although it is due, now or later.
        flags: What leads kubectl there.
    """

    named: Named
    obstacles: Sequence[Obstacle] = ()
    flags: tuple[str, ...] = ()


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
    yield from find_idle(found, rule, decision)
    yield from find_open(found, now)
    until = looped_until(found, ref, now)
    if until is not None:
        yield _loop(ref, until, now, found)


def looped_until(found: InForce, ref: ObjectRef, now: datetime) -> datetime | None:
    """Until when an object is left alone since its name is in a recreate loop; None where it is in none."""
    known = [home.standing.loops for home in _active(found) if home.standing.loops]
    untils = [loops[name] for loops in known if (name := name_of(ref)) in loops]
    return max((until for until in untils if until > now), default=None)


def find_open(found: InForce, now: datetime) -> Iterator[Obstacle]:
    """What keeps everything: a breaker that is open, or of which that cannot be told, and a dry run."""
    installed = found.installed
    if installed and installed.dry_run and found.leader is None:
        told = f"the installation in namespace {found.home} deletes nothing: TTL_DRY_RUN is on"
        yield Obstacle(DRY_RUN, told, f"apply it with TTL_DRY_RUN=false: `{_command(found, 'doctor', found.home)}`")
    for home in _active(found):
        if home.standing.trip:
            yield _open(home, home.standing.trip, now, found)
    if problem := next((one.problem for one in _active(found) if one.problem), ""):
        cure = "ask somebody who may read ConfigMaps and Leases there"
        yield Obstacle(Restraint.BREAKER_UNREAD, f"whether a breaker is open cannot be told: {problem}", cure)


def _active(found: InForce) -> Iterator[Home]:
    """Where what stands counts: with an installation or a `run`, or nobody knows whose it is."""
    for home in found.homes:
        is_installed = found.installed is not None and home.namespace == found.home
        if is_installed or found.installed is None or (home.leader and home.leader.leads):
            yield home


def find_idle(found: InForce, rule: KindRule, decision: Decision) -> Iterator[Obstacle]:
    """That nobody deletes what is due, or nobody of its kind."""
    ttl, installed = decision.facts.ttl, found.installed
    if rule.ttl and rule.ttl.honoured_by and ttl and ttl.origin == "native":
        return  # its own controller deletes it, too
    if found.leader is not None:
        return  # a `run` says to nobody which kinds it has
    if installed and installed.enabled is not None and rule.name not in installed.enabled:
        named = ",".join(installed.kinds_named)
        told = f"the installation in namespace {found.home} leaves {rule.name} alone: TTL_KINDS is {named}"
        yield Obstacle(NOT_ENABLED, told, f"let {rule.name} join: knative/README.md says how")
    if installed is None and not found.problem and not any(one.problem for one in found.homes):
        places = " or ".join(one.namespace for one in found.homes)
        told = f"nobody deletes it: nothing is installed in namespace {found.home}, and no `run` leads in {places}"
        yield Obstacle(NOBODY, told, "`ttl-after-finished run`, or an installation; another namespace: $TTL_NAMESPACE")
    if installed and installed.is_alone and not installed.dry_run and not any(one.problem for one in found.homes):
        home = next(one for one in found.homes if one.namespace == found.home)
        if not (home.leader and home.leader.leads):
            told = f"nobody deletes it: no Pod of Deployment {found.home}/standalone leads"
            yield Obstacle(NOBODY, told, f"`{_command(found, 'doctor', found.home)}` says why")


def _open(home: Home, trip: Trip, now: datetime, found: InForce) -> Obstacle:
    lasts = f" for {_distance(trip.at, now)}" if trip.at else ""
    told = f"the breaker in namespace {home.namespace} is open{lasts}; nothing is deleted {trip}"
    cure = f"see what wants to be deleted, then `{_command(found, 'release', home.namespace, '--breaker')}`"
    return Obstacle(Restraint.BREAKER_OPEN, told, cure, since=trip.at)


def _loop(ref: ObjectRef, until: datetime, now: datetime, found: InForce) -> Obstacle:
    told = (
        f"its name is in a recreate loop: whenever it was deleted it came back, so it is left alone until "
        f"{format_instant(until.replace(microsecond=0))}, for another {_distance(now, until)}"
    )
    place = ("-n", ref.namespace) if ref.namespace else ("-A",)
    look = shlex.join(("kubectl", "get", "events", *place, "--field-selector", "reason=RecreateLoop", *found.flags))
    cure = f"have what makes it stop: `{look}` names it; then it goes by itself, with nothing to release"
    return Obstacle(Restraint.RECREATE_LOOP, told, cure, until=until)


def _command(found: InForce, command: str, namespace: str, *words: str) -> str:
    return shlex.join(("kubectl", "ttl", command, *words, "-n", namespace, *found.flags))


def _distance(earlier: datetime, later: datetime) -> str:
    return format_duration(max(timedelta(), later - earlier))
