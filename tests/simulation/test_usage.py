"""Unused objects in a world that fails, seed by seed: late references, LISTs that fail, ticks that are killed."""

import os

import pytest

from tests.simulation.hunt import assert_caught, assert_holds
from tests.simulation.usage_mutants import USAGE_MUTANTS
from tests.simulation.usage_world import UsageWorld

pytestmark = pytest.mark.timeout(480)  # a machine that does other work takes several times as long

SEEDS = int(os.getenv("SIM_SEEDS", "20"))
CHUNKS = 10
MUTANT_SEEDS = 40
WINDOW_SEEDS = 30


@pytest.mark.timeout(max(240, 2 * SEEDS))
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_unused_objects_hold_in_every_seed(chunk):
    assert_holds(UsageWorld, range(chunk, SEEDS, CHUNKS))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", USAGE_MUTANTS)
def test_usage_mutant_is_caught(name):
    mutant = USAGE_MUTANTS[name]
    assert_caught(f"usage/{name}", mutant.rules, lambda seed: UsageWorld(seed, mutant), MUTANT_SEEDS)


def test_usage_seed_gives_the_same_trace_every_time():
    assert UsageWorld(4).run().trace_hash == UsageWorld(4).run().trace_hash


@pytest.fixture(scope="module")
def worlds():
    return [UsageWorld(seed).run() for seed in range(WINDOW_SEEDS)]


@pytest.mark.timeout(240)
def test_every_event_of_usage_occurs_in_some_seed(worlds):
    """The checks are worth something only where objects are deleted, used again, raced, held and changed."""
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


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("calm", "windows", "ages_of_pods"),
    [
        pytest.param(True, (0.4, 1.1, 1.2), (0.2, 0.7, 0.8), id="requests of at most 0.1 s"),
        pytest.param(False, (5, 7, 8), (2, 4.5, 5), id="every second request up to 1.5 s"),
    ],
)
def test_race_window_of_a_deletion_has_the_documented_length(worlds, calm, windows, ages_of_pods):
    """The p50, the p99 and the most, of which docs/explanation/unused.md names the most of each load."""
    mine = [world for world in worlds if world.calm is calm]
    for name, most in (("windows", windows), ("ages_of_pods", ages_of_pods)):
        found = sorted(seconds for world in mine for seconds in getattr(world, name) if seconds)
        measured = [found[int(share * (len(found) - 1))] for share in (0.5, 0.99, 1)]
        print(f"{name}: {len(found)}, p50 {measured[0]:.2f} s, p99 {measured[1]:.2f} s, max {measured[2]:.2f} s")
        assert len(found) > 30
        assert all(seconds <= limit for seconds, limit in zip(measured, most, strict=True)), measured
