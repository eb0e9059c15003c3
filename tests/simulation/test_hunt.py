"""The search for a seed that breaks a rule: it can fail, and the recorded seed is only the first that is tried."""

import json
from pathlib import Path

import pytest

from tests.simulation import hunt
from tests.simulation.checks import Violation


class Broken:
    """A world that breaks the rule S1 in some seeds, and S2 in all others."""

    def __init__(self, seed: int, *seeds: int) -> None:
        self.seed, self.rule = seed, "S1" if seed in seeds else "S2"
        self.trace = [f"line {number}" for number in range(100)]

    def run(self) -> None:
        tried.append(self.seed)
        raise Violation(self.rule, "broken")


tried: list[int] = []


@pytest.fixture(autouse=True)
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tried.clear()
    file = tmp_path / "caught.json"
    file.write_text('{"a": 7}')
    monkeypatch.setattr(hunt, "RECORDED", file)
    return file


def test_recorded_seed_is_tried_first() -> None:
    hunt.assert_caught("a", {"S1"}, lambda seed: Broken(seed, 3, 7), 10)
    assert tried == [7]


def test_all_seeds_are_tried_if_the_recorded_one_is_useless(monkeypatch: pytest.MonkeyPatch, recorded: Path) -> None:
    monkeypatch.setenv("TTL_RECORD_SEEDS", "1")
    hunt.assert_caught("a", {"S1"}, lambda seed: Broken(seed, 2), 10)
    assert tried == [7, 0, 1, 2]
    assert json.loads(recorded.read_text()) == {"a": 2}


@pytest.mark.parametrize("name", ["a", "without a record"])
def test_mutant_that_no_seed_catches_fails(name: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"expected one of \{'S1'\} in 10 seeds, got \{'S2'\}"):
        hunt.assert_caught(name, {"S1"}, Broken, 10)
    assert sorted(tried) == list(range(10))


def test_world_that_breaks_a_rule_fails_with_its_trace() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"(?s)^seed 4: S2.*make sim SEED=4.*line 60.*line 99$"):
        hunt.assert_holds(Broken, [4, 5], "make sim SEED={seed}")
    assert tried == [4]
