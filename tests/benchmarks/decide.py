"""How many decisions one core makes a second: `python -m tests.benchmarks.decide`.

In turns, in one process: `decide` on objects of several sorts, under a policy of five rules and a namespace that says
nothing, with and without CEL; and as a yardstick of this machine a plain walk through the same objects' JSON.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.core.decision.decide import Context, Reason, decide
from shared.core.decision.namespaces import plain_namespace
from shared.core.policy.policy import Policy
from tests.builders import JOB, NOW, POD, ago, ended, job, pod

SECONDS = 0.2
ROUNDS = 5

_LAST = {"name": "all", "match": {"kinds": ["*"], "namespaces": {"except": ["kube-*"]}}, "ttl": {"succeeded": "1h"}}
_RULES = [
    *(
        {
            "name": f"team-{n}",
            "match": {"kinds": ["jobs", "pods"], "namespaces": {"names": [f"team-{n}-*"]}},
            "ttl": "1h",
        }
        for n in range(3)
    ),
    {"name": "labelled", "match": {"kinds": ["*"], "labels": {"matchLabels": {"app": "x"}}}, "ttl": "1h"},
]
_PLAIN = Policy.model_validate({"rules": [*_RULES, _LAST]})
_CEL = Policy.model_validate({"rules": [*_RULES, {**_LAST, "when": "object.spec.backoffLimit == 6"}]})

CASES = {
    "a Job by its own field": (job(complete=ago(100), ttl=10), JOB, _PLAIN, Reason.EXPIRED),
    "a Job by the last rule": (job(complete=ago(100)), JOB, _PLAIN, Reason.NOT_DUE),
    "a Pod by its annotation": (pod(containers=(ended(at=ago(60)),), ttl="30"), POD, _PLAIN, Reason.EXPIRED),
    "a Job that works": (job(), JOB, _PLAIN, Reason.UNFINISHED),
    "a Job by a rule with CEL": (job(complete=ago(100)), JOB, _CEL, Reason.NOT_DUE),
}


@dataclass(frozen=True)
class Decisions:
    """Of one sort of object.

    Attributes:
        per_second: Decisions, the best of some rounds.
        walks: The same in walks through the object's JSON: what does not depend on the machine.
    """

    case: str
    per_second: int
    walks: float

    def as_json(self) -> dict[str, Any]:
        return {"case": self.case, "perSecond": self.per_second, "walks": round(self.walks, 2)}


def measure() -> list[Decisions]:
    """Each case in turn with its yardstick, round by round, so that a busy moment meets both."""
    found = []
    for name, (obj, rule, policy, reason) in CASES.items():
        context = Context(policy, plain_namespace("ci"))
        assert decide(obj, rule, NOW, context).reason is reason, name
        best, yard = 0.0, 0.0
        for _ in range(ROUNDS):
            best = max(best, _per_second(lambda: decide(obj, rule, NOW, context)))  # noqa: B023 - called at once
            yard = max(yard, _per_second(lambda: walk(obj)))  # noqa: B023 - as above
        found.append(Decisions(name, round(best), yard / best))
    return found


def walk(value: Any) -> int:
    """Every value once."""
    if isinstance(value, dict):
        return 1 + sum(map(walk, value.values()))
    return 1 + sum(map(walk, value)) if isinstance(value, list) else 1


def _per_second(act: Callable[[], object]) -> float:
    count, started = 0, time.perf_counter()
    while (spent := time.perf_counter() - started) < SECONDS:
        for _ in range(100):
            act()
        count += 100
    return count / spent


if __name__ == "__main__":
    for one in measure():
        print(f"{one.case:26} {one.per_second:9,} a second, {one.walks:.1f} walks")
