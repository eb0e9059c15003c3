"""Archives in a world that fails, seed by seed: outages, lost answers and documents, changes, restores, crashes."""

import os

import pytest

from tests.simulation.archive_mutants import ARCHIVE_MUTANTS
from tests.simulation.archive_world import ArchiveMutant, ArchiveWorld
from tests.simulation.checks import Violation

SEEDS = int(os.getenv("SIM_SEEDS", "30"))
CHUNKS = 10
MUTANT_SEEDS = 80


@pytest.mark.timeout(max(240, 4 * SEEDS))
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_archives_hold_in_every_seed(chunk):
    for seed in range(chunk, SEEDS, CHUNKS):
        world = ArchiveWorld(seed)
        try:
            world.run()
        except Violation as violation:
            trace = "\n".join(world.trace[-40:])
            pytest.fail(f"seed {seed}: {violation}\n\n{trace}", pytrace=False)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ARCHIVE_MUTANTS)
def test_archive_mutant_is_caught(name):
    mutant, caught = ARCHIVE_MUTANTS[name], set[str]()
    for seed in range(MUTANT_SEEDS):
        caught.add(_caught(seed, mutant))
        if caught & mutant.rules:
            return
    pytest.fail(f"{name}: expected one of {set(mutant.rules)} in {MUTANT_SEEDS} seeds, got {caught}")


def test_archive_seed_gives_the_same_trace_every_time():
    assert ArchiveWorld(3).run().trace_hash == ArchiveWorld(3).run().trace_hash


def test_every_event_of_archives_occurs_in_some_seed():
    """The checks are worth something only where objects are archived, changed, archived again, deleted and kept."""
    worlds = [ArchiveWorld(seed).run() for seed in range(20)]
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


def _caught(seed: int, mutant: ArchiveMutant) -> str:
    try:
        ArchiveWorld(seed, mutant).run()
    except Violation as violation:
        return violation.rule
    return ""
