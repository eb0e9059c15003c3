"""The whole system in a world that fails, seed by seed. `SIM_SEEDS=5000 pytest tests/simulation` runs more of them."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.simulation.checks import Violation
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import World

SEEDS = int(os.getenv("SIM_SEEDS", "200"))
CHUNKS = 20
MUTANT_SEEDS = 150


@pytest.mark.timeout(max(120, SEEDS))
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_must_hold_holds_in_every_seed(chunk):
    for seed in range(chunk, SEEDS, CHUNKS):
        world = World(seed)
        try:
            world.run()
        except Violation as violation:
            reproduce = f"python -m tests.simulation {seed} --verbose"
            trace = "\n".join(world.trace[-40:])
            pytest.fail(f"seed {seed}: {violation}\n\nmake sim SEED={seed}, or: {reproduce}\n\n{trace}", pytrace=False)


@pytest.mark.parametrize("name", [name for name in MUTANTS if name != "none"])
def test_a_deliberate_mistake_is_caught(name):
    """A check that cannot fail is worth nothing."""
    mutant = MUTANTS[name]
    caught = {_caught(seed, mutant) for seed in range(3)} - {""}
    for seed in range(3, MUTANT_SEEDS):
        if caught & mutant.rules:
            return
        caught.add(_caught(seed, mutant))
    assert caught & mutant.rules, f"{name}: expected one of {set(mutant.rules)} in {MUTANT_SEEDS} seeds, got {caught}"


def test_a_seed_is_the_same_world_every_time():
    assert World(3).run().trace_hash == World(3).run().trace_hash


def test_a_seed_is_the_same_world_in_every_process():
    """Also where the hashes of strings, and so the order of sets, are others."""
    code = "from tests.simulation.world import World; print(World(5).run().trace_hash)"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True
        )
        for hashes in ("1", "2")
    ]
    assert len({run.stdout for run in runs}) == 1


def test_what_may_go_wrong_does():
    """The faults are worth something only where they meet the system."""
    answers: Counter[tuple[str, int]] = Counter()
    traces = []
    for seed in range(30):
        world = World(seed).run()
        answers += world.checks.answers
        traces += [line.partition(" ")[2] for line in world.trace]
    expected = [(verb, code) for verb in ("GET", "DELETE", "LIST") for code in (0, 200, 403, 404, 429, 500)]
    expected += [("LOOK", code) for code in (0, 200, 404, 429, 500)]
    assert [case for case in [*expected, ("DELETE", 409), ("LIST", 410)] if not answers[case]] == []
    told = "\n".join(traces)
    for what in ("kills the process", "dead letter", "drops", "steps the local clock", "the watch breaks", "sends dev"):
        assert what in told


def _caught(seed: int, mutant: Mutant) -> str:
    try:
        World(seed, mutant=mutant).run()
    except Violation as violation:
        return violation.rule
    return ""
