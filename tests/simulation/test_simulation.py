"""The whole system in a world that fails, seed by seed. `SIM_SEEDS=5000 pytest tests/simulation` runs more of them."""

import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from shared.core.policy.limits import Rate
from tests.simulation.budget import Rates
from tests.simulation.checks import Violation
from tests.simulation.mutants import BUDGET_MUTANTS, MUTANTS, Mutant
from tests.simulation.policy_mutants import DECIDED_ONCE, POLICY_MUTANTS
from tests.simulation.world import World

SEEDS = int(os.getenv("SIM_SEEDS", "150"))
CHUNKS = 20
MUTANT_SEEDS = 150
RATES = Rates(everywhere=Rate(1.0, burst=3), per_namespace=Rate(0.5, burst=2))


@pytest.mark.timeout(max(120, SEEDS))
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_properties_hold_in_every_seed(chunk):
    for seed in range(chunk, SEEDS, CHUNKS):
        world = World(seed)
        try:
            world.run()
        except Violation as violation:
            reproduce = f"python -m tests.simulation {seed} --verbose"
            trace = "\n".join(world.trace[-40:])
            pytest.fail(f"seed {seed}: {violation}\n\nmake sim SEED={seed}, or: {reproduce}\n\n{trace}", pytrace=False)


@pytest.mark.parametrize("name", [name for name in [*MUTANTS, *POLICY_MUTANTS] if name != "none"])
def test_mutant_is_caught(name):
    """A check that cannot fail is worth nothing."""
    mutant = {**MUTANTS, **POLICY_MUTANTS}[name]
    caught = {_caught(seed, mutant) for seed in range(3)} - {""}
    for seed in range(3, MUTANT_SEEDS):
        if caught & mutant.rules:
            return
        caught.add(_caught(seed, mutant))
    assert caught & mutant.rules, f"{name}: expected one of {set(mutant.rules)} in {MUTANT_SEEDS} seeds, got {caught}"


def test_seed_gives_the_same_trace_every_time():
    assert World(3).run().trace_hash == World(3).run().trace_hash


def test_seed_gives_the_same_trace_in_every_process():
    """Also where the hashes of strings, and so the order of sets, are others."""
    code = "from tests.simulation.world import World; print(World(5).run().trace_hash)"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True
        )
        for hashes in ("1", "2")
    ]
    assert len({run.stdout for run in runs}) == 1


def test_every_fault_occurs_in_some_seed():
    """The faults are worth something only where they meet the system."""
    answers: Counter[tuple[str, int]] = Counter()
    traces = []
    for seed in range(70):
        world = World(seed).run()
        answers += world.checks.answers
        traces += [line.partition(" ")[2] for line in world.trace]
    expected = [(verb, code) for verb in ("GET", "DELETE", "LIST") for code in (0, 200, 403, 404, 429, 500)]
    expected += [("DISCOVER", code) for code in (0, 200, 404, 429, 500)]
    assert [case for case in [*expected, ("DELETE", 409), ("LIST", 410)] if not answers[case]] == []
    reported = "\n".join(traces)
    for what in (
        "kills the process",
        "dead letter",
        "drops",
        "steps the local clock",
        "the watch breaks",
        "sends dev",
        "operators writes",
        "bad policy file",
        "it does not start",
        "kept-last",
        "over-count",
        "over-quota",
        "exempt",
        "jitter",
        "invalid-policy",
    ):
        assert what in reported


@pytest.mark.parametrize("seed", range(12))
def test_slow_safeguards_pass_no_outdated_decision(seed):
    world = World(seed, slow_safeguards=True).run()
    assert not [line for line in world.trace if "VIOLATION" in line]


def test_mutant_that_decides_only_before_slow_safeguards_is_caught():
    assert any(_caught(seed, DECIDED_ONCE, slow_safeguards=True) in DECIDED_ONCE.rules for seed in range(80))


@pytest.mark.parametrize("seed", range(24))
def test_budget_limits_the_rate_and_every_due_object_is_deleted(seed):
    world = World(seed, rates=RATES).run()
    assert not [line for line in world.trace if "VIOLATION" in line]


def test_budget_is_exhausted_in_some_seed():
    traces = "\n".join("\n".join(World(seed, rates=RATES).run().trace) for seed in range(4, 8))
    assert "timer-set" in traces
    assert " budget" in traces


@pytest.mark.parametrize("name", BUDGET_MUTANTS)
def test_mutant_of_the_budget_is_caught(name):
    mutant = BUDGET_MUTANTS[name]
    assert any(_caught(seed, mutant, rates=RATES) in mutant.rules for seed in range(60))


def _caught(seed: int, mutant: Mutant, **options: Any) -> str:
    try:
        World(seed, mutant=mutant, **options).run()
    except Violation as violation:
        return violation.rule
    return ""
