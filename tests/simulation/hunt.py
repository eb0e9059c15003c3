"""Run the simulated worlds of many seeds, and expect that no rule is broken, or that one is.

`assert_holds` expects that no world breaks a rule. `assert_caught` runs worlds with a mutant, which is a defect made on
purpose, and expects that one of them breaks a rule: then the checks can fail.

A search for the seed that catches a mutant takes up to a minute. So the seed that did so last time is tried first:
`caught.json` has it. If a change of the simulation made it useless, all seeds are tried. After such a change, record
the seeds again:

    TTL_RECORD_SEEDS=1 pytest -n 0 tests/simulation -k mutant
"""

import json
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.simulation.checks import Violation

RECORDED = Path(__file__).with_name("caught.json")
TRACE_LINES = 40

_World = TypeVar("_World", bound=Any)


def assert_holds(make: Callable[[int], Any], seeds: Iterable[int], reproduce: str = "") -> None:
    """Run a world for each seed, and fail with the end of the trace of the first one that breaks a rule.

    Args:
        make: Makes the world of a seed.
        seeds: The seeds.
        reproduce: The command that repeats a seed, with `{seed}` in it; empty for none.
    """
    for seed in seeds:
        world = make(seed)
        try:
            world.run()
        except Violation as violation:
            lines = (f"seed {seed}: {violation}", reproduce.format(seed=seed), *world.trace[-TRACE_LINES:])
            pytest.fail("\n".join(filter(None, lines)), pytrace=False)


def assert_caught(name: str, rules: Collection[str], make: Callable[[int], Any], seeds: int) -> None:
    """Run worlds with a mutant until one of the rules is broken that it must break.

    Args:
        name: The name of the mutant, with that of its kind of world.
        rules: The rules.
        make: Makes the world of a seed, with the mutant.
        seeds: How many seeds are tried.
    """
    recorded = json.loads(RECORDED.read_text()).get(name)
    got = set[str]()
    for seed in sorted(range(seeds), key=lambda seed: seed != recorded):
        rule = _broken_rule(make(seed))
        got.add(rule)
        if rule in rules:
            if seed != recorded and os.getenv("TTL_RECORD_SEEDS"):
                _record(name, seed)
            return
    pytest.fail(f"{name}: expected one of {set(rules)} in {seeds} seeds, got {got - {''}}")


def run_until(make: Callable[[int], _World], seeds: int, is_enough: Callable[[_World], bool]) -> None:
    """Run the worlds of the first seeds, until one of them was enough or all have run."""
    for seed in range(seeds):
        world = make(seed)
        world.run()
        if is_enough(world):
            break


def _broken_rule(world: Any) -> str:
    try:
        world.run()
    except Violation as violation:
        return violation.rule
    return ""


def _record(name: str, seed: int) -> None:
    known = json.loads(RECORDED.read_text()) | {name: seed}
    RECORDED.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
