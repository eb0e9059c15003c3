"""Read Triggers from files; an error names the file, the Trigger and the field."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from shared.adapters.config.yaml_text import describe_error
from shared.core.objects import quote
from shared.errors import TtlError
from shared.standalone.triggers import Trigger

_TRIGGER = ("eventing.knative.dev/v1", "Trigger")


class ManifestError(TtlError):
    """A Trigger manifest is invalid; the message names the file, the Trigger, the field and what was expected."""


def read_triggers(*paths: Path) -> tuple[Trigger, ...]:
    """Read all Triggers from files, and from the YAML files in folders, in the order of their paths.

    Documents of another kind are ignored. Do not pass a folder that contains kustomize patches: a patch is not a
    complete Trigger.

    Raises:
        ManifestError: A file cannot be read, a Trigger is invalid, or two Triggers have the same name.
    """
    found: dict[str, tuple[Trigger, Path]] = {}
    for path in (file for given in paths for file in _files(given)):
        for document in _documents(path):
            trigger = _trigger(document, path)
            if trigger.name in found:
                raise ManifestError(
                    f"{path}: Trigger {trigger.name}: metadata.name: expected a unique name, "
                    f"got that of a Trigger in {found[trigger.name][1]}"
                )
            found[trigger.name] = (trigger, path)
    return tuple(trigger for trigger, _ in found.values())


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix in {".yaml", ".yml"})


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the Triggers in a file."""
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ManifestError(f"{path}: expected a readable file, got {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: {describe_error(error)}") from None
    for document in documents:
        if isinstance(document, dict) and (document.get("apiVersion"), document.get("kind")) == _TRIGGER:
            yield document


def _trigger(document: dict[str, Any], path: Path) -> Trigger:
    try:
        return Trigger.model_validate(document)
    except ValidationError as error:
        metadata = document.get("metadata")
        name = metadata.get("name", "?") if isinstance(metadata, dict) else "?"
        raise ManifestError(f"{path}: Trigger {name}: {_first_problem(error)}") from None


def _first_problem(error: ValidationError) -> str:
    """`spec.filters[0].any[1]: expected exactly one dialect of ..., got {...}`."""
    first = error.errors(include_url=False, include_context=False)[0]
    field = ""
    for part in first["loc"]:
        if part != "[key]":
            field += f"[{part}]" if isinstance(part, int) else f".{part}"
    if first["type"] == "missing":
        return f"{field.lstrip('.')}: expected a value, got none"
    if first["type"] == "extra_forbidden":
        return f"{field.lstrip('.')}: unknown field; expected a field of Knative's Trigger"
    wanted = first["msg"].removeprefix("Value error, ").replace("Input should", "expected to")
    return f"{field.lstrip('.')}: {wanted}, got {quote(first['input'])}"
