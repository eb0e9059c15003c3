"""Archives in a world that fails, seed by seed: outages, lost answers and documents, changes, restores, crashes."""

import os

import pytest

from tests.simulation.archive_mutants import ARCHIVE_MUTANTS
from tests.simulation.archive_world import ArchiveWorld
from tests.simulation.hunt import assert_caught, assert_holds

pytestmark = pytest.mark.timeout(480)  # a machine that does other work takes several times as long

SEEDS = int(os.getenv("SIM_SEEDS", "30"))
CHUNKS = 10
MUTANT_SEEDS = 400


@pytest.mark.timeout(max(240, 4 * SEEDS))
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_archives_hold_in_every_seed(chunk):
    assert_holds(ArchiveWorld, range(chunk, SEEDS, CHUNKS))


@pytest.mark.timeout(480)
@pytest.mark.parametrize("name", ARCHIVE_MUTANTS)
def test_archive_mutant_is_caught(name):
    mutant = ARCHIVE_MUTANTS[name]
    assert_caught(f"archive/{name}", mutant.rules, lambda seed: ArchiveWorld(seed, mutant), MUTANT_SEEDS)


def test_archive_seed_gives_the_same_trace_every_time():
    assert ArchiveWorld(3).run().trace_hash == ArchiveWorld(3).run().trace_hash


def test_every_event_of_archives_occurs_in_some_seed():
    """The checks are worth something only where objects are archived, changed, archived again, deleted and kept."""
    worlds = [ArchiveWorld(seed).run() for seed in range(40)]
    traces = "\n".join("\n".join(world.trace) for world in worlds)

    assert sum(world.checks.archived_deletions for world in worlds) > 50
    assert sum(world.checks.rewritten for world in worlds) > 5
    for what in (
        "not-archived",
        "invalid-archive",
        "already-archived",
        "held",
        "restores",
        "kills the process",
        "loses v1",
        "spoils v1",
        "ForbiddenError",
        "the answer is lost",
        "says that",
        "try-later",
        "the credentials are not valid",
        "no answer within",
    ):
        assert what in traces, what
