"""A short chaos run of each timer engine, and systems with one mistake each that the same run must catch.

make chaos MINUTES=60 ENGINE=sqlite SEED=7    as long as you like
"""

import os
import random
from datetime import UTC, datetime, timedelta

import pytest

from tests.crash.chaos import chaos
from tests.crash.chaos_engines import CHAOS_ENGINES
from tests.crash.chaos_ledger import ChaosLedger

pytestmark = [pytest.mark.anyio, pytest.mark.realtime, pytest.mark.timeout(300)]

SEED = int(os.getenv("CRASH_SEED", str(random.randrange(10**6))))
SECONDS = float(os.getenv("CHAOS_SECONDS", "60"))
MUTANT_SECONDS = 6.0
MUTANTS = {
    "drops": {"lost"},
    "early": {"early"},
    "stubborn": {"lost"},
}
"""The rule that each mistake violates, among others."""

DUE = datetime(2026, 3, 14, 15, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize("engine", CHAOS_ENGINES)
async def test_engine_under_chaos_breaks_no_rule(tmp_path, engine):
    async with chaos(tmp_path, engine, SEED) as run:
        await run.run(SECONDS)
    print(f"CRASH_SEED={SEED}: {run.ledger.summary()}; {dict(run.kills)}")
    assert {rule: found for rule, found in run.ledger.violations.items() if found} == {}
    assert run.ledger.counts["accepted"] > 10 * SECONDS, "the machine is too slow for this test to mean anything"


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_mutant_under_chaos_is_caught(tmp_path, mutant):
    async with chaos(tmp_path, "sqlite", SEED, mutant) as run:
        run.drain_seconds = 4.0
        await run.run(MUTANT_SECONDS)
    print(f"CRASH_SEED={SEED}: {run.ledger.summary()}")
    assert MUTANTS[mutant] <= {rule for rule, found in run.ledger.violations.items() if found}


def asked(ledger, due_at, *, answered=True):
    """A request, acknowledged or without an answer."""
    ledger.asked("uid", due_at)
    (ledger.acknowledged if answered else ledger.unanswered)("uid", due_at)


def arrived(ledger, due_at, at):
    ledger.arrived("uid", due_at, at)
    ledger.accepted("uid", due_at, at)


def test_ledger_reports_an_acknowledged_timer_that_did_not_arrive():
    ledger = ChaosLedger()
    asked(ledger, DUE)
    assert ledger.lost() == ["uid"]
    arrived(ledger, DUE, DUE)
    assert ledger.lost() == []


def test_ledger_lets_an_unanswered_request_replace_an_acknowledged_one():
    ledger = ChaosLedger()
    asked(ledger, DUE)
    asked(ledger, DUE + SECOND, answered=False)
    arrived(ledger, DUE + SECOND, DUE + SECOND)
    assert ledger.lost() == []


@pytest.mark.parametrize(("late", "lost"), [(SECOND, []), (-SECOND, ["uid"])], ids=["after", "before"])
def test_ledger_lets_an_older_timer_stand_for_a_newer_one_that_is_due(late, lost):
    ledger = ChaosLedger()
    asked(ledger, DUE)
    asked(ledger, DUE + 5 * SECOND)
    arrived(ledger, DUE, DUE + 5 * SECOND + late)
    assert ledger.lost() == lost


def test_ledger_lets_no_timer_that_arrived_before_stand_for_a_later_one():
    ledger = ChaosLedger()
    asked(ledger, DUE, answered=False)
    arrived(ledger, DUE, DUE)
    asked(ledger, DUE + SECOND)
    assert ledger.lost() == ["uid"]
