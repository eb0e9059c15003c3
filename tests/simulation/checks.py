"""The checkers: what must always hold, looked at whenever it could be broken."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from shared.core.values.objects import ObjectRef
from shared.devserver.apiserver.deletion import DeleteOptions
from shared.devserver.apiserver.listing import Change
from shared.devserver.apiserver.resources import RESOURCE_QUOTAS, Resource
from shared.messages import Timer
from shared.usecases.handler import DECISIONS_MAX
from tests.fakes import FakeTelemetry
from tests.simulation.calls import Invocation, invocation
from tests.simulation.evaluators import evaluated
from tests.simulation.sim_object import SimObject

FIRES_MAX = 32
"""How often one timer may fire within SECONDS_OF_FIRES: more is a hot loop, which takes 50 ms a turn.

Not a few: retries of an API server that is busy fire too. An engine whose clock is 5 s ahead is caught up with in steps
of a second, and each duplicate does it again.
"""

SECONDS_OF_FIRES = 2.0

ABSENT_PATHS_MAX = 2
"""Calls of one event that meet a version which is gone: of the object, and of its owner."""

OWNERS_OF_OTHERS_MAX = 7
"""As many as there are names of one kind in a namespace."""

DISCOVERIES_MAX = 8
"""At discovery for one event: at the group and its two versions, again after a 404, and at the owner's group."""


STALE_SECONDS = 5.0
"""How old may be what is known beside an object: of its namespace when the DELETE is sent, of the others of its group
when it is evaluated."""


