"""Kind rules on disk: the shipped YAML files in `shared/kinds/`, and those in the operator's folder.

As a program (`python -m`), it compiles the shipped ones to one JSON file, which is read five times as fast: a step of
the image's build.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

import shared
from shared.adapters.config.yaml_file import FileError, Loader, read_model
from shared.core.kinds.predicates import SHIPPED
from shared.core.kinds.rule import Catalogue, KindRule

KINDS = Path(shared.__file__ or "").parent / "kinds"


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A kind rule and its file.

    Attributes:
        replaces: The shipped rule that this rule replaces; None if it replaces none.
    """

    rule: KindRule
    path: Path
    replaces: "RuleFile | None" = None

    @property
    def is_shipped(self) -> bool:
        """Whether the rule is shipped with this program."""
        return self.path.parent == KINDS


def read_catalogue(folder: Path | None = None) -> Catalogue:
    """Read all kind rules: the shipped ones, and those in the operator's folder.

    Raises:
        FileError: See `read_rule_files`.
    """
    return as_catalogue(read_rule_files(folder))


def as_catalogue(files: Sequence[RuleFile]) -> Catalogue:
    """Make a catalogue of rule files."""
    return Catalogue(tuple(one.rule for one in files))


def read_rule_files(folder: Path | None = None, *, shipped: Path = KINDS) -> list[RuleFile]:
    """Read all kind rules with their files, ordered by file name; an operator's rule replaces a shipped one.

    Args:
        folder: The operator's folder with `*.yaml` and `*.yml`, for instance a mounted ConfigMap.
        shipped: The folder of the shipped rules.

    Raises:
        FileError: A file does not match the schema of `KindRule`, two files of one folder have a rule for the same
            kind and version, or the folder does not exist.
    """
    shipped_files = _read_folder(shipped, is_shipped=True)
    if folder is None:
        return shipped_files
    if not folder.is_dir():
        raise FileError(f"{folder}: expected a directory of kind rules, but it does not exist or is not a directory")
    own_files = [
        replace(one, replaces=next((other for other in shipped_files if _overlap(one.rule, other.rule)), None))
        for one in _read_folder(folder)
    ]
    # One rule of the operator may list versions that two shipped rules split; it replaces both.
    kept = [one for one in shipped_files if not any(_overlap(one.rule, other.rule) for other in own_files)]
    return kept + own_files


def _overlap(one: KindRule, other: KindRule) -> bool:
    return one.kind == other.kind and bool({*one.api_versions} & {*other.api_versions})


def _read_folder(folder: Path, *, is_shipped: bool = False) -> list[RuleFile]:
    files: list[RuleFile] = []
    of_kind: dict[tuple[str, str], Path] = {}
    compiled = read_compiled(folder) if is_shipped else {}
    for path in list_yaml(folder):
        rule = _read_shipped(path, compiled) if is_shipped else read_model(path, KindRule)
        for version in rule.api_versions:
            twin = of_kind.setdefault((version, rule.kind), path)
            if twin is not path:
                expected = f"expected one rule for {rule.kind} of {version}"
                raise FileError(f"{path.name}: {expected}, but {twin.name} has one too")
        files.append(RuleFile(rule, path))
    return files


def _read_shipped(path: Path, compiled: Mapping[str, Any]) -> KindRule:
    """Read a shipped file: as it was compiled, or without the checks that tests run, which is twice as fast."""
    try:
        fields = compiled[path.name] if compiled else load_yaml(path)
        return KindRule.model_validate(fields, context=SHIPPED)
    except (ValidationError, yaml.YAMLError):
        return read_model(path, KindRule, context=SHIPPED)  # its error names the line


COMPILED = "compiled.json"
"""The compiled file, in the folder of the YAML files: it is read five times as fast. A checkout has none."""

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
    compiled = folder / COMPILED
    compiled.write_text(json.dumps(files))
    return compiled


def read_compiled(folder: Path) -> Mapping[str, Any]:
    """Return what each YAML file of a folder contains, by its name; empty without a compiled file.

    A compiled file of other YAML files, which were added, removed or edited since, is ignored.
    """
    compiled = folder / COMPILED
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
    print(compile_kinds(KINDS))  # noqa: T201 - a step of the image build
