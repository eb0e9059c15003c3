"""Output on a terminal of 80 columns."""

import io
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console

from shared.cli.demo import NEXT
from shared.cli.demo import _view as demo_view
from shared.cli.doctor import _print as print_findings
from shared.cli.doctor import wrap_finding
from shared.cli.kind_rules.rule_text import summarize_finished
from shared.cli.main import main
from shared.cli.objects.preview import find_all
from shared.cli.output.printing import echo, shorten, terminal_width, wrap, wrap_command
from shared.cli.plan import _print_comparison
from shared.cli.planning.plan_view import print_plan
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.devserver.demo import cast
from shared.doctor.findings import fail, ok, warn
from shared.installation.place import Place
from tests.builders import COMMAND, JOB, NOW, ago, job, kind_rules, namespace, shipped_kinds
from tests.fakes import FakeCluster

LONG = 63
"""Characters of the longest name of a Namespace or a Job."""

PLACE = "n" * (LONG - 1) + "z"
KINDS = Catalogue(tuple(kind_rules().values()))


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def longest(text):
    return max(map(cell_len, text.splitlines()))


def a_name(number):
    return "j" * (LONG - 6) + f"-{number:05}"


def long_job(number, **options):
    return job(name=a_name(number), uid=f"uid-{number}", namespace=PLACE, **options)


async def look(*policies, count=3):
    cluster = FakeCluster()
    cluster.put(namespace(PLACE))
    for number in range(count):
        cluster.put(long_job(number, complete=ago(100 * number)))
    return await find_all(cluster, [JOB], policies=policies, kinds=KINDS, namespace="")


def policy_of(name, ttl):
    return Policy.model_validate({"rules": [{"name": name, "match": {"kinds": ["*"]}, "ttl": ttl}]})


def test_table_of_kinds_fits_80_columns_and_has_whole_names():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TTL_")}
    ended = subprocess.run(
        [*COMMAND, "kinds"],
        check=True,
        capture_output=True,
        text=True,
        env={**environment, "COLUMNS": "80"},
    )
    assert longest(ended.stdout) <= 80
    lines = ended.stdout.splitlines()
    rows = lines[3 : lines.index(next(line for line in lines if " kinds finish, " in line))]
    assert {row.split()[0] for row in rows if row.strip()} == {one.name for one in shipped_kinds().rules}


def test_table_of_kinds_into_a_pipe_has_whole_values():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TTL_")}
    environment.pop("COLUMNS", None)
    ended = subprocess.run([*COMMAND, "kinds"], check=True, capture_output=True, text=True, env=environment)
    assert "…" not in ended.stdout
    rows = {row.split()[0]: row for row in ended.stdout.splitlines() if row.strip()}
    for rule in shipped_kinds().rules:
        assert summarize_finished(rule) in rows[rule.name]


@pytest.mark.anyio
@pytest.mark.usefixtures("terminal")
async def test_plan_fits_80_columns_and_keeps_the_ends_of_names(capsys):
    print_plan((await look(policy_of("ci", "23h59m"))).objects)
    out = capsys.readouterr().out
    assert longest(out) <= 80
    assert "nnnz" in out
    assert "in 23h" in out


@pytest.mark.anyio
async def test_plan_into_a_pipe_has_whole_names_and_one_line_a_row(capsys):
    print_plan((await look(policy_of("ci", "1h"))).objects)
    out = capsys.readouterr().out
    assert PLACE in out
    assert "NEXT DUE" in out


class _Named:
    """A policy with the name that is printed."""

    is_known = True

    def __init__(self, policy, name):
        self.policy, self.name = policy, name

    def __str__(self):
        return self.name


async def compared(output):
    new, old = policy_of("r" * LONG, "150s"), NO_POLICY
    sight = await look(old, new, count=30)
    named: tuple[Any, Any] = _Named(new, f"the policy of the file /{'p' * 200}/policy.yaml"), _Named(old, "none")
    _print_comparison(sight, *named, None, output=output, everything=True, yes=False)


@pytest.mark.anyio
@pytest.mark.usefixtures("terminal")
async def test_comparison_of_policies_fits_80_columns(capsys):
    await compared("text")
    out = capsys.readouterr().out
    assert longest(out) <= 80
    assert all(f"{number:05}" in out for number in range(2, 30))
    assert "(+28)" in out


@pytest.mark.anyio
async def test_comparison_as_json_is_the_same_on_a_terminal(capsys, monkeypatch):
    await compared("json")
    piped = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    await compared("json")
    assert capsys.readouterr().out == piped
    assert json.loads(piped)["objects"] == 30


@pytest.fixture
def documents(tmp_path):
    file = tmp_path / "jobs.yaml"
    jobs = [long_job(0), long_job(2, complete=ago(50), hold="why " * 60), long_job(3, complete=ago(50), ttl=9)]
    file.write_text(yaml.safe_dump_all(jobs))
    return file


