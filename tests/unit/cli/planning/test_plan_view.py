"""What `plan` shows of many objects: rows in a chosen order, the names of due objects, a forecast, JSON."""

import json
from io import StringIO

import pytest
from click.testing import CliRunner
from rich.console import Console

from shared.cli.main import main
from shared.cli.objects.preview import find_all
from shared.cli.planning.comparison import Term
from shared.cli.planning.due_rows import By, Order, count_rows, sort_rows
from shared.cli.planning.plan_view import PlanView, forecast, print_forecast, print_plan, rows_as_json
from shared.core.policy.policy import NO_POLICY, Policy
from tests.builders import JOB, POD, ago, having, job
from tests.fakes import FakeCluster
from tests.unit.cli.test_plan import KINDS

pytestmark = pytest.mark.anyio

HOUR = 3_600


def a_job(name, place="ci", *, cron="", **options):
    obj = job(name=name, uid=f"uid-{place}-{name}", namespace=place, **options)
    if not cron:
        return obj
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": cron, "uid": f"uid-{cron}", "controller": True}
    return having(obj, "metadata.ownerReferences", [owner])


def finished(name, place="ci", *, left, **options):
    """A finished Job that is due after `left` seconds."""
    return a_job(name, place, complete=ago(60), ttl=left + 60, **options)


FLEET = (
    finished("now", left=-30, cron="nightly"),
    finished("soon", left=HOUR // 2, cron="nightly"),
    finished("today", left=5 * HOUR),
    finished("next-week", "web", left=200 * HOUR),
    a_job("works", "web"),
    a_job("held", "web", complete=ago(60), ttl=1, hold="why"),
    a_job("idle", "old"),
)


@pytest.fixture
async def objects():
    cluster = FakeCluster()
    for one in FLEET:
        cluster.put(one)
    found = await find_all(cluster, (JOB, POD), policies=[NO_POLICY], kinds=KINDS, namespace="")
    return found.objects


async def test_rows_count_objects_by_term(objects):
    rows = {row.names: row for row in count_rows(objects, None)}
    ci = rows["ci", "Job"]
    assert [ci.counts[term] for term in Term] == [1, 1, 1, 0, 0]
    assert [rows["web", "Job"].counts[term] for term in Term] == [0, 0, 0, 1, 2]
    assert ci.next_at is not None
    assert rows["old", "Job"].next_at is None


@pytest.mark.parametrize(
    ("by", "names"),
    [
        (By.NAMESPACE, {("ci",), ("web",), ("old",)}),
        (By.KIND, {("jobs.batch",)}),
        (By.RULE, {("spec.ttlSecondsAfterFinished",), ("-",)}),
        (By.OWNER, {("ci", "CronJob nightly"), ("ci", "-"), ("web", "-"), ("old", "-")}),
    ],
)
async def test_by_puts_objects_into_one_row(objects, by, names):
    rows = count_rows(objects, by)
    assert {row.names for row in rows} == names
    assert sum(row.total for row in rows) == len(FLEET)


@pytest.mark.parametrize(
    ("order", "first"),
    [(Order.NAME, "ci"), (Order.DUE, "ci"), (Order.NEXT, "ci"), (Order.STAYS, "web"), (Order.TOTAL, "ci")],
)
async def test_sort_orders_rows(objects, order, first):
    assert sort_rows(count_rows(objects, By.NAMESPACE), order)[0].names == (first,)


async def test_top_alone_shows_the_rows_with_the_most_due_objects(objects):
    rows = count_rows([*objects, *objects[-1:]], By.NAMESPACE)
    assert [row.names[0] for row in PlanView(top=2).choose(rows)] == ["ci", "web"]
    assert [row.names[0] for row in PlanView(top=2, sort=Order.NAME).choose(rows)] == ["ci", "old"]


async def test_plan_says_how_many_rows_top_leaves_out_and_why_objects_stay(objects, capsys):
    print_plan(objects, PlanView(top=1))
    out = capsys.readouterr().out
    assert "... and 2 more rows" in out
    assert "kept, by reason: 2 unfinished, 1 held" in out
    assert "STAYS: kept for now." in out
    assert max(map(len, out.splitlines())) <= 80


async def test_names_list_due_objects_with_due_times_first_due_first(objects, capsys):
    print_plan(objects, PlanView(names=True))
    out = capsys.readouterr().out
    listed = [line.split()[1] for line in out.splitlines() if line.startswith(" Job ")]
    assert listed == ["ci/now", "ci/soon", "ci/today", "web/next-week"]
    assert "in 30m" in out
    print_plan(objects, PlanView(names=True, top=1))
    assert "... and 3 more objects" in capsys.readouterr().out


async def test_forecast_counts_windows_of_three_hours(objects):
    bars = {bar.label: bar.count for bar in forecast(objects)}
    assert {label: count for label, count in bars.items() if count} == {"now": 1, "0-3h": 1, "3-6h": 1, "later": 1}
    assert len(bars) == 10


async def test_forecast_is_printed_on_request_and_fits_80_columns(objects, capsys):
    print_plan(objects)
    assert "due now " not in capsys.readouterr().out  # a pipe
    print_plan(objects, PlanView(forecast=True))
    out = capsys.readouterr().out
    assert "due 21-24h" in out
    assert "█" in out
    file = StringIO()
    print_forecast(Console(width=80, file=file), objects)
    assert max(map(len, file.getvalue().splitlines())) <= 80


async def test_forecast_without_a_due_object_is_empty(objects):
    file = StringIO()
    print_forecast(Console(width=80, file=file), [one for one in objects if one.ref.namespace == "old"])
    assert file.getvalue() == ""


async def test_json_of_rows_has_the_rows_totals_and_a_version(objects):
    found = json.loads(json.dumps(rows_as_json(objects, PlanView(by=By.OWNER, top=1))))
    assert found["version"] == 1
    assert found["rows"][0] | {"nextDueAt": "…"} == {
        "namespace": "ci",
        "owner": "CronJob nightly",
        "dueNow": 1,
        "within1h": 1,
        "from1hTo24h": 0,
        "later": 0,
        "kept": 0,
        "nextDueAt": "…",
    }
    assert found["totals"] == {"dueNow": 1, "within1h": 1, "from1hTo24h": 1, "later": 1, "kept": 3}
    assert found["keptByReason"] == {"unfinished": 2, "held": 1}


async def test_rows_by_rule_name_the_policy_rule():
    cluster = FakeCluster()
    cluster.put(a_job("a", complete=ago(60)))
    policy = Policy.model_validate({"rules": [{"name": "ci", "match": {"kinds": ["jobs"]}, "ttl": "1h"}]})
    found = await find_all(cluster, (JOB,), policies=[policy], kinds=KINDS, namespace="")
    assert [row.names for row in count_rows(found.objects, By.RULE)] == [("policy rule ci",)]


async def test_read_objects_are_counted_for_progress():
    cluster = FakeCluster(page_size=2)
    for one in FLEET:
        cluster.put(one)
    seen: list[int] = []
    await find_all(cluster, (JOB,), policies=[NO_POLICY], kinds=KINDS, namespace="", on_read=seen.append)
    assert sum(seen) == len(FLEET)
    assert len(seen) > 1


@pytest.mark.parametrize("option", ["--names", "--by=kind", "--sort=due", "--top=1", "--forecast"])
def test_view_options_are_rejected_with_a_policy_to_compare(option):
    done = CliRunner().invoke(main, ["plan", "--policy", "none", option])
    assert done.exit_code == 2
    assert "omit --policy" in done.stderr
