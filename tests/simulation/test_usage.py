"""Unused objects in a world that fails, seed by seed: late references, LISTs that fail, ticks that are killed."""

import os

import pytest

from tests.simulation.checks import Violation
from tests.simulation.usage_mutants import USAGE_MUTANTS
from tests.simulation.usage_world import UsageMutant, UsageWorld

SEEDS = int(os.getenv("SIM_SEEDS", "20"))
CHUNKS = 10
MUTANT_SEEDS = 40


@pytest.mark.timeout(max(240, 2 * SEEDS))
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_unused_objects_hold_in_every_seed(chunk):
    for seed in range(chunk, SEEDS, CHUNKS):
        world = UsageWorld(seed)
        try:
            world.run()
        except Violation as violation:
            trace = "\n".join(world.trace[-40:])
            pytest.fail(f"seed {seed}: {violation}\n\n{trace}", pytrace=False)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", USAGE_MUTANTS)
def test_usage_mutant_is_caught(name):
    mutant, caught = USAGE_MUTANTS[name], set[str]()
    for seed in range(MUTANT_SEEDS):
        caught.add(_caught(seed, mutant))
        if caught & mutant.rules:
            return
    pytest.fail(f"{name}: expected one of {set(mutant.rules)} in {MUTANT_SEEDS} seeds, got {caught}")


def test_usage_seed_gives_the_same_trace_every_time():
    assert UsageWorld(4).run().trace_hash == UsageWorld(4).run().trace_hash


@pytest.mark.timeout(240)
def test_every_event_of_usage_occurs_in_some_seed():
    """The checks are worth something only where objects are deleted, used again, raced, held and changed."""
    worlds = [UsageWorld(seed).run() for seed in range(9)]
    traces = "\n".join("\n".join(world.trace) for world in worlds)

    assert sum(world.deletions for world in worlds) > 100
    assert sum(world.raced for world in worlds) > 5
    assert sum(world.between for world in worlds) > 5
    assert sum(world.held_late for world in worlds) > 5
    for what in (
        "unmarked",
        "newly-unused",
        "changed",
        "announced",
        "held",
        "not-opted-in",
        "use-unknown",
        "cannot be listed",
        "try-later",
        "the process is killed",
        "not-archived",
        "the archive refuses",
    ):
        assert what in traces, what


def _caught(seed: int, mutant: UsageMutant) -> str:
    try:
        UsageWorld(seed, mutant).run()
    except Violation as violation:
        return violation.rule
    return ""
