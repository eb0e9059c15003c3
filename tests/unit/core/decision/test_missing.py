"""The reasons that name a missing fact."""

from shared.core.decision.facts import MISSING
from shared.core.decision.reasons import Reason


def test_each_reason_that_something_was_not_read_names_a_fact_of_its_own():
    assert MISSING.keys() == {reason for reason in Reason if reason.endswith("-unread")}
    assert [f"{fact}-unread" for fact in MISSING.values()] == [*MISSING]
