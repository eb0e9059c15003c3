"""Triggers read from files, with errors that say where to look."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from shared.errors import TtlError
from shared.standalone.triggers import Trigger, parse_trigger

_TRIGGER = ("eventing.knative.dev/v1", "Trigger")


class ManifestError(TtlError):
    """A manifest that cannot be followed; the message names file, Trigger, field and what was expected."""


def read_triggers(*paths: Path) -> tuple[Trigger, ...]:
    """All Triggers in the files, and in the YAML files below the folders, in the order of their paths.

    Documents of any other kind are passed over. A folder with kustomize patches in it is not for here: a patch is
    half a Trigger.

    Raises:
        ManifestError: A file cannot be read, a Trigger is wrong, or two have the same name.
    """
    found: dict[str, tuple[Trigger, Path]] = {}
    for path in (file for given in paths for file in _files(given)):
        for document in _documents(path):
            trigger = _trigger(document, path)
            if trigger.name in found:
                raise ManifestError(
                    f"{path}: Trigger {trigger.name}: metadata.name: expected a name of its own, "
                    f"got that of one in {found[trigger.name][1]}"
                )
            found[trigger.name] = (trigger, path)
    return tuple(trigger for trigger, _ in found.values())


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix in {".yaml", ".yml"})


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    """The Trigger documents of a file."""
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ManifestError(f"{path}: expected a readable file, got {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: expected YAML, got {' '.join(str(error).split())}") from None
    for document in documents:
        if isinstance(document, dict) and (document.get("apiVersion"), document.get("kind")) == _TRIGGER:
            yield document


def _trigger(document: dict[str, Any], path: Path) -> Trigger:
    try:
        return parse_trigger(document)
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
        return f"{field.lstrip('.')}: expected no such field here"
    wanted = first["msg"].removeprefix("Value error, ").replace("Input should", "expected to")
    return f"{field.lstrip('.')}: {wanted}, got {first['input']!r}"