class Violation(AssertionError):  # noqa: N818 - a violation of what must hold
    """Something did not hold; `rule` says what."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule


class Checks:
    """Sees every call, every answer and every change.

    Attributes:
        violation: The first one; the world stops at it.
        calls: By verb.
        answers: By verb and status.
        calls_about: By uid and verb.
        accepted: When the DELETE of each uid was accepted, by the API server's clock.
        due_of: When those were due.
        jitter_of: What they may be spread over.
        refused: DELETEs of each uid of which the system heard that a right is missing.
        events_about: Kubernetes Events about each uid.
        quotas_read: The namespaces whose quotas were read.
    """

    def __init__(self, world: Any) -> None:
        self.world = world
        self.telemetry = FakeTelemetry(world.note)
        self.violation: Violation | None = None
        self.calls: Counter[str] = Counter()
        self.answers: Counter[tuple[str, int]] = Counter()
        self.calls_about: Counter[tuple[str, str]] = Counter()
        self.accepted: dict[str, datetime] = {}
        self.due_of: dict[str, datetime] = {}
        self.jitter_of: dict[str, timedelta] = {}
        self.refused: Counter[str] = Counter()
        self.events_about: Counter[str] = Counter()
        self.quotas_read: set[str] = set()
        self._fires: dict[tuple[str, str], list[float]] = {}
        self._target: str = ""

    def fail(self, rule: str, message: str) -> None:
        self.violation = self.violation or Violation(rule, message)
        self.world.note("VIOLATION", f"{rule}: {message}")
        self.world.stop()

    # Calls.

    def sent(self, verb: str, kind: str, ref: ObjectRef) -> None:
        self.calls[verb] += 1
        obj = self.world.history.find(kind, ref.namespace, ref.name)
        if obj is not None:
            self.calls_about[obj.uid, verb] += 1
        if verb == "LIST" and kind == RESOURCE_QUOTAS.kind:
            self.quotas_read.add(ref.namespace)
        call = invocation.get()
        if call is None or call.function != "expire":
            return
        own = call.name == f"{kind}/{ref.namespace}/{ref.name}"
        call.reads += verb == "GET" and own
        call.others += verb == "GET" and not own
        is_first = verb == "LIST" and not ref.name  # a page that is not the first has a token there
        call.lists += is_first and kind != RESOURCE_QUOTAS.kind
        call.quotas += is_first and kind == RESOURCE_QUOTAS.kind
        call.deletes += verb == "DELETE"
        call.message += verb == "POST"
        call.discoveries += verb == "DISCOVER"

    def met_absent_path(self) -> None:
        """A call met no such path."""
        if call := invocation.get():
            call.absent_paths += 1

    def answered(self, verb: str, kind: str, ref: ObjectRef, code: int) -> None:
        name = f"{kind} {ref.namespace}/{ref.name}"
        self.world.note("server", f"{verb} {name} -> {code}")
        call = invocation.get()
        self.answers[verb, code] += 1
        if verb == "DELETE" and code == 409 and call is not None:
            call.conflicts += 1

    def message(self, uid: str) -> None:
        """An Event was written about an object."""
        self.events_about[uid] += 1

    def deleting(self, live: dict[str, Any], uid: str, options: DeleteOptions) -> None:
        """S1, S2, S3: at the instant of acceptance, before anything is changed."""
        now, metadata = self.world.clocks.server(), live["metadata"]
        obj: SimObject = self.world.history.all[metadata["uid"]]
        self._target = obj.uid
        if options.uid is None or options.resource_version is None:
            self.fail("S2", f"DELETE of {obj} without both preconditions: {options}")
        if (options.uid or uid) != obj.uid or uid != obj.uid:
            self.fail("S2", f"DELETE was meant for {uid} and met {obj}")
        if options.resource_version not in (None, metadata["resourceVersion"]):
            self.fail("S2", f"DELETE of {obj} by an outdated version was accepted")
        rule, why = self.world.history.why_not(obj, now, **self._known())
        if why:
            self.fail(rule, f"{obj} was deleted, but {why}")
        self.accepted[obj.uid] = now
        due = self.world.history.due_at(obj)
        if due is not None:
            self.due_of[obj.uid] = due
            self.jitter_of[obj.uid] = self.world.history.expectation(obj).jitter

    def _known(self) -> dict[str, Any]:
        """Which policies may have been in force when this DELETE was sent, and when the rest may have been read."""
        known, now = evaluated.get(), self.world.loop.time()
        if known is None:
            return {
                "policies": (self.world.history.declared.rules,),
                "places_read": (now, now),
                "others_read": (now, now),
            }
        return {
            "policies": tuple(policy.rules for policy in known.policies),
            "places_read": (known.sent_at - STALE_SECONDS, known.sent_at),
            "others_read": (known.at - STALE_SECONDS, known.sent_at),
        }

    def changed(self, _resource: Resource, change: Change) -> None:
        """S2: what goes, goes because it was meant, because its owner went, or by its users' hands."""
        metadata = change.obj["metadata"]
        self.world.history.changed(metadata["uid"])
        obj = self.world.history.all.get(metadata["uid"])
        if obj is None or not (change.type == "DELETED" or "deletionTimestamp" in metadata):
            return
        new = not (obj.gone or obj.dying)
        obj.dying, obj.gone = True, change.type == "DELETED"
        if obj.gone or new:
            self.world.note("store", f"{'loses' if obj.gone else 'marks'} {obj} by {self.world.actor}")
        if new and self.world.actor == "system" and self._target not in self.world.history.ancestry(obj):
            self.fail("S2", f"{obj} went when {self._target} was meant")
        elif new and self.world.actor not in ("system", "users"):
            self.fail("S2", f"{obj} was deleted, but no process did it")

    def finished(self, call: Invocation) -> None:
        """S4: what one event costs."""
        if call.function != "expire":
            return
        again, namespace = call.conflicts + call.outdated, call.name.partition("/")[2].partition("/")[0]
        bounds = {
            "reads": call.reads <= 1 + again + call.conflicts + call.absent_paths,  # one finds out what a 409 means
            # the owner, and the namespace before it and after it, each twice; and for a quota the owners of the others
            "others": call.others <= 6 + 3 * again + (2 + again) * OWNERS_OF_OTHERS_MAX * bool(call.quotas),
            # of what is remembered, and of what is read; a quota, maybe read by another event, needs a newer one
            "lists": call.lists <= (2 + again) * (1 + (namespace in self.quotas_read)) + again + call.absent_paths,
            "quotas": call.quotas <= 2 + 2 * again,
            "deletes": call.deletes <= DECISIONS_MAX + call.absent_paths,
            "absent_paths": call.absent_paths <= ABSENT_PATHS_MAX,
            "discoveries": call.discoveries <= DISCOVERIES_MAX,
            "message": call.message <= 1,
        }
        if not all(bounds.values()):
            self.fail("S4", f"one event cost {call}")

    def fired(self, timer: Timer) -> None:
        """No hot loop between the timers and `expire`."""
        now = self.world.loop.time()
        fires = self._fires.setdefault((timer.ref.uid, timer.purpose), [])
        fires[:] = [*(at for at in fires if at > now - SECONDS_OF_FIRES), now]
        if len(fires) > FIRES_MAX:
            self.fail("storm", f"{timer.ref} {timer.ref.uid} fired {len(fires)} times in {SECONDS_OF_FIRES} s")
