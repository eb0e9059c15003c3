"""Replay one seed: `python -m tests.simulation SEED [--steps N] [--verbose] [--mutant NAME]`.

With `--seeds N` it runs N seeds from SEED on and prints those that fail.
"""

import argparse
import sys
import time

from tests.simulation.checks import Violation
from tests.simulation.mutants import MUTANTS
from tests.simulation.policy_mutants import POLICY_MUTANTS
from tests.simulation.world import World

TAIL = 60
_MUTANTS = {**MUTANTS, **POLICY_MUTANTS}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Replay a seed of the simulation.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--steps", type=int, help="seconds of troubles, instead of what the seed says")
    parser.add_argument("--verbose", action="store_true", help="the whole trace, also of a seed that holds")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from SEED on")
    parser.add_argument("--mutant", choices=sorted(_MUTANTS), default="none", help="break the system on purpose")
    options = parser.parse_args()
    begin, failed = time.perf_counter(), 0
    for seed in range(options.seed, options.seed + options.seeds):
        failed += not _holds(seed, options)
    seconds = time.perf_counter() - begin
    print(f"{options.seeds - failed} of {options.seeds} seeds hold; {options.seeds / seconds:.1f} seeds a second")
    return min(failed, 1)


def _holds(seed: int, options: argparse.Namespace) -> bool:
    world = World(seed, mutant=_MUTANTS[options.mutant], steps=options.steps)
    try:
        world.run()
    except Violation as violation:
        if options.seeds == 1:
            print("\n".join(world.trace if options.verbose else world.trace[-TAIL:]))
        print(f"seed {seed}: {violation}")
        return False
    if options.seeds == 1:
        print("\n".join(world.trace if options.verbose else []))
        print(f"seed {seed}: {world.loop.time():.0f} s, {len(world.history.all)} objects, {dict(world.checks.calls)}, ")
        print(f"{world.broker.dead_letters} dead letters, trace {world.trace_hash[:16]}")
    return True


if __name__ == "__main__":
    sys.exit(main())
