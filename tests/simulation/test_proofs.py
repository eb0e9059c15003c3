"""Deletions without a read in worlds that fail, with a forger who replays and alters the proofs of stored timers."""

import os

import pytest

from tests.simulation.hunt import assert_caught, assert_holds, run_until
from tests.simulation.proofs import PROOF_MUTANTS
from tests.simulation.world import World

pytestmark = pytest.mark.timeout(480)  # a machine that does other work takes several times as long

SEEDS = int(os.getenv("SIM_SEEDS", "60"))
CHUNKS = 12
MUTANT_SEEDS = 150


@pytest.mark.timeout(max(120, SEEDS))
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_properties_hold_with_proofs_in_every_seed(chunk):
    assert_holds(lambda seed: World(seed, proven=True), range(chunk, SEEDS, CHUNKS))


@pytest.mark.timeout(480)
@pytest.mark.parametrize("name", PROOF_MUTANTS)
def test_mutant_of_the_proofs_is_caught(name):
    mutant = PROOF_MUTANTS[name]
    assert_caught(f"proofs/{name}", mutant.rules, lambda seed: World(seed, mutant=mutant), MUTANT_SEEDS)


def test_proofs_hold_and_fail_in_some_seed():
    missing = {"proofs holds", "proofs does not hold"}

    def is_enough(world: World) -> bool:
        missing.difference_update([word for word in missing for line in world.trace if word in line])
        return not missing

    run_until(lambda seed: World(seed, proven=True), 20, is_enough)
    assert missing == set()
