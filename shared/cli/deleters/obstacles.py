"""Obstacles: what prevents the deletion of a due object, as far as the cluster shows."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from shared.cli.deleters.in_force import InForce, NamespaceState
from shared.core.deadlines.decide_stop import StopDecision
from shared.core.decision.decide import Decision, Ignore
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef, format_instant
from shared.core.values.timing import format_duration
from shared.installation.guard_status import GuardState
from shared.installation.guards import guard_name
from shared.installation.installed import Installed
from shared.installation.leader import Leader
from shared.installation.place import Place
from shared.safeguards.denials import name_of
from shared.safeguards.safeguards import Safeguard
from shared.safeguards.state_schema import BrakeStop, Trip

_NAMES_SHOWN = 5


class ObstacleReason(StrEnum):
    """The reasons of obstacles, beside those of the safeguards."""

    DRY_RUN = "dry-run"
    """The process or the installation is a dry run.

    Run it without `--dry-run`, or apply the installation with `TTL_DRY_RUN=false`.
    """
    NOT_ENABLED = "kind-not-enabled"
    """The installation, or the `run` that leads, does not handle the kind.

    Add the kind to `TTL_KINDS` or `--kinds`.
    """
    OTHER_NAMESPACE = "namespace-not-enabled"
    """The `run` that leads handles only another namespace.

    Run it without `--namespace`, or start another one with its own `--lease-namespace`.
    """
    NO_DELETER = "no-active-deleter"
    """There is no active deleter: nothing is installed, and no `run` holds the Lease.

    Start `ttl-after-finished run`, or install ttl-after-finished. If it is in another namespace, set `TTL_NAMESPACE`.
    """
    STALE_GUARD = "delete-guard-stale"
    """The API server may refuse the DELETE: the admission policy of the kind differs from the kind rule.

    Apply the output of `kubectl ttl kinds manifests KIND --only guard`.
    """
    REFUSED = "refused"
    """The API server or an archive refused the object in the last hour, as an Event of the journal shows.

    Follow the answer in the message; `kubectl ttl doctor` prints a missing right.
    """


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason why a due object is not deleted.

    Attributes:
        reason: The reason in one word, for programs.
        message: The reason in one sentence.
        cure: What to do: a command if there is one.
        since: When it began, if that is known.
        until: When it ends by itself, if it does.
    """

    reason: str
    message: str
    cure: str
    since: datetime | None = None
    until: datetime | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the documented JSON."""
        instants = {"since": self.since, "until": self.until}
        return {
            "reason": self.reason,
            "message": self.message,
            **{name: at and format_instant(at) for name, at in instants.items()},
            "fix": self.cure,
        }


def find_obstacles(
    found: InForce, ref: ObjectRef, rule: KindRule, *, decision: Decision | StopDecision, now: datetime
) -> Iterator[Obstacle]:
    """Find what prevents the deletion or the stop of an object, now or later; an object that is kept has none.

    Args:
        found: What is in force on the cluster.
        ref: The object.
        rule: The rule of its kind.
        decision: The decision about it.
        now: The time by the API server's clock.
    """
    if isinstance(decision, Ignore):
        return
    yield from find_missing_deleter(found, ref, rule, decision=decision)
    yield from find_stops(found, now)
    if (until := looped_until(found, ref, now)) is not None:
        yield _loop(ref, until, now=now, found=found)


def find_stale_guard(
    found: InForce, rule: KindRule, decision: Decision, *, guard: GuardState | None
) -> Iterator[Obstacle]:
    """Report a delete guard that was made from another version of the rule: it may deny the DELETE of a due object."""
    if isinstance(decision, Ignore) or guard not in (GuardState.STALE, GuardState.ALTERED):
        return
    message = (
        f"the API server may deny the DELETE: {guard_name(rule)} differs from the guard that this version generates"
    )
    place = Place(found.home, manifests="", options=found.flags)
    yield Obstacle(ObstacleReason.STALE_GUARD, message, f"`{place.guard([rule.name])}`")


def looped_until(found: InForce, ref: ObjectRef, now: datetime) -> datetime | None:
    """Return when the recreate loop of an object's name ends; None if the name is in no loop."""
    states = [state.contents.loops for state in _active(found) if state.contents.loops]
    ends = [loops[name] for loops in states if (name := name_of(ref)) in loops]
    return max((until for until in ends if until > now), default=None)


def find_stops(found: InForce, now: datetime) -> Iterator[Obstacle]:
    """Find what prevents every deletion: a dry run, a stop, an open breaker, or an unreadable shared state."""
    installed = found.installed
    if installed and installed.dry_run and found.leader is None:
        message = f"the installation in namespace {found.home} deletes nothing: TTL_DRY_RUN is on"
        cure = f"set TTL_DRY_RUN=false and apply it again; to check it: `{_command(found, 'doctor', found.home)}`"
        yield Obstacle(ObstacleReason.DRY_RUN, message, cure)
    for state in _active(found):
        if state.contents.stop:
            yield _stopped(state, state.contents.stop, found)
        if state.contents.trip:
            yield _open(state, state.contents.trip, now=now, found=found)
    yield from find_unread_state(found)


def find_unread_state(found: InForce) -> Iterator[Obstacle]:
    """Report shared state that could not be read: deletions may be stopped."""
    if problem := next((state.problem for state in _active(found) if state.problem), ""):
        message = f"could not read whether deletions are stopped or a breaker is open: {problem}"
        cure = "run the command as a user with `get` on ConfigMaps and Leases in that namespace"
        yield Obstacle(Safeguard.STOP_UNREAD, message, cure)


