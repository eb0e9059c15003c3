"""`plan` counts the unused Secrets and ConfigMaps that a policy would delete at once."""

import pytest

from shared.cli.planning.comparison import Comparison
from shared.cli.planning.comparison_output import check_limit
from shared.cli.planning.planned_usage import PlannedUsage
from shared.cli.usage.findings import UsageFinding
from shared.core.policy.policy import NO_POLICY
from shared.core.usage.decide_unused import UnusedContext, decide_unused
from shared.ports import Target
from tests.builders import NOW, ago
from tests.usage import LONG_UNUSED, config_map, kind_of, opted_in, passed, unused_policy


def finding(obj, **policy):
    observation = passed(ago(20))
    context = UnusedContext(unused_policy(**policy), opted_in(), (observation,))
    return UsageFinding(Target(obj, NOW), decide_unused(obj, kind_of(obj), NOW, context), observation, NOW)


DUE, LATER, NEW = config_map(marked=LONG_UNUSED), config_map(marked=ago(60)), config_map()


def test_objects_that_are_due_and_those_that_one_pass_will_mark_are_due_at_once():
    planned = PlannedUsage([finding(DUE), finding(LATER), finding(NEW), finding(NEW)], is_asked=True)
    assert planned.at_once == {"policy rule rotated (unused)": 3}


def test_audit_deletes_nothing_at_once():
    audit = {"ttl": "1d", "audit": True}
    assert PlannedUsage([finding(DUE, unused=audit), finding(NEW, unused=audit)], is_asked=True).at_once == {}


@pytest.mark.parametrize(("limit", "is_raised"), [(2, True), (3, False)])
def test_limit_counts_unused_objects(limit, is_raised):
    planned = PlannedUsage([finding(DUE), finding(NEW), finding(NEW)], is_asked=True)

    warning = check_limit(Comparison([]), NO_POLICY.limits, limit, planned.at_once)

    assert (warning.is_raised, warning.due_now) == (is_raised, 3)
    assert str(warning).endswith("3 by policy rule rotated (unused)")
