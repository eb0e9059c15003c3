"""What `plan --policy` shows of objects that an archive has to store before they are deleted."""

from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from shared.cli.objects.archive_report import if_archived
from shared.cli.planning.comparison import Comparison, Count, Term
from shared.cli.planning.comparison_output import check_limit, show
from shared.core.archive.archiving import Archiving
from shared.core.decision.decide import Facts, Ignore, Reason, Wait
from shared.core.decision.finish import Finish
from shared.core.policy.policy import NO_POLICY, Policy
from tests.builders import NOW, ago, later
from tests.unit.cli.test_plan import a_job, cluster_of, compare

pytestmark = pytest.mark.anyio


def archiving_policy(grace: str, ttl: str = "1m") -> Policy:
    rule = {"name": "ci", "match": {"kinds": ["jobs"]}, "ttl": ttl, "archive": {"to": "main", "grace": grace}}
    return Policy.model_validate({"archives": {"main": {"url": "file:///archive"}}, "rules": [rule]})


async def compared(new: Policy, in_force: Policy = NO_POLICY) -> Comparison:
    return await compare(cluster_of(a_job(1, complete=ago(120)), a_job(2, complete=ago(120)), a_job(3)), new, in_force)


@pytest.mark.parametrize(("grace", "term"), [("0s", Term.NOW), ("1h", Term.HOUR), ("1d", Term.DAY), ("9d", Term.LATER)])
async def test_overdue_object_counts_as_archived_now(grace, term):
    comparison = await compared(archiving_policy(grace))
    assert comparison.totals[term] == Count(0, 2)
    assert len(comparison.changed) == 2
    assert len(comparison.due_within(timedelta(days=10))) == 2


async def test_object_that_waits_for_its_archive_under_both_policies_does_not_change():
    assert not (await compared(archiving_policy("1h"), archiving_policy("1h"))).changed
    assert (await compared(archiving_policy("1d"), archiving_policy("1h"))).changed


async def test_limit_counts_objects_that_are_deleted_as_soon_as_they_are_archived():
    new = archiving_policy("0s")
    warning = check_limit(await compared(new), new.limits, 1)
    assert (warning.is_raised, warning.due_now, warning.archived_first) == (True, 2, {"main": 2})
    assert str(warning) == (
        "2 objects would be deleted at once, more than 1: 2 by policy rule ci; "
        "2 are archived first, and deleted as soon as archive main has them"
    )
    later_ones = archiving_policy("1h")
    assert not check_limit(await compared(later_ones), later_ones.limits, 1).is_raised


@pytest.mark.parametrize(
    ("grace", "shown"),
    [
        ("0s", "kept (archive-unread); due as soon as it is archived, by policy rule ci"),
        ("1h", "kept (archive-unread); if archived now, due in 1h, by policy rule ci"),
    ],
)
async def test_object_that_is_archived_first_is_listed_with_its_due_time(grace, shown):
    out = StringIO()
    show(Console(file=out, width=200), await compared(archiving_policy(grace)), everything=False)
    assert out.getvalue().count(shown) == 2


def test_decision_without_a_missing_acknowledgement_is_returned_as_it_is():
    facts = Facts(Finish(finished=True, at=ago(120)), due_at=later(60), archiving=Archiving("main", "policy rule ci"))
    held, waiting = Ignore(Reason.HELD, facts), Ignore(Reason.NOT_ARCHIVED, facts)
    assert if_archived(held, NOW) is held
    assert if_archived(waiting, NOW) == Wait(later(60), Reason.NOT_DUE, facts)
