"""The JSON Schema of the chart's values: Helm rejects unknown names, and editors complete the known ones."""

from typing import Any, get_args

from pydantic import SecretStr

from shared.adapters.config.settings import Settings
from shared.adapters.config.timers_address import TimersSettings
from tests.chart.kustomizations import GENERATED, component, selectable
from tests.reference.texts import described, paragraphs

_TEXT = {"type": "string"}
_OF_THE_PROJECT = "TTL_"
_OF_OTHERS = "^([^T]|T[^T]|TT[^L]|TTL[^_])"
"""Variables that client libraries read, such as `AWS_REGION`: the names that do not begin with TTL_."""
_REQUIRED = ("overlay", "image")
"""Values with a default that null removes; a section that is null is empty."""
_FILE_NAME = r"^[-_a-zA-Z0-9][-._a-zA-Z0-9]*\.ya?ml$"


def schema(overlays: list[str]) -> Any:
    """The schema; a wrong name is an additional property, which Helm reports with its place."""
    values = {
        "overlay": {"enum": overlays},
        "components": _object({name: _component(name) for name in selectable()}),
        "settings": _object(_settings(), {_OF_OTHERS: _TEXT}),
        "configMaps": _object({name: _files(name) for name in GENERATED.values()}),
        "sweepSchedule": _TEXT,
        "image": {
            **_object(
                {
                    "repository": {**_TEXT, "minLength": 1},
                    "tag": _TEXT,
                    "digest": {**_TEXT, "pattern": "^(sha256:[0-9a-f]{64})?$"},
                }
            ),
            "required": ["repository"],
        },
        "namespace": _object({"create": {"type": "boolean"}}),
        "global": {"type": "object"},
    }
    title = "Values of the chart ttl-after-finished"
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": title}
    return {**head, **_object(values), "required": [*_REQUIRED]}


def _component(name: str) -> Any:
    return {"type": "boolean", "description": component(name).purpose}


def _settings() -> Any:
    """All settings but the secret ones: the chart writes them into a ConfigMap."""
    texts = {**described(TimersSettings), **described(Settings)}
    return {
        str(field.alias): {**_TEXT, "description": paragraphs(texts[name])[0]}
        for name, field in Settings.model_fields.items()
        if str(field.alias).startswith(_OF_THE_PROJECT) and SecretStr not in get_args(field.annotation)
    }


def _files(name: str) -> Any:
    return _object({"policy.yaml": _TEXT}) if name == "policy" else _object({}, {_FILE_NAME: _TEXT})


def _object(properties: Any, patterns: Any = None) -> Any:
    """An object with these properties, and those whose names match a pattern."""
    known = {"properties": properties} if properties else {}
    return {
        "type": "object",
        "additionalProperties": False,
        **known,
        **({"patternProperties": patterns} if patterns else {}),
    }
