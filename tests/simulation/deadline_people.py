"""The clients that write running Jobs: people, the Job controller, and controllers that undo a stop."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from shared.core.values.objects import ANNOTATION_DOMAIN
from shared.devserver.apiserver.deletion import DeleteOptions
from shared.devserver.apiserver.errors import StatusError
from shared.devserver.apiserver.resources import JOBS, NAMESPACES, Object
from shared.devserver.apiserver.writes import WriteOptions, merge_patch
from tests.simulation.written_fields import stamp

PLACES = ("default", "kube-system")
NAMES = 6
NEVER, MALFORMED = "never", "malformed"
Deadline = timedelta | str | None
_MALFORMED = ("0", "-1", "soon", str(10**20), "", "1.5h")
_PERSON = WriteOptions(manager="kubectl")
_STATUS = WriteOptions(manager="kube-controller-manager", subresource="status")


@dataclass(frozen=True)
class Settings:
    """What a namespace sets."""

    default: timedelta | None = None
    longest: timedelta | None = None
    is_exempt: bool = False

    def deadline_of(self, own: Deadline) -> timedelta | None:
        """How long an object may run; None for as long as it likes, or if that cannot be read."""
        after = self.default if own is None else own
        if not isinstance(after, timedelta):
            return None
        return after if self.longest is None else min(after, self.longest)


@dataclass
class Run:
    """One Job, as its writers intend it.

    Attributes:
        started_at: When it started, or was resumed the last time, as its controller wrote it.
        is_suspended: Whether a person suspended it.
        is_stopped: Whether the system stopped it, and no other client changed that.
        suspends: Whether it asks to be suspended at its deadline, instead of failed.
        works: Whether its controller runs it.
        undoes: Whether a controller undoes each stop.
        ended_at: When it finished, or when its stop was confirmed.
        stops: How often the system stopped it.
    """

    namespace: str
    name: str
    uid: str = ""
    deadline: Deadline = None
    ttl: timedelta | None = None
    started_at: datetime | None = None
    is_suspended: bool = False
    is_stopped: bool = False
    suspends: bool = False
    works: bool = False
    is_held: bool = False
    is_native: bool = False
    is_gone: bool = False
    undoes: bool = False
    finished_at: datetime | None = None
    ended_at: datetime | None = None
    stopped_at: datetime | None = None
    stops: int = 0


class People:
    """All clients except the system; each action is one write and its intention, without an await between."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.rng: random.Random = world.rng
        self.active = True
        self.runs: dict[str, Run] = {}
        self.settings: dict[str, list[tuple[float, Settings]]] = {place: [(0.0, Settings())] for place in PLACES}
        self._touches = 0
        self._actions: dict[Callable[[Run], None], int] = {
            self.suspend: 4,
            self.resume: 8,
            self.set_deadline: 5,
            self.hold: 1,
            self.release: 2,
            self.touch: 4,
            self.beat: 6,
            self.finish: 1,
            self.remove: 1,
            self.replace: 1,
        }

    def begin(self) -> None:
        for place in PLACES:
            self.configure(place)

    def act(self) -> None:
        alive = self.alive()
        if not alive or self.rng.random() < 0.25:
            self.create()
        elif self.rng.random() < 0.08:
            self.configure(self.rng.choice(PLACES))
        else:
            self.rng.choices(list(self._actions), list(self._actions.values()))[0](self.rng.choice(alive))

    def interfere(self, kind: str, namespace: str, name: str) -> None:
        """Write a Job between its read and its stop."""
        for run in self.alive():
            if self.active and (kind, namespace, name) == ("Job", run.namespace, run.name):
                self.rng.choice(list(self._actions))(run)

    def alive(self) -> list[Run]:
        return [run for run in self.runs.values() if not run.is_gone]

    # Namespaces

    def configure(self, place: str) -> None:
        rng = self.rng
        settings = Settings(
            default=timedelta(seconds=rng.choice((20, 60, 200))) if rng.random() < 0.4 else None,
            longest=timedelta(seconds=rng.choice((30, 90, 300))) if rng.random() < 0.3 else None,
            is_exempt=rng.random() < 0.15,
        )
        names = {"default-active-deadline": settings.default, "max-active-deadline": settings.longest}
        texts = {name: f"{after.seconds}s" if after else None for name, after in names.items()}
        texts["exempt"] = "true" if settings.is_exempt else None
        change = {"metadata": {"annotations": {f"{ANNOTATION_DOMAIN}/{name}": text for name, text in texts.items()}}}
        self.world.store.patch(NAMESPACES, "", place, merge_patch(change), _PERSON)
        self.settings[place].append((self.world.loop.time(), settings))
        self.world.note("people", f"set {settings} on {place}")

    # Jobs

    def create(self) -> None:
        place, name = self.rng.choice(PLACES), f"job-{self.rng.randrange(NAMES)}"
        if not any((run.namespace, run.name) == (place, name) for run in self.alive()):
            self._create(Run(place, name, undoes=self.rng.random() < 0.2))

    def _create(self, run: Run) -> None:
        rng = self.rng
        run.is_native, run.is_suspended = rng.random() < 0.1, rng.random() < 0.2
        annotations: dict[str, str] = {}
        if rng.random() < 0.7:
            annotations["active-deadline"], run.deadline = self._draw_deadline()
        if rng.random() < 0.5:
            run.suspends, annotations["on-deadline"] = True, "suspend"
        if rng.random() < 0.3:
            run.ttl = timedelta(seconds=rng.choice((0, 10, 60)))
            annotations["ttl"] = f"{run.ttl.seconds}s"
        spec: Object = {"activeDeadlineSeconds": rng.choice((5, 200))} if run.is_native else {}
        spec |= {"suspend": True} if run.is_suspended else {}
        named = {f"{ANNOTATION_DOMAIN}/{name}": text for name, text in annotations.items()}
        obj = {"metadata": {"name": run.name, "annotations": named}, "spec": spec}
        run.uid = self.world.store.create(JOBS, run.namespace, obj, _PERSON)["metadata"]["uid"]
        self.runs[run.uid] = run
        self._note("create", run)

    def _draw_deadline(self) -> tuple[str, Deadline]:
        roll = self.rng.random()
        if roll < 0.1:
            return "never", NEVER
        if roll < 0.2:
            return self.rng.choice(_MALFORMED), MALFORMED
        seconds = self.rng.choice((1, 2, 5, 10, 30, 60, 120, 300))
        return f"{seconds}s", timedelta(seconds=seconds)

    def suspend(self, run: Run) -> None:
        if run.finished_at is None and not run.is_stopped:
            run.is_suspended = True
            self._write(run, {"spec": {"suspend": True}})

    def resume(self, run: Run) -> None:
        if run.finished_at is None:
            run.is_suspended, run.is_stopped = False, run.is_stopped and not run.suspends
            run.ended_at = None
            self._write(run, {"spec": {"suspend": False}})

    def set_deadline(self, run: Run) -> None:
        text, run.deadline = (None, None) if self.rng.random() < 0.2 else self._draw_deadline()
        self._annotate(run, "active-deadline", text)

    def hold(self, run: Run) -> None:
        run.is_held = True
        self._annotate(run, "hold", "look")

    def release(self, run: Run) -> None:
        run.is_held = False
        self._annotate(run, "hold", None)

    def touch(self, run: Run) -> None:
        self._touches += 1
        self._write(run, {"metadata": {"labels": {"touched": str(self._touches)}}})

    def beat(self, run: Run) -> None:
        """The controller writes the status, as it does for each Pod."""
        self._touches += 1
        self._write_status(run, {"active": self._touches})

    def finish(self, run: Run) -> None:
        if run.works and run.finished_at is None:
            run.finished_at = run.ended_at = self._second()
            condition = {"type": "Complete", "status": "True", "lastTransitionTime": stamp(run.finished_at)}
            self._write_status(run, {"conditions": [condition]})

    def remove(self, run: Run) -> None:
        run.is_gone = True
        self._note("delete", run)
        self.world.store.delete(JOBS, run.namespace, run.name, DeleteOptions())

    def replace(self, run: Run) -> None:
        """Replace a Job by another Job of the same name."""
        self.remove(run)
        self._create(Run(run.namespace, run.name, undoes=run.undoes))

    # Controllers

    def changed(self, resource: Any, change: Any) -> None:
        """A listener of the store."""
        run = self.runs.get(change.obj["metadata"]["uid"]) if resource == JOBS else None
        if run is None or change.type == "DELETED":
            return
        longest = 20.0 if self.world.faults.active and self.rng.random() < 0.1 else 1.5
        self.world.loop.call_later(self.rng.uniform(0.01, longest), self._reconcile, run)

    def stopped(self, run: Run) -> None:
        """The system stopped a Job: a controller may undo that."""
        if run.undoes:
            self.world.loop.call_later(self.rng.uniform(0.01, 4.0), self._undo, run)

    def _undo(self, run: Run) -> None:
        if not run.is_gone and run.is_stopped and run.finished_at is None:
            self._note("undo", run)
            if run.suspends:
                self.resume(run)
            else:
                run.is_stopped = False
                self._write(run, {"spec": {"activeDeadlineSeconds": None}})

    def _reconcile(self, run: Run) -> None:
        """What the Job controller does: it suspends, resumes, and fails a Job whose own deadline is over."""
        if run.is_gone or run.finished_at is not None:
            return
        live = self.world.store.get(JOBS, run.namespace, run.name)
        wants, now = live.get("spec", {}).get("suspend") is True, self._second()
        old = live.get("status", {})
        held = [one for one in old.get("conditions", []) if one["type"] == "Suspended"]
        is_confirmed = bool(held) and held[0]["status"] == "True"
        condition = {"type": "Suspended", "status": str(wants), "lastTransitionTime": stamp(now)}
        if wants and not is_confirmed:
            run.works = False
            run.ended_at = max(now, run.stopped_at or now) if run.is_stopped else None
            self._write_status(run, {"conditions": [condition]})
        elif not wants and (is_confirmed or "startTime" not in old):
            run.works, run.started_at = True, now
            self._write_status(run, {"startTime": stamp(now), **({"conditions": [condition]} if held else {})})
        elif run.works and (after := live.get("spec", {}).get("activeDeadlineSeconds")) is not None:
            self._enforce(run, timedelta(seconds=after), now)

    def _enforce(self, run: Run, after: timedelta, now: datetime) -> None:
        """Fail a running Job whose activeDeadlineSeconds are over, or come back then."""
        assert run.started_at is not None
        if now - run.started_at < after:
            self.world.loop.call_later((run.started_at + after - now).total_seconds() + 1.0, self._reconcile, run)
            return
        run.works, run.finished_at = False, now
        run.ended_at = now
        failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": stamp(now)}
        self._write_status(run, {"conditions": [failed]})

    # Writes

    def _second(self) -> datetime:
        at: datetime = self.world.clocks.controller()
        return at.replace(microsecond=0) + timedelta(seconds=1)

    def _annotate(self, run: Run, name: str, text: str | None) -> None:
        self._write(run, {"metadata": {"annotations": {f"{ANNOTATION_DOMAIN}/{name}": text}}})

    def _write(self, run: Run, change: Object) -> None:
        self._note(str(change), run)
        self.world.store.patch(JOBS, run.namespace, run.name, merge_patch(change), _PERSON)

    def _write_status(self, run: Run, status: Object) -> None:
        self._note(str(status), run)
        try:
            self.world.store.patch(JOBS, run.namespace, run.name, merge_patch({"status": status}), _STATUS)
        except StatusError as error:
            raise AssertionError(error) from error

    def _note(self, what: str, run: Run) -> None:
        self.world.note("people", f"{what} {run.namespace}/{run.name} {run.uid}")

    def calm(self) -> None:
        """From now on no person writes; most holds and exemptions end."""
        for place in PLACES:
            latest = self.settings[place][-1][1]
            if latest.is_exempt and self.rng.random() < 0.7:
                change = {"metadata": {"annotations": {f"{ANNOTATION_DOMAIN}/exempt": None}}}
                self.world.store.patch(NAMESPACES, "", place, merge_patch(change), _PERSON)
                self.settings[place].append((self.world.loop.time(), replace(latest, is_exempt=False)))
        for run in self.alive():
            if self.rng.random() < 0.7:
                self.release(run)
            if self.rng.random() < 0.5:
                self.resume(run)
        self.active = False
