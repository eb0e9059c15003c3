"""The kind rules on disk: every YAML file in `shared/kinds/`, and in the directory of whoever runs this."""

from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError

import shared
from shared.adapters.config.yaml_file import FileError, Loader, read_model
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.predicates import SHIPPED
from shared.core.kinds.rule import KindRule

KINDS = Path(shared.__file__ or "").parent / "kinds"


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A rule, and where it comes from.

    Attributes:
        replaces: The shipped rule that it stands in place of, if it does.
    """

    rule: KindRule
    path: Path
    replaces: "RuleFile | None" = None

    @property
    def is_shipped(self) -> bool:
        """Whether it travels with the code."""
        return self.path.parent == KINDS


def read_catalogue(folder: Path | None = None) -> Catalogue:
    """All kind rules: the shipped ones, and those of a folder of the user's.

    Raises:
        FileError: See `read_rule_files`.
    """
    return Catalogue(tuple(one.rule for one in read_rule_files(folder)))


def read_rule_files(folder: Path | None = None, *, shipped: Path = KINDS) -> list[RuleFile]:
    """All kind rules with their files, in the order of the files' names; a user's rule replaces a shipped one.

    Args:
        folder: The user's, with `*.yaml` and `*.yml`; a ConfigMap that is mounted, for instance.
        shipped: Those that travel with the code.

    Raises:
        FileError: A file does not follow the schema of `KindRule`, two files of one folder describe one kind
            in one version, or there is no such folder.
    """
    ours = _read_folder(shipped, is_shipped=True)
    if folder is None:
        return ours
    if not folder.is_dir():
        raise FileError(f"{folder}: expected a directory of kind rules")
    theirs = [_in_place_of(one, ours) for one in _read_folder(folder)]
    # One of theirs may know versions that two of ours tell apart: it stands in place of both.
    return [one for one in ours if not any(_overlap(one.rule, other.rule) for other in theirs)] + theirs


def _in_place_of(one: RuleFile, shipped: list[RuleFile]) -> RuleFile:
    return RuleFile(one.rule, one.path, next((other for other in shipped if _overlap(one.rule, other.rule)), None))


def _overlap(one: KindRule, other: KindRule) -> bool:
    return one.kind == other.kind and bool({*one.api_versions} & {*other.api_versions})


def _read_folder(folder: Path, *, is_shipped: bool = False) -> list[RuleFile]:
    files: list[RuleFile] = []
    of_kind: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".yaml", ".yml") or path.name.startswith("."):
            continue
        rule = _read_shipped(path) if is_shipped else read_model(path, KindRule)
        for version in rule.api_versions:
            twin = of_kind.setdefault((version, rule.kind), path)
            if twin is not path:
                raise FileError(f"{path.name}: a second rule for {rule.kind} of {version}, beside {twin.name}")
        files.append(RuleFile(rule, path))
    return files


def _read_shipped(path: Path) -> KindRule:
    """Without a look for slips (a field twice, a doubtful value, great depth), which the tests have: twice as quick."""
    try:
        return KindRule.model_validate(yaml.load(path.read_bytes(), Loader), context=SHIPPED)  # noqa: S506 - a safe one
    except (ValidationError, yaml.YAMLError):
        return read_model(path, KindRule, context=SHIPPED)  # tells the line
