"""What goes wrong, how often and for how long; drawn from the seed, so that seeds differ in character."""

import random
from dataclasses import dataclass, field

LATENCY = (0.001, 0.02)
SLOW = (0.3, 3.0)
TIMEOUT_SECONDS = 30.0


@dataclass
class Faults:
    """Probabilities for each call or event, and what is out of order right now.

    Attributes:
        active: False once faults have stopped; what is forbidden for good stays so.
        away: The API server refuses connections.
        forbidden: Verb and kind that answer 403 at present.
        forbidden_for_good: The same, never fixed.
        hangs_for_good: A kind whose LISTs get no answer, never fixed; empty for none.
    """

    rng: random.Random
    active: bool = True
    away: bool = False
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    forbidden_for_good: frozenset[tuple[str, str]] = frozenset()
    hangs_for_good: str = ""

    def __post_init__(self) -> None:
        def some(most: float) -> float:
            return self.rng.choice((0.0, most / 5, most))

        self.slow = some(0.1)
        self.busy = some(0.2)
        self.broken = some(0.2)
        self.answer_lost = some(0.2)
        self.late = some(0.1)
        self.interfere = some(0.4)
        self.compact = some(0.3)
        self.drop = some(0.3)
        self.duplicate = some(0.2)
        self.delay = some(0.3)
        self.timer_fault = some(0.2)
        self.fires_twice = some(0.2)
        self.keeps_replaced = some(1.0)
        if self.rng.random() < 0.3:
            verbs = self.rng.choice((("DELETE",), ("DELETE", "GET"), ("LIST",), ("DELETE", "GET", "LIST")))
            kind = self.rng.choice(("Job", "Pod", "TrainJob"))
            self.forbidden_for_good = frozenset((verb, kind) for verb in verbs)

    def happens(self, probability: float) -> bool:
        """Always one draw, whether faults are active or not."""
        return self.rng.random() < probability and self.active

    def latency(self) -> float:
        return self.rng.uniform(*(SLOW if self.happens(self.slow) else LATENCY))

    def is_forbidden(self, verb: str, kind: str) -> bool:
        return (verb, kind) in self.forbidden_for_good or (self.active and (verb, kind) in self.forbidden)

    def stop(self) -> None:
        self.active = self.away = False
        self.forbidden.clear()


@dataclass(frozen=True, slots=True)
class Fate:
    """What will become of one request; all of it drawn before it is sent, so that a crash cannot change the draws.

    Attributes:
        there: Seconds until the API server acts.
        back: Seconds until its answer arrives.
        refusal: A status it answers without acting; 0 for none.
        answer_lost: It acts, and no client receives the answer.
        outlives: It is on its way already, and arrives whether or not the sender lives.
        interfered: Another client writes the object just before.
    """

    there: float
    back: float
    refusal: int
    answer_lost: bool
    outlives: bool
    interfered: bool


def draw_fate(faults: Faults) -> Fate:
    late = faults.happens(faults.late)
    busy, broken = faults.happens(faults.busy), faults.happens(faults.broken)
    return Fate(
        there=faults.rng.uniform(5, 2 * TIMEOUT_SECONDS) if late else faults.latency(),
        back=faults.latency(),
        refusal=429 if busy else 500 if broken else 0,
        answer_lost=faults.happens(faults.answer_lost),
        outlives=faults.rng.random() < 0.5,
        interfered=faults.happens(faults.interfere),
    )