def explain(file, *options):
    result = CliRunner().invoke(main, ["explain", "-f", str(file), "--now", "2026-01-02T03:04:05Z", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("width", [40, 80, 132])
def test_explain_fits_the_terminal_and_keeps_every_word(documents, monkeypatch, width):
    piped = explain(documents)
    assert longest(piped) > width
    monkeypatch.setenv("COLUMNS", str(width))
    reported = explain(documents)
    assert longest(reported) <= width
    assert "  do        \n" not in reported
    bare = str.maketrans("", "", " \n\\")
    assert reported.translate(bare) == piped.translate(bare)


def test_explain_as_json_is_the_same_on_a_terminal(documents, monkeypatch):
    piped = explain(documents, "-o", "json")
    monkeypatch.setenv("COLUMNS", "80")
    assert explain(documents, "-o", "json") == piped


@pytest.mark.usefixtures("terminal")
def test_doctor_fits_80_columns_and_its_commands_can_be_pasted(capsys):
    place = Place(PLACE, "knative", options=("--context", "c" * LONG), is_customized=True)
    fix = place.command("delete", "deployment", "standalone")
    findings = [
        ok("API server", "https://" + "a" * 200),
        warn("policy", "not all decide by the same: " + "word " * 50, place.apply()),
        fail("installation", "two of them", fix),
    ]
    print_findings(findings)
    out = capsys.readouterr().out
    assert longest(out) <= 80
    pasted = out[out.index("FAIL  ") :].split("two of them\n")[1].rpartition("\n2 of 3 checks")[0]
    assert words_of(pasted) == words_of(fix)
    assert "      # the overlay that you installed (--overlay)" in out


def words_of(command):
    """The words of a command as a shell splits it, one a line."""
    script = f'kubectl() {{ printf "%s\\n" "$@"; }}; {command}'
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize(
    "command",
    [
        f"kubectl ttl hold jobs.batch/{a_name(1)} --reason WHY -n {PLACE}",
        f"kubectl annotate {'x' * 200}/{'y' * 200} a=b",
        'kubectl patch x --type=json -p \'[{"op": "add",   "path": "/a", "value": "it is   a text"}]\' -n ci',
    ],
)
def test_wrapped_command_is_the_same_to_a_shell(command, width):
    lines = wrap_command(command, width, indent=6)
    assert len(lines) > 1
    assert words_of("\n".join(lines)) == words_of(command)
    assert all(longest(line) <= width for line in lines if "'" not in line)


def test_command_that_fits_a_line_is_not_divided():
    command = f"`kubectl ttl hold jobs.batch/{'a' * 20} --reason WHY -n ci`"
    lines = wrap(f"to keep it, as long as you want it: {command} and so on", 80, first="  do        ", indent=12)
    assert [line for line in lines if command in line]
    assert longest("\n".join(lines)) <= 80


@pytest.mark.parametrize("text", ["a `b", "` ` `", "日本語" * 40, "`" + "x y " * 40 + "`", "x" * 300, ""])
def test_any_text_is_wrapped_and_nothing_is_lost(text):
    lines = wrap(text, 40, first="  note ", indent=7)
    assert longest("\n".join(lines)) <= 40
    assert "".join("".join(lines).split()) == "note" + "".join(text.split())


def test_shortened_name_keeps_both_ends():
    assert shorten("abcdefghij", 10) == "abcdefghij"
    assert shorten("abcdefghij", 5) == "ab…ij"


@pytest.mark.parametrize(("columns", "width"), [("", None), ("abc", None), ("0", None), ("80", 80), ("9", 40)])
def test_width_is_of_columns_if_there_is_no_terminal(monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    with Path(os.devnull).open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert terminal_width() == width


def test_printed_line_fits_80_columns_with_its_indent(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    echo("note: " + "word " * 30, indent=2)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1
    assert all(line.startswith("  ") and len(line) <= 80 for line in lines)
    assert " ".join(" ".join(lines).split()) == "note: " + ("word " * 30).strip()


def test_command_that_fits_a_line_is_indented_as_far_as_there_is_room():
    command = "`kubectl annotate --overwrite jobs.batch/ok ttlafterfinished.dev/archive=false`"
    assert len(command) == 79
    lines = wrap(f"to opt out, {command}: the object is gone", 80 + len(":"), first="  do        ", indent=12)
    assert f" {command}:" in lines


def test_doctor_wraps_a_sentence_without_backslashes_and_a_command_with_them():
    sentence = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of an account that may write, and run doctor again"
    lines = list(wrap_finding(fail("archive main", "x", sentence), 60))
    assert not any(line.endswith("\\") for line in lines)
    command = "kubectl ttl explain jobs.batch/a-long-name-of-a-job -n a-long-namespace --context=x"
    assert list(wrap_finding(fail("archive main", "x", command), 60))[1].endswith(" \\")


@pytest.mark.parametrize("after", [0, 3, 60], ids=["running", "waiting", "deleted"])
def test_demo_fits_80_columns_and_24_lines_and_has_whole_words(after):
    show = Mock(actors=cast())
    for actor in show.actors:
        actor.finished_at = NOW if after and actor.finish_after else None
        actor.gone_at = NOW + timedelta(seconds=59.25) if after == 60 and actor.due_at else None
        actor.restored_as = "uid" if actor.gone_at and actor.is_restored else ""
    console = Console(width=80, file=io.StringIO())
    with console.capture() as printed:
        console.print(demo_view(show, NOW + timedelta(seconds=after)))
    lines = printed.get().splitlines()
    assert longest(printed.get()) <= 80
    assert "…" not in printed.get()
    assert len(lines) <= 24 - 3  # two lines are above the table, and one is below
    for actor in show.actors:
        (row,) = (line for line in lines if f"{actor.kind.lower()}/{actor.name} " in line)
        assert actor.story in row


def test_next_commands_of_the_demo_fit_80_columns():
    assert longest(NEXT) <= 80
