"""Lines of a watch. Reading any object is in tests/properties/test_watch_lines.py."""

import json

import pytest

from shared.adapters.kubernetes.cluster import parse_watch_line
from shared.core.values.objects import ref_of
from tests.builders import JOB, job

OBJ = json.dumps(job())


def line(kind: str, obj: str) -> bytes:
    return f'{{"type":"{kind}","object":{obj}}}'.encode()


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED"])
def test_raw_is_the_json_of_the_object_as_the_api_server_wrote_it(kind):
    assert parse_watch_line(line(kind, OBJ), JOB).raw == OBJ.encode()


@pytest.mark.parametrize(
    "obj",
    [
        OBJ.replace('"batch/v1"', '"batch/v1beta1"'),
        OBJ.replace('"kind": "Job"', '"kind": "CronJob"'),
        OBJ[:-1] + ', "number": 1e400}',  # only the standard library reads it
    ],
)
def test_raw_is_empty_unless_it_is_exactly_the_object(obj):
    change = parse_watch_line(line("ADDED", obj), JOB)
    assert (change.raw, change.obj["apiVersion"], change.obj["kind"]) == (b"", "batch/v1", "Job")


def test_of_two_objects_in_a_line_the_last_is_read():
    text = f'{{"type":"ADDED","object":{OBJ.replace("uid", "first")},"object":{OBJ}}}'.encode()
    change = parse_watch_line(text, JOB)
    assert change.obj == {**json.loads(text)["object"]}
    assert change.raw == OBJ.encode()


def test_of_a_deleted_object_only_its_identity_is_read():
    change = parse_watch_line(line("DELETED", OBJ), JOB)
    assert ref_of(change.obj) == ref_of(job())
    assert set(change.obj) == {"apiVersion", "kind", "metadata"}
    assert change.raw == b""


def test_deleted_object_without_an_identity_is_read_in_full():
    change = parse_watch_line(line("DELETED", '{"metadata": {"name": 7}, "spec": {}}'), JOB)
    assert change.obj == {"metadata": {"name": 7}, "spec": {}, "apiVersion": "batch/v1", "kind": "Job"}
