"""Deadlines in a world that fails, seed by seed: failed and suspended Jobs, undone stops, lost events, crashes."""

import os

import pytest

from tests.simulation.deadline_mutants import DEADLINE_MUTANTS
from tests.simulation.deadline_world import DeadlineWorld
from tests.simulation.hunt import assert_caught, assert_holds

pytestmark = pytest.mark.timeout(480)  # a machine that does other work takes several times as long

SEEDS = int(os.getenv("SIM_SEEDS", "50"))
CHUNKS = 10
MUTANT_SEEDS = 60


@pytest.mark.timeout(max(120, SEEDS))
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_deadlines_hold_in_every_seed(chunk):
    assert_holds(DeadlineWorld, range(chunk, SEEDS, CHUNKS))


@pytest.mark.parametrize("name", DEADLINE_MUTANTS)
def test_deadline_mutant_is_caught(name):
    mutant = DEADLINE_MUTANTS[name]
    assert_caught(f"deadline/{name}", mutant.rules, lambda seed: DeadlineWorld(seed, mutant), MUTANT_SEEDS)


def test_deadline_seed_gives_the_same_trace_every_time():
    assert DeadlineWorld(3).run().trace_hash == DeadlineWorld(3).run().trace_hash


def test_every_event_of_deadlines_occurs_in_some_seed():
    """The checks are worth something only where objects are stopped, resumed, undone, deleted and left alone."""
    worlds = [DeadlineWorld(seed).run() for seed in range(12)]
    traces = "\n".join("\n".join(world.trace) for world in worlds)

    assert sum(world.checks.stops for world in worlds) > 50
    assert sum(world.checks.resumed_stops for world in worlds) > 10
    assert sum(world.checks.deletions for world in worlds) > 5
    for what in (
        "already-stopped",
        "stop-undone",
        "suspended",
        "held",
        "exempt",
        "enforced-by-controller",
        "invalid-deadline",
        "never",
        "not-due",
        "undo",
        "DeadlineExceeded",
        "kills the process",
        "try-later",
    ):
        assert what in traces, what
