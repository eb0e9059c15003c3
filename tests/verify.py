"""Run the tests on real servers: `make verify`.

A real server on a busy machine may answer too late for a test. So each test that failed runs once more, alone. If it
passes, it is listed as flaky, on the screen and in a file, and does not fail the run; but more than three flaky tests
do. Nothing else is repeated.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.failures import failed_tests, run_pytest

FLAKY_MAX = 3
FAILED = 1
"""The exit code of pytest, if tests failed and nothing else went wrong."""


def main() -> int:
    """Run pytest, then once more each test that failed; return the exit code."""
    parser = argparse.ArgumentParser(description="Run pytest, and each test that failed once more, alone.")
    parser.add_argument("--flaky", type=Path, required=True, help="the file to which the ids of flaky tests are added")
    parser.add_argument("words", nargs="+", help="the words of pytest, such as folders and -m")
    given = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        code = run_pytest(cache, *given.words)
        first = sorted(failed_tests(cache))
        if code != FAILED or not first:
            return code
        again = {test: run_pytest(cache, "-n", "0", test) for test in first}
    flaky = [test for test, code in again.items() if code == 0]
    with given.flaky.open("a") as file:
        file.writelines(f"{test}\n" for test in flaky)
    print(f"flaky, failed once and passed alone: {len(flaky)}", *flaky, sep="\n  ")
    broken = [test for test in first if test not in flaky]
    if broken:
        print(f"failed twice: {len(broken)}", *broken, sep="\n  ")
    if len(flaky) > FLAKY_MAX:
        print(f"more than {FLAKY_MAX} flaky tests: fix the cause of each")
    return FAILED if broken or len(flaky) > FLAKY_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
