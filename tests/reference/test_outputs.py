"""What the commands print with `-o json` is what the JSON Schemas say; those that need no cluster."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from shared.cli.main import main
from shared.cli.objects.object_report import as_json
from shared.cli.objects.preview import find_all
from shared.cli.planning.comparison import Comparison
from shared.cli.planning.comparison_output import as_document, check_limit
from shared.cli.planning.due_rows import By, count_piles, piles_as_json
from shared.cli.planning.plan_view import PlanView, rows_as_json
from shared.cli.timers.ls import TimerChange
from shared.cli.timers.move import change_line
from shared.core.policy.policy import NO_POLICY
from tests.builders import JOB, NOW, POD
from tests.reference.cli import PROGRAM, walk
from tests.reference.outputs import OUTPUTS
from tests.unit.cli.test_plan import FLEET, KINDS, POLICIES, cluster_of
from tests.unit.cli.timers.test_timers_commands import create, timer
from tests.unit.evaluation.test_quotas import quota

pytestmark = pytest.mark.anyio


def check(name: str, found: Any) -> None:
    OUTPUTS[name].adapter.validate_json(json.dumps(found), by_alias=True, by_name=False)


async def look(*policies):
    cluster = cluster_of(*FLEET, quota(hard=20, used=20))
    return (await find_all(cluster, (JOB, POD), policies=policies, kinds=KINDS, namespace="")).objects


@pytest.mark.parametrize("name", POLICIES)
async def test_objects_of_plan_follow_the_schema(name):
    check("plan", [as_json(one.ref, one.decisions[0], one.stops[0]) for one in await look(POLICIES[name])])


@pytest.mark.parametrize("by", By)
async def test_rows_of_plan_and_top_follow_the_schema(by):
    objects = await look(POLICIES["keep"])
    check("plan-by", rows_as_json(objects, PlanView(by=by)) | {"unused": []})
    check("top", piles_as_json(count_piles(objects, by), by))
    check("top", piles_as_json(count_piles(objects, None), None))


@pytest.mark.parametrize("name", ["keep", "no answer", "deadline"])
async def test_comparison_of_policies_follows_the_schema(name):
    comparison = Comparison(await look(NO_POLICY, POLICIES[name]))
    names = {"policy": "new", "inForce": "none"}
    document = as_document(comparison, names, check_limit(comparison, NO_POLICY.limits, None), ["a"])
    check("plan-policy", document | {"unused": []})


def run(*words: str) -> Any:
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_explain_of_a_file_follows_the_schema(tmp_path: Path):
    file = tmp_path / "objects.json"
    for objects in (FLEET, FLEET[:1]):
        file.write_text(json.dumps({"kind": "List", "items": objects}))
        check("explain", run("explain", "-f", str(file), "-o", "json", "--now", NOW.isoformat()))


def test_kinds_follow_the_schema():
    check("kinds", run("kinds", "-o", "json"))
    check("kinds", run("kinds", "jobs", "-o", "json"))


def test_timers_follow_the_schema(tmp_path: Path):
    place = ("--timers", f"sqlite:{tmp_path}/timers.db", "-o", "json")
    create(tmp_path / "timers.db", [timer("a")])
    check("timers-ls", run("timers", "ls", *place))
    check("timers-ls", run("pending", "-n", "other", *place))
    for change in TimerChange:
        check("timers-watch", json.loads(change_line(change, timer("a"))))


def test_schema_rejects_a_field_that_it_does_not_know():
    with pytest.raises(ValueError, match="surprise"):
        check("top", {"version": 1, "by": None, "rows": [], "surprise": 1})


def test_each_command_with_json_has_a_schema():
    given = {path.removeprefix(f"{PROGRAM} ") for path, command in walk(main, PROGRAM) if _prints_json(command)}
    others = {"archive get", "archive lifecycle"}  # what Kubernetes and S3 define
    documented = {one.command.split(" --")[0] for one in OUTPUTS.values()} | {"pending", "kinds show"}
    assert given - others == documented - {"kinds"}


def _prints_json(command: click.Command) -> bool:
    return any(isinstance(one.type, click.Choice) and "json" in one.type.choices for one in command.params)