def _active(found: InForce) -> Iterator[NamespaceState]:
    """Yield the states that apply: of the installation, of a leading `run`, or of an unknown process."""
    leaders = [state.leader for state in found.states if state.leader and state.leader.leads]
    for state in found.states:
        is_installed = found.installed is not None and state.namespace == found.home
        is_elsewhere = state.leader in leaders and state.leader is not None and state.leader.state != state.namespace
        is_unknown = found.installed is None and not is_elsewhere
        if is_installed or is_unknown or any(leader.state == state.namespace for leader in leaders):
            yield state


def find_missing_deleter(
    found: InForce, ref: ObjectRef, rule: KindRule, *, decision: Decision | StopDecision
) -> Iterator[Obstacle]:
    """Report that no active process deletes or stops objects, or objects of this kind, or objects in this namespace."""
    ttl, installed = decision.facts.ttl, found.installed
    if rule.ttl and rule.ttl.honoured_by and ttl and ttl.origin == "native":
        return  # its own controller deletes it too
    if found.leader is not None:
        left_out = _left_out(found.leader, ref, rule)
        if left_out and installed is None:
            yield left_out
        if left_out is None or installed is None:
            return
    if installed and installed.enabled is not None and rule.name not in installed.enabled:
        enabled = ",".join(installed.kinds_named)
        message = f"the installation in namespace {found.home} does not handle {rule.name}: TTL_KINDS is {enabled}"
        cure = f"add {rule.name} to the installation, see knative/README.md"
        yield Obstacle(ObstacleReason.NOT_ENABLED, message, cure)
    unread = (found.problem, found.leaders_problem, *(state.problem for state in found.states))
    if installed is None and not any(unread):
        namespaces = " or ".join(state.namespace for state in found.states)
        message = (
            f"no active deleter: nothing is installed in namespace {found.home}, and no `run` holds the Lease in "
            f"{namespaces}"
        )
        cure = "start `ttl-after-finished run` or install it; if the installation is elsewhere, set $TTL_NAMESPACE"
        yield Obstacle(ObstacleReason.NO_DELETER, message, cure)
    if installed and _is_leaderless(found, installed):
        message = f"no active deleter: no Pod of Deployment {found.home}/standalone holds the Lease"
        cure = f"to find out why: `{_command(found, 'doctor', found.home)}`"
        yield Obstacle(ObstacleReason.NO_DELETER, message, cure)


def _is_leaderless(found: InForce, installed: Installed) -> bool:
    """Return whether an installation of one Deployment deletes nothing because none of its Pods leads."""
    if not installed.is_alone or installed.dry_run or any(state.problem for state in found.states):
        return False
    home = next(state for state in found.states if state.namespace == found.home)
    return not (home.leader and home.leader.leads)


def _left_out(leader: Leader, ref: ObjectRef, rule: KindRule) -> Obstacle | None:
    """Report that the leading `run` does not handle the object; None if it does, or if its Lease has no scope."""
    scope, run = leader.scope, f"the leading `run` {leader.holder}"
    if scope is None:
        return None
    if scope.dry_run:
        return Obstacle(ObstacleReason.DRY_RUN, f"{run} deletes nothing: it is a dry run", "start it without --dry-run")
    if not scope.handles_kind(rule.name):
        message = f"{run} handles only {scope.named_kinds}, not {rule.name}"
        return Obstacle(ObstacleReason.NOT_ENABLED, message, f"add {rule.name} to its --kinds")
    if not scope.handles_namespace(ref.namespace):
        message = f"{run} handles only namespace {scope.namespace}"
        cure = "start it without --namespace, or start another one with another --lease-namespace"
        return Obstacle(ObstacleReason.OTHER_NAMESPACE, message, cure)
    return None


def _stopped(state: NamespaceState, stop: BrakeStop, found: InForce) -> Obstacle:
    message = f"deletions are stopped in namespace {state.namespace} {stop}"
    cure = f"to start deletions again: `{_command(found, 'start', state.namespace)}`"
    return Obstacle(Safeguard.STOPPED, message, cure, since=stop.at)


def _open(state: NamespaceState, trip: Trip, *, now: datetime, found: InForce) -> Obstacle:
    lasts = f" for {_distance(trip.at, now)}" if trip.at else ""
    message = f"the breaker in namespace {state.namespace} is open{lasts}; nothing is deleted {trip}"
    message += state.contents.name_kept(_NAMES_SHOWN)
    release = _command(found, "release", state.namespace, "--breaker")
    plan = shlex.join(("kubectl", "ttl", "plan", *found.flags))
    cure = f"check which objects are due (`{plan}`), then `{release}`"
    return Obstacle(Safeguard.BREAKER_OPEN, message, cure, since=trip.at)


def _loop(ref: ObjectRef, until: datetime, *, now: datetime, found: InForce) -> Obstacle:
    message = (
        f"its name is in a recreate loop: each time it is deleted, it is created again; it is kept until "
        f"{format_instant(until.replace(microsecond=0))}, for another {_distance(now, until)}"
    )
    place = ("-n", ref.namespace) if ref.namespace else ("-A",)
    events = shlex.join(("kubectl", "get", "events", *place, "--field-selector", "reason=RecreateLoop", *found.flags))
    cure = f"stop the controller that creates it again, named by `{events}`; then the loop ends by itself"
    return Obstacle(Safeguard.RECREATE_LOOP, message, cure, until=until)


def _command(found: InForce, command: str, namespace: str, *words: str) -> str:
    return shlex.join(("kubectl", "ttl", command, *words, "-n", namespace, *found.flags))


def _distance(earlier: datetime, later: datetime) -> str:
    return format_duration(max(timedelta(), later - earlier))
