"""`explain -f` decides about the objects of a file while it reads it, with the same results as all at once."""

import io
import json
import subprocess
from datetime import timedelta

import pytest
import yaml

from shared.cli import explain
from shared.cli.explain import OfflineStream, find_namespaces, find_offline, read_namespaces
from shared.cli.explanation.explanation_text import ExplanationPrinter
from shared.cli.objects.object_report import as_json
from shared.core.policy.policy import NO_POLICY
from tests.builders import COMMAND, NOW, ago, namespace
from tests.unit.cli.test_plan import KINDS, a_job, a_pod, policy_of

pytestmark = pytest.mark.anyio

JOBS = [a_job(n, complete=ago(60), ttl=30) for n in range(5)]
PODS = [a_pod(n, JOBS[n]) for n in range(5)]
EXEMPT = namespace("ci", exempt="true")
UNKNOWN = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}
FILES = {
    "owners first": [*JOBS, *PODS],
    "owners last": [*PODS, *JOBS],
    "owners absent": PODS,
    "mixed": [JOBS[0], PODS[0], PODS[3], UNKNOWN, JOBS[3], JOBS[1]],
    "namespace last": [*JOBS, EXEMPT],
    "unfinished owner": [a_job(9), *JOBS, a_pod(9, a_job(9))],
}
POLICIES = {"none": NO_POLICY, "ttl": policy_of({"ttl": "10s"}), "counts": policy_of({"ttl": "10s", "keepLast": 2})}


async def stream(documents, policy):
    decider = OfflineStream(KINDS, NOW, policy, find_namespaces(documents))
    return [one async for found in decider.find(documents) for one in found]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", FILES)
async def test_chunks_lead_to_the_decisions_of_the_whole_file(name, policy, monkeypatch):
    documents = FILES[name]
    whole = await find_offline(documents, kinds=KINDS, now=NOW, policy=POLICIES[policy])
    for size in (1, 2, 3):
        monkeypatch.setattr(explain, "CHUNK", size)
        assert await stream(documents, POLICIES[policy]) == whole


async def test_first_chunk_is_decided_before_the_second_is_read(monkeypatch):
    monkeypatch.setattr(explain, "CHUNK", 2)
    documents = iter(JOBS)
    found = await anext(OfflineStream(KINDS, NOW).find(documents))
    assert (len(found), len(list(documents))) == (2, len(JOBS) - 2)


@pytest.mark.parametrize(
    "text",
    [
        yaml.safe_dump_all([*JOBS, EXEMPT], explicit_start=True),
        "\n---\n".join(json.dumps(one) for one in (*JOBS, EXEMPT)),
        json.dumps({"kind": "List", "items": [*JOBS, EXEMPT]}, indent=2),
        'kind: "Namespace"\nmetadata: {name: ci, annotations: {ttlafterfinished.dev/exempt: "true"}}\napiVersion: v1\n',
    ],
    ids=["yaml", "json", "list", "quoted"],
)
def test_namespaces_are_found_before_the_first_object(text):
    file = io.StringIO(text)
    assert read_namespaces(file, "file").keys() == {"ci"}
    assert file.tell() == 0


def test_namespace_of_a_pipe_counts_although_it_comes_last(tmp_path):
    text = yaml.safe_dump_all([*JOBS, EXEMPT], explicit_start=True)
    now = (NOW + timedelta(hours=1)).isoformat()
    done = subprocess.run(
        [*COMMAND, "explain", "-f", "-", "-o", "json", "--now", now],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert {one["reason"] for one in json.loads(done.stdout)} == {"exempt"}


@pytest.mark.parametrize("count", [0, 1, 2, 3])
async def test_json_is_that_of_one_object_or_of_a_list(count, capsys):
    found = await find_offline(JOBS[:count], kinds=KINDS, now=NOW)
    printer = ExplanationPrinter("json")
    for one in found:
        printer.print([(one, None)])
    printer.end()
    reports = [as_json(one.ref, one.decision, one.stop, one.related) for one in found]
    assert capsys.readouterr().out == json.dumps(reports[0] if count == 1 else reports, indent=2) + "\n"


def test_error_in_a_later_document_names_it_after_the_results_before(tmp_path):
    text = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: x}\n" * 600 + "---\nkind: [\n"
    (tmp_path / "many.yaml").write_text(text)
    done = subprocess.run(
        [*COMMAND, "explain", "-f", "many.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout.count("decision") == 500
    assert done.stderr.startswith("Error: many.yaml, document 601: invalid YAML at line 2403: ")
