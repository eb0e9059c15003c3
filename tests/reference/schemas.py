"""A JSON Schema for the data of each CloudEvent of ours: docs/reference/schemas."""

import json
from typing import Any

from shared.core.values.objects import ObjectRef
from shared.messages import ArchiveDone, Message, Proof, Timer
from tests.reference.texts import attributes, paragraphs

_DESCRIBED: dict[str, type] = {"Timer": Timer, "ObjectRef": ObjectRef}
"""The classes of the definitions that have a description."""

_ABSENT = frozenset(name for name, one in Timer.model_fields.items() if one.exclude_if)
"""The fields that a timer is sent without if they have no value."""


def list_messages() -> list[type[Message]]:
    """The messages of this project, in the order of their modules."""
    return [one for one in Message.__subclasses__() if one.__module__.startswith("shared.messages.")]


def name_of(message: type[Message]) -> str:
    """`object.deleted`."""
    return message.type.removeprefix("dev.ttlafterfinished.")


def file_of(message: type[Message]) -> str:
    """The path of a schema in docs/reference."""
    return f"schemas/{name_of(message)}.json"


def schema_of(message: type[Message]) -> dict[str, Any]:
    """The JSON Schema of the data of an event.

    Our functions always send all fields, except for a proof. A foreign archiver, which sends `archive.done`, may leave
    out those that have a default.
    """
    schema = message.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs", {})
    _describe(schema, message)
    for name, definition in definitions.items():
        if name in _DESCRIBED:
            _describe(definition, _DESCRIBED[name])
        else:
            definition["description"] = paragraphs(definition.get("description", ""))[0]
    if message is not ArchiveDone:
        for name, one in ((message.__name__, schema), *definitions.items()):
            if "properties" in one and name != Proof.__name__:  # a proof is sent without its defaults
                one["required"] = sorted(one["properties"].keys() - _ABSENT)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": message.type}
    rest = {name: value for name, value in schema.items() if name != "title"}
    return {**head, **rest, **({"$defs": definitions} if definitions else {})}


def render() -> dict[str, str]:
    """The text of each file, by its path in docs/reference."""
    return {file_of(one): json.dumps(schema_of(one), indent=2) + "\n" for one in list_messages()}


def _describe(schema: dict[str, Any], owner: type) -> None:
    """Write the descriptions of the docstring into a schema."""
    schema["description"] = summary_of(owner)
    texts, fields = attributes(owner), schema["properties"]
    for name, text in texts.items():
        words = name.split("_")
        alias = words[0] + "".join(word.title() for word in words[1:])
        if alias in fields:
            fields[alias] = {"description": text, **{key: of for key, of in fields[alias].items() if key != "title"}}


def summary_of(owner: type) -> str:
    """The first paragraph of a docstring."""
    return paragraphs(str(owner.__doc__))[0]
