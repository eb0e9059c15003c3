"""Find tests whose result depends on order or load: `make flakes ROUNDS=20`.

Each round runs what `make test` runs, in another random order and beside four busy loops. At the end each test that
ever failed is printed, with the rounds in which it failed; the exit code is 1 if there is one. To repeat a round, give
its seed: `make flakes ROUNDS=1 SEED=7`.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.failures import failed_tests, run_pytest

BUSY_LOOPS = 4
_BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
"""It ends with its parent, whichever signal ends that one."""


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Keep some processes busy meanwhile."""
    started = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def main() -> int:
    """Run the rounds; the exit code is 1 if a test failed in one of them."""
    parser = argparse.ArgumentParser(description="Run pytest in random order under load, and list what ever failed.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next round has the next seed")
    parser.add_argument("words", nargs="+", help="the words of pytest, such as folders")
    given = parser.parse_args()

    failed: defaultdict[str, list[int]] = defaultdict(list)
    with busy(BUSY_LOOPS), tempfile.TemporaryDirectory() as cache:
        for seed in range(given.seed, given.seed + given.rounds):
            code = run_pytest(Path(cache), "-p", "randomly", f"--randomly-seed={seed}", *given.words)
            found = failed_tests(Path(cache)) if code else set()
            if code and not found:
                print(f"seed {seed}: pytest ended with {code}, and no test failed", file=sys.stderr)
                return code
            for test in found:
                failed[test].append(seed)
            print(f"seed {seed}: {len(found)} failed", flush=True)
    for test, seeds in sorted(failed.items(), key=lambda one: (-len(one[1]), one[0])):
        print(f"{test}: failed with the seeds {', '.join(map(str, seeds))}")
    print(f"{len(failed)} tests failed in some of {given.rounds} rounds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
