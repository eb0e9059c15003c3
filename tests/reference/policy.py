"""The whole schema of a policy, from the JSON Schema that its models give."""

import json
from datetime import timedelta

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import NullableSchema, WithDefaultSchema

from shared.core.policy.matching import Grouping
from shared.core.policy.policy import Policy
from shared.core.values.timing import format_duration
from tests.reference.texts import code, fill, joined, table

EXAMPLE = """\
apiVersion: ttlafterfinished.dev/v1
kind: Policy
budget:
  global: {perSecond: 50, burst: 100}
  perNamespace: {perSecond: 10, burst: 20}
  breaker: {count: 1000, share: 50%, atLeast: 100, window: 10m}
recreation: {times: 5, window: 10m}
archives:
  main: {url: "s3://bucket/prefix?region=eu-1", keep: 90d, encryption: {sse: "aws:kms"}}
rules:
  - name: failed-ci
    match:
      kinds: [jobs, pipelineruns.tekton.dev]
      namespaces: {names: ["ci-*"], except: [ci-prod]}
      labels: {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: Exists}]}
      annotations: {example.com/team: "a*"}
      owners: [{kind: CronJob, name: "nightly-*"}]
      age: 7d
    when: "object.metadata.name.size() < 40"
    ttl: {succeeded: 1h, failed: 7d}
    propagation: Foreground
    onOwned: delete
    jitter: 10m
    minAge: 10m
    keepLast: 3
    keepLastFailed: 5
    keepLastBy: {label: app}
  - name: everything-else
    match: {kinds: ["*"], namespaces: {except: ["kube-*"]}}
    ttl: 1w
    archive: {to: main, grace: 24h, logs: true}
"""


class _Schema(GenerateJsonSchema):
    """Without null and empty values, which are rejected, and with each default as a file has it."""

    def nullable_schema(self, schema: NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        inner, written = self.generate_inner(schema["schema"]), _as_written(schema.get("default"))
        return inner if written is None else {**inner, "default": written}


def _as_written(default: object) -> str | int | None:
    """A default as a file has it; None for one that is only left out."""
    if isinstance(default, timedelta):
        return format_duration(default)
    if isinstance(default, Grouping):
        return default.by
    return default if isinstance(default, str | int) else None


def schema() -> str:
    """Return the JSON Schema of a policy file, for editors."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Policy.model_json_schema(schema_generator=_Schema),
        "title": "Policy of ttl-after-finished",
        "description": "When the finished objects of a cluster are deleted, and how fast.",
    }
    return json.dumps(document, indent=2) + "\n"


def render():
    """The page."""
    reported = json.loads(schema())
    parts = ["## `Policy`", reported["description"], _fields(reported)]
    for name in _in_order(reported):
        definition = reported["$defs"][name]
        parts += [f"## `{name}`", _used_by(name, reported), definition["description"], _fields(definition)]
    return fill("policy", example=EXAMPLE.strip(), definitions=joined(parts))


def _in_order(reported):
    """The definitions, each after the one that uses it."""
    names, queue = [], [reported]
    while queue:
        for field in queue.pop(0)["properties"].values():
            for name in _references(field):
                if name not in names:
                    names.append(name)
                    queue.append(reported["$defs"][name])
    return names


def _references(field):
    refs = [field.get("$ref", ""), field.get("items", {}).get("$ref", ""), *(one["$ref"] for one in _values(field))]
    return [ref.rpartition("/")[2] for ref in refs if ref]


def _values(field):
    """The types of the values of a mapping with any names."""
    values = [field.get("additionalProperties"), *field.get("patternProperties", {}).values()]
    return [one for one in values if isinstance(one, dict) and "$ref" in one]


def _used_by(name, reported):
    owners = {"": reported, **{f"{owner}.": value for owner, value in reported["$defs"].items()}}
    places = [f"`{owner}{key}`" for owner, one in owners.items() for key in _keys(one, name)]
    return f"Used by {', '.join(places)}."


def _keys(owner, name):
    return [key for key, field in owner["properties"].items() if name in _references(field)]


def _fields(definition):
    needed = definition.get("required", ())
    rows = [
        (
            code(name),
            _type_of(field),
            "required" if name in needed else code(_default_of(field)),
            field["description"],
        )
        for name, field in definition["properties"].items()
    ]
    return table(("Field", "Type", "Default", "Meaning"), rows)


def _default_of(field):
    default = field.get("default", "")
    return str(default).lower() if isinstance(default, bool) else default


def _type_of(field):
    if (refs := _references(field)) and "$ref" in field:
        return f"[{refs[0]}](#{refs[0].lower()})"
    if refs and _values(field):
        return f"mapping of names to [{refs[0]}](#{refs[0].lower()})"
    if "items" in field:
        return f"list of {_type_of(field['items'])}"
    if "enum" in field or "const" in field:
        return " or ".join(code(one) for one in field.get("enum", [field.get("const")]))
    if "anyOf" in field:
        types = dict.fromkeys(_type_of(one) for one in field["anyOf"])
        return " or ".join(one for one in types if one != "integer" or "duration" not in types)
    if "additionalProperties" in field and isinstance(field["additionalProperties"], dict):
        return "mapping of strings"
    return _scalar(field)


def _scalar(field):
    if field["type"] == "object":
        return f"mapping with {' and '.join(code(name) for name in field['properties'])}"
    if "w)?" in field.get("pattern", ""):
        return "duration"
    if field.get("pattern", "").endswith("%$"):
        return "percentage"
    return field["type"] + _range(field)


def _range(field):
    if field.get("minimum", 0) == 0 and "maximum" not in field:
        return ""
    if "maximum" not in field:
        return f" from {field['minimum']}"
    return f" from {field['minimum']:.6g} to {field['maximum']}"
