"""The rows of `top`."""

import json
from io import StringIO

import pytest
from rich.console import Console

from shared.cli.planning.due_rows import By, count_piles, pile_table, piles_as_json
from tests.unit.cli.planning.test_plan_view import objects  # noqa: F401 - a fixture

pytestmark = pytest.mark.anyio


async def test_piles_count_finished_objects_and_the_largest_comes_first(objects):  # noqa: F811
    piles = count_piles(objects, By.NAMESPACE)
    found = [(pile.names, pile.finished, pile.forever, pile.due_within_day) for pile in piles]
    assert found == [(("ci",), 3, 0, 3), (("web",), 2, 1, 0)]


async def test_table_of_top_shows_the_change_since_the_first_read(objects):  # noqa: F811
    file = StringIO()
    console = Console(width=80, file=file)
    console.print(pile_table(count_piles(objects, None), None, {("ci", "Job"): 1}, width=80))
    rows = [line.split() for line in file.getvalue().splitlines()]
    assert ["ci", "Job", "3", "0", "3", "1m", "+2"] in rows
    assert ["web", "Job", "2", "1", "0", "1m", "+2"] in rows
    assert max(map(len, file.getvalue().splitlines())) <= 80


async def test_json_of_top_names_each_group(objects):  # noqa: F811
    found = json.loads(json.dumps(piles_as_json(count_piles(objects, By.OWNER), By.OWNER)))
    assert found["version"] == 1
    assert found["rows"][0] | {"oldestFinishedAt": "…"} == {
        "namespace": "ci",
        "owner": "CronJob nightly",
        "finished": 2,
        "forever": 0,
        "dueWithin24h": 2,
        "oldestFinishedAt": "…",
    }
