"""The AsyncAPI document: each reference has a target, and it names what the code sends and receives."""

import warnings
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from shared.core.values.objects import ObjectRef
from shared.messages import ArchiveRequest, ObjectDeleted
from tests.builders import NOW
from tests.reference.asyncapi import FUNCTIONS
from tests.reference.events import read_consumers
from tests.reference.pages import FOLDER
from tests.reference.schemas import list_messages, name_of, schema_of
from tests.sent_events import SentEvents

DOCUMENT = yaml.safe_load((FOLDER / "asyncapi.yaml").read_text())


def references(value: Any) -> list[str]:
    """Each `$ref` in a document."""
    if isinstance(value, list):
        return [one for part in value for one in references(part)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if "$ref" in value else []
    return [*own, *(one for part in value.values() for one in references(part))]


def has_target(reference: str) -> bool:
    place, _, path = reference.partition("#/")
    if place:
        return (FOLDER / place).is_file()
    found = DOCUMENT
    for part in path.split("/"):
        if part not in found:
            return False
        found = found[part]
    return True


def test_each_reference_has_a_target():
    assert [one for one in sorted(set(references(DOCUMENT))) if not has_target(one)] == []


def test_document_is_asyncapi_3_with_the_required_fields():
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= set(DOCUMENT["info"])
    for operation in DOCUMENT["operations"].values():
        assert operation["action"] in ("send", "receive")
        channel = operation["channel"]["$ref"]
        assert all(one["$ref"].startswith(f"{channel}/messages/") for one in operation["messages"])


def test_each_message_has_a_valid_schema_that_describes_each_field():
    for message in list_messages():
        schema = schema_of(message)
        Draft202012Validator.check_schema(schema)
        assert DOCUMENT["components"]["messages"][name_of(message)]["name"] == message.type
        undescribed = [name for name, one in schema["properties"].items() if not one.get("description")]
        assert undescribed == [], message.type


def test_each_message_is_sent_by_some_operation():
    sent = {one for name, of in DOCUMENT["operations"].items() if of["action"] == "send" for one in references(of)}
    names = {one.rpartition("/")[2] for one in sent if "/messages/" in one}
    assert names == {name_of(one) for one in list_messages()}


def test_functions_receive_what_their_triggers_deliver():
    consumers = read_consumers()
    for message in list_messages():
        for function in FUNCTIONS:
            operation = DOCUMENT["operations"].get(f"{function}.receive", {"messages": []})
            receives = f"#/channels/broker/messages/{name_of(message)}" in references(operation["messages"])
            assert receives == (function in consumers.get(message.type, ())), (message.type, function)
    assert consumers.get(ArchiveRequest.type) is None


@pytest.mark.parametrize("wrong", [{"reason": "bored"}, {"due_at": "soon"}, {"lateness_seconds": "1"}])
def test_event_that_its_schema_does_not_allow_is_found(wrong):
    fields: dict[str, Any] = {"ref": ObjectRef("batch/v1", "Job", "ci", "a", "u"), "outcome": None, "finished_at": None}
    fields |= {"ttl_from": "", "due_at": NOW, "deleted_at": NOW, "lateness_seconds": 0.0, "reason": "expired"}
    sent = SentEvents()
    sent.check(ObjectDeleted.model_construct(**fields), source="/s")
    assert sent.problems == []
    with warnings.catch_warnings(action="ignore"):  # of pydantic, about a value of another type
        sent.check(ObjectDeleted.model_construct(**fields | wrong), source="/s")
    assert len(sent.problems) == 1
