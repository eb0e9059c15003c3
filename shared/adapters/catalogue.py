"""The kind rules on disk: every YAML file in `shared/kinds/`."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from shared.core.kinds import Catalogue, KindRule
from shared.errors import TtlError

KINDS = Path(__file__).parents[1] / "kinds"


class KindRuleError(TtlError):
    """A file is no kind rule; the message names the file, the field and what was expected."""


def read_catalogue(folder: Path = KINDS) -> Catalogue:
    """All kind rules of a folder, in the order of their file names.

    Raises:
        KindRuleError: A file does not follow the schema of `shared.core.kinds`, or two files speak of one kind.
    """
    rules: dict[tuple[str, str], KindRule] = {}
    for path in sorted(folder.glob("*.yaml")):
        rule = _read_rule(path)
        if rules.setdefault((rule.api_version, rule.kind), rule) is not rule:
            raise KindRuleError(f"{path.name}: a second rule for {rule.kind} of {rule.api_version}")
    return Catalogue(tuple(rules.values()))


def _read_rule(path: Path) -> KindRule:
    try:
        document: Any = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
        return KindRule.model_validate(document)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KindRuleError(f"{path.name}: expected YAML, got {' '.join(str(error).split())}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise KindRuleError(f"{path.name}: {place}: {first['msg']}") from None
