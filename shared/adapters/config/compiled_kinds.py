"""Compile the shipped kind rules into one JSON file: it is read five times as fast as their YAML files.

The build of the image runs `python -m shared.adapters.config.compiled_kinds`. A checkout has no compiled file.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from shared.adapters.config.yaml_file import Loader

NAME = "compiled.json"
"""The compiled file, in the folder of the YAML files."""

_YAML = (".yaml", ".yml")


def list_yaml(folder: Path) -> list[Path]:
    """List the YAML files of a folder by name; hidden files are left out."""
    return sorted(path for path in folder.iterdir() if path.suffix in _YAML and not path.name.startswith("."))


def load_yaml(path: Path) -> Any:
    """Load a shipped YAML file, without the checks that tests run: repeated keys, ambiguous values, depth.

    Raises:
        yaml.YAMLError: It is no YAML.
    """
    return yaml.load(path.read_bytes(), Loader)  # noqa: S506 - a safe one


def compile_kinds(folder: Path) -> Path:
    """Write the compiled file of a folder; return its path."""
    files = {path.name: {"sha256": _digest(path), "rule": load_yaml(path)} for path in list_yaml(folder)}
    compiled = folder / NAME
    compiled.write_text(json.dumps(files))
    return compiled


def read_compiled(folder: Path) -> Mapping[str, Any]:
    """Return what each YAML file of a folder contains, by its name; empty without a compiled file.

    A compiled file of other YAML files, which were added, removed or edited since, is ignored.
    """
    compiled = folder / NAME
    if not compiled.is_file():
        return {}
    files = json.loads(compiled.read_bytes())  # noqa: TID251 - generated
    digests = {path.name: _digest(path) for path in list_yaml(folder)}
    if {name: one["sha256"] for name, one in files.items()} != digests:
        return {}
    return {name: one["rule"] for name, one in files.items()}


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    from shared.adapters.config.kind_files import KINDS

    print(compile_kinds(KINDS))  # noqa: T201 - a step of the image build
