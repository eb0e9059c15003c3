"""The guard of `make bench-guard`: it fails for a ratio above what is recorded, and for nothing else."""

import pytest

from tests.benchmarks.drain import Drained
from tests.benchmarks.regression import FACTOR, RECORDED, regressions


def drained(ratio: float) -> Drained:
    return Drained(10, 1.0, calls={}, gets=0.0, cpu_ms=1.0, before_ms=0.0, start_ms=0.0, cpu_of_limit=ratio)


def rounds(factor: float) -> dict[str, list[Drained]]:
    """Three rounds of each path; the middle one counts."""
    return {name: [drained(by * recorded) for by in (0.1, factor, 9.0)] for name, recorded in RECORDED.items()}


def test_ratio_up_to_the_factor_passes():
    assert list(regressions(rounds(FACTOR))) == []


@pytest.mark.parametrize("name", RECORDED)
def test_larger_ratio_of_one_path_is_named(name):
    (problem,) = regressions({**rounds(1.0), name: rounds(FACTOR + 0.01)[name]})
    assert problem.startswith(f"our {name}: CPU a deletion is ")


def test_doubled_processor_time_is_a_regression():
    assert len(list(regressions(rounds(2.0)))) == len(RECORDED)
