"""The whole system in a world that fails, seed by seed. `SIM_SEEDS=5000 pytest tests/simulation` runs more of them."""

import os
import subprocess
import sys

import pytest

from shared.core.policy.limits import Rate
from tests.simulation.budget import Rates
from tests.simulation.hunt import assert_caught, assert_holds, run_until
from tests.simulation.mutants import BUDGET_MUTANTS, MUTANTS, NONE, SLOW_KIND_REPEATED, Mutant
from tests.simulation.policy_mutants import DECIDED_ONCE, POLICY_MUTANTS
from tests.simulation.world import World

pytestmark = pytest.mark.timeout(480)  # a machine that does other work takes several times as long

SEEDS = int(os.getenv("SIM_SEEDS", "150"))
CHUNKS = 20
MUTANT_SEEDS = 500
RATES = Rates(everywhere=Rate(1.0, burst=3), per_namespace=Rate(0.5, burst=2))


@pytest.mark.timeout(max(120, SEEDS))
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_properties_hold_in_every_seed(chunk):
    reproduce = "make sim SEED={seed}, or: python -m tests.simulation {seed} --verbose"
    assert_holds(World, range(chunk, SEEDS, CHUNKS), reproduce)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in [*MUTANTS, *POLICY_MUTANTS] if name != "none"])
def test_mutant_is_caught(name):
    """A check that cannot fail is worth nothing."""
    mutant = {**MUTANTS, **POLICY_MUTANTS}[name]
    assert_caught(f"world/{name}", mutant.rules, lambda seed: World(seed, mutant=mutant), MUTANT_SEEDS)


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
    expected = {(verb, code) for verb in ("GET", "DELETE", "LIST") for code in (0, 200, 403, 404, 429, 500)}
    expected |= {("DISCOVER", code) for code in (0, 200, 404, 429, 500)} | {("DELETE", 409), ("LIST", 410)}
    words = {
        "kills the process",
        "dead letter",
        "drops",
        "keeps the older timer",
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
    }
    missing: set[object] = expected | words

    def is_enough(world: World) -> bool:
        missing.difference_update(case for case, count in world.checks.answers.items() if count)
        trace = "\n".join(line.partition(" ")[2] for line in world.trace)
        missing.difference_update(word for word in words if word in trace)
        return not missing

    run_until(World, 150, is_enough)
    assert missing == set()


@pytest.mark.parametrize("seed", range(12))
def test_slow_safeguards_pass_no_outdated_decision(seed):
    world = World(seed, slow_safeguards=True).run()
    assert not [line for line in world.trace if "VIOLATION" in line]


def test_mutant_that_decides_only_before_slow_safeguards_is_caught():
    def make(seed: int) -> World:
        return World(seed, mutant=DECIDED_ONCE, slow_safeguards=True)

    assert_caught("world/decided-once", DECIDED_ONCE.rules, make, 150)


@pytest.mark.parametrize("seed", range(24))
def test_budget_limits_the_rate_and_every_due_object_is_deleted(seed):
    world = World(seed, rates=RATES).run()
    assert not [line for line in world.trace if "VIOLATION" in line]


def test_budget_is_exhausted_in_some_seed():
    traces = ("\n".join(World(seed, rates=RATES).run().trace) for seed in range(40))
    assert any("timer-set" in trace and " budget" in trace for trace in traces)


@pytest.mark.parametrize("name", BUDGET_MUTANTS)
def test_mutant_of_the_budget_is_caught(name):
    mutant = BUDGET_MUTANTS[name]
    assert_caught(f"budget/{name}", mutant.rules, lambda seed: World(seed, mutant=mutant, rates=RATES), 60)


def make_hanging(seed: int, mutant: Mutant = NONE) -> World:
    """A world in which the LISTs of one kind time out for ever."""
    return World(seed, mutant=mutant, hanging=("Job", "Pod", "TrainJob")[seed % 3])


@pytest.mark.parametrize("chunk", range(4))
def test_kind_whose_lists_time_out_keeps_no_other_kind_from_its_sweep(chunk):
    assert_holds(make_hanging, range(chunk, 40, 4))


def test_mutant_that_repeats_the_step_of_a_slow_kind_is_caught():
    mutant = SLOW_KIND_REPEATED
    assert_caught("world/slow-kind-repeated", mutant.rules, lambda seed: make_hanging(seed, mutant), 60)
