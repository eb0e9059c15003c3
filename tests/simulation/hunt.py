"""Run the simulated worlds of many seeds, and expect that no rule is broken, or that one is.

`assert_holds` expects that no world breaks a rule. `assert_caught` runs worlds with a mutant, which is a defect made on
purpose, and expects that one of them breaks a rule: then the checks can fail.

`caught.json` has the seed that catches each mutant, and a test runs that seed alone: a search takes up to a minute. If
a change of the simulation makes a seed useless, the test fails; then search and record the seeds again:

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
RECORD = "TTL_RECORD_SEEDS"
"""The variable with which a useless seed is replaced."""
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
    """Run the world with a mutant whose seed is recorded, and fail if it breaks none of the rules that it must break.

    Args:
        name: The name of the mutant, with that of its kind of world.
        rules: The rules.
        make: Makes the world of a seed, with the mutant.
        seeds: How many seeds are tried to record one.
    """
    recorded = json.loads(RECORDED.read_text()).get(name)
    broken = "" if recorded is None else _broken_rule(make(recorded))
    if broken in rules:
        return
    if not os.getenv(RECORD):
        got = broken or "no rule"
        pytest.fail(f"{name}: seed {recorded} broke {got}, not one of {set(rules)}; set {RECORD}=1 to search")
    found = next((seed for seed in range(seeds) if _broken_rule(make(seed)) in rules), None)
    if found is None:
        pytest.fail(f"{name}: no seed below {seeds} broke one of {set(rules)}")
    _record(name, found)


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
