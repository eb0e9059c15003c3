"""Every CloudEvent, with its producers and consumers, and every Kubernetes Event."""

from pathlib import Path

import yaml

from shared.adapters.events.cloudevents import SOURCED, TICK
from shared.ports import EventReason
from tests.reference.schemas import list_messages
from tests.reference.texts import attributes, code, fill, joined, members, paragraphs, table

BASE = Path(__file__).parents[2] / "knative" / "base"

_SOURCES = (
    *((one, f"An object has changed ({one.rpartition('.')[2]}). The data is the object.") for one in SOURCED),
    (TICK, "A PingSource starts a sweep. The data is ignored."),
)
_JSON = {"string": "string", "integer": "integer", "number": "number", "boolean": "boolean", "array": "list"}


def render():
    """The page."""
    consumers = read_consumers()
    messages = [
        (_linked(one), _about(one)[0], publishers_of(one), _names(consumers, one.type)) for one in list_messages()
    ]
    sources = [(code(one), text, _names(consumers, one)) for one, text in _SOURCES]
    return fill(
        "events",
        messages=table(("Type", "Meaning", "Published by", "Consumed by"), messages),
        fields=joined(part for one in list_messages() for part in _section(one)),
        sources=table(("Type", "Meaning", "Consumed by"), sources),
        events=table(("Reason", "Object", "Meaning"), [(code(one), *texts) for one, texts in members(EventReason)]),
    )


def read_consumers():
    """Which Triggers of the base deliver each type of event."""
    consumers: dict[str, list[str]] = {}
    for path in sorted(BASE.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document and document.get("kind") == "Trigger":
                for one in _filters(document["spec"]["filters"]):
                    if "exact" in one:
                        consumers.setdefault(one["exact"]["type"], []).append(document["metadata"]["name"])
    return consumers


def _filters(filters):
    """The innermost filters; one that is negated is left out."""
    inner = [one for given in filters for one in given.get("any", given.get("all", ()))]
    return [*(one for one in filters if "exact" in one), *(_filters(inner) if inner else ())]


def _names(consumers, event_type):
    return ", ".join(consumers.get(event_type, ())) or "your own Triggers"


def _linked(message):
    return f"[`{message.type}`](#{message.type.replace('.', '')})"


def _about(message):
    """The paragraphs of a message's docstring, its attributes aside."""
    return paragraphs(message.__doc__.partition("Attributes:")[0])


def publishers_of(message):
    """The functions that publish a message, as text."""
    (found,) = [text for text in _about(message) if text.startswith("Published by: ")]
    return found.removeprefix("Published by: ").removesuffix(".")


def _section(message):
    schema = message.model_json_schema(by_alias=True)
    texts = attributes(message)
    rows = [
        (code(field.alias), _type_of(schema["properties"][field.alias], schema), texts[name])
        for name, field in message.model_fields.items()
        if not field.exclude  # an attribute of the event
    ]
    return f"### `{message.type}`", table(("Field", "Type", "Meaning"), rows)


def _type_of(field, schema):
    if "$ref" in field:
        return _type_of(schema["$defs"][field["$ref"].rpartition("/")[2]], schema)
    if "anyOf" in field:
        return " or ".join(_type_of(one, schema) for one in field["anyOf"])
    if "enum" in field or "const" in field:
        return " or ".join(code(one) for one in field.get("enum", [field.get("const")]))
    if field.get("format") == "date-time":
        return "instant"
    if field["type"] == "array":
        return f"list of {_type_of(field['items'], schema)}"
    if field["type"] == "object":
        names = field.get("properties")
        values = field.get("additionalProperties")
        of_values = f" of {_type_of(values, schema)}s" if isinstance(values, dict) else ""
        return f"object with {', '.join(map(code, names))}" if names else f"object{of_values}"
    return _JSON.get(field["type"], field["type"])
