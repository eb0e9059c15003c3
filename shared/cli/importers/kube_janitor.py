"""kube-janitor: annotations, the rules file, and the arguments of its Deployment.

Of the JMESPath expressions of a rules file, those are translated that a rule of a policy can have.

Source: hjacobs/kube-janitor README.rst, kube_janitor/rules.py, kube_janitor/helper.py, kube_janitor/cmd.py.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.cli.importers.imported import (
    FROM_CREATION,
    ClusterReads,
    Imported,
    ImportedConfigError,
    Source,
    escaped,
    expect_list,
    expect_mappings,
    expect_text,
    import_annotated,
    note_absolute,
    parse_embedded,
)
from shared.core.values.objects import get_text, list_mappings, quote
from shared.core.values.timing import format_duration, parse_duration

TTL = "janitor/ttl"
EXPIRES = "janitor/expires"

WANTED = ClusterReads(
    collections=(
        ("v1/configmaps", "ConfigMap", {"fieldSelector": "metadata.name=kube-janitor"}),
        ("apps/v1/deployments", "Deployment", {"fieldSelector": "metadata.name=kube-janitor"}),
    ),
    every_kind={},
)

_TTL = re.compile("[0-9]+[smhdw]")
_FLAG = re.compile(r"--((?:in|ex)clude-(?:resources|namespaces))=(.*)")
_EXCLUDED_BY_DEFAULT = ["kube-system"]

_TEXT = r"(?:'(?P<raw>[^'\\]*)'|`\"(?P<literal>[^\"\\]*)\"`)"
_KEY = r"(?:(?P<key>[A-Za-z_][A-Za-z0-9_]*)|\"(?P<quoted>[^\"\\]+)\")"
_PATH = r"(?P<path>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+)"
_LABEL = re.compile(rf"metadata\.(?P<field>labels|annotations)\.{_KEY}(?:\s*(?P<is>==|!=)\s*{_TEXT})?")
_EQUALS = re.compile(rf"{_PATH}\s*(?P<is>==|!=)\s*{_TEXT}")
_CALL = re.compile(rf"(?P<call>starts_with|ends_with|contains)\(\s*{_PATH}\s*,\s*{_TEXT}\s*\)")
_METHODS = {"starts_with": "startsWith", "ends_with": "endsWith", "contains": "contains"}
_GLOBS = {"starts_with": "{}*", "ends_with": "*{}", "contains": "*{}*"}


def read(sources: Sequence[Source], imported: Imported) -> None:
    """Add a rule for each TTL that objects have, and for each rule of a rules file.

    Raises:
        ImportedConfigError: A rules file is invalid.
    """
    imported.differences += [
        FROM_CREATION,
        "an object that never finishes, such as a Deployment or a Namespace, is kept",
    ]
    import_annotated(sources, imported, field="annotations", key=TTL, name="janitor", read=read_ttl)
    for source in sources:
        note_absolute(imported, source, field="annotations", key=EXPIRES)
    for source in sources:
        for place, rules in _rules_of(source):
            for at, rule in expect_mappings(rules, place):
                _import_rule(rule, at, imported)
    _apply_flags(_flags_of(sources, imported), imported)


def read_ttl(value: str) -> str:
    """Read a TTL of kube-janitor.

    Raises:
        ValueError: It is no number with one unit, and not `forever`.
    """
    if value == "forever":
        return "never"
    if not _TTL.fullmatch(value):
        raise ValueError(f"expected forever or a number with one of s, m, h, d, w, such as 7d, got {quote(value)}")
    return format_duration(parse_duration(value))


def _rules_of(source: Source) -> Iterator[tuple[str, Any]]:
    """The lists of rules in a rules file, or in a ConfigMap."""
    if not source.kind and "rules" in source.document:
        yield source.at("rules"), source.document["rules"]
    if source.kind == "ConfigMap":
        for key, text in (source.get("data") or {}).items():
            if isinstance(text, str) and re.search("^rules:", text, re.MULTILINE):
                place = source.at(f"data.{key}")
                yield f"{place}: rules", parse_embedded(text, place).get("rules")


def _import_rule(rule: dict[str, Any], place: str, imported: Imported) -> None:
    name = expect_text(rule.get("id"), f"{place}.id")
    try:
        ttl = read_ttl(expect_text(rule.get("ttl"), f"{place}.ttl"))
    except ValueError as error:
        raise ImportedConfigError(f"{place}.ttl: {error}") from None
    resources = expect_list(rule.get("resources"), f"{place}.resources")
    kinds = imported.finishing(resources, f"{place}.resources")
    if not kinds:
        imported.note(place, f"rule {name} is left out: none of its resources can finish")
        return
    expression = rule.get("jmespath")
    conditions = _find_conditions(expression) if expression else None
    if expression and conditions is None:
        imported.note(
            f"{place}.jmespath",
            f"rule {name} is left out: write {quote(expression)} in CEL as `when`; until then, later rules may "
            "match its objects",
        )
        return
    match = {"kinds": kinds, **(conditions.match if conditions else {})}
    when = {"when": conditions.when} if conditions and conditions.when else {}
    imported.add(name, match, **when, ttl=ttl)


def _flags_of(sources: Sequence[Source], imported: Imported) -> dict[str, list[str]]:
    flags: dict[str, list[str]] = {}
    for source in sources:
        for container in _containers_of(source):
            given = {get_text(one, "name"): get_text(one, "value") for one in list_mappings(container, "env")}
            variables = [f"--{name.lower().replace('_', '-')}={value}" for name, value in given.items()]
            for argument in [
                *variables,
                *map(str, [*(container.get("command") or ()), *(container.get("args") or ())]),
            ]:
                if found := _FLAG.fullmatch(argument):
                    flags[found[1]] = [one for one in found[2].split(",") if one]
                elif argument == "--dry-run":
                    imported.note(source.place, "--dry-run is set: nothing is deleted now. Set TTL_DRY_RUN=true here")
                elif argument.startswith("--delete-notification"):
                    imported.note(source.place, "--delete-notification: set `warn` in the rules instead")
                elif argument.startswith("--deployment-time-annotation"):
                    imported.note(source.place, f"{argument.partition('=')[0]}: no equivalent")
    return flags


def _containers_of(source: Source) -> Iterator[dict[str, Any]]:
    """The containers of kube-janitor in a Deployment or a CronJob."""
    for path in ("spec.template.spec.containers", "spec.jobTemplate.spec.template.spec.containers"):
        for container in list_mappings(source.document, path):
            if "kube-janitor" in str(container.get("image")):
                yield dict(container)


def _apply_flags(flags: dict[str, list[str]], imported: Imported) -> None:
    """Restrict all rules to the namespaces and resources that kube-janitor looks at."""
    excluded = flags.get("exclude-namespaces", _EXCLUDED_BY_DEFAULT)
    included = [name for name in flags.get("include-namespaces", []) if name != "all"]
    for rule in imported.rules:
        namespaces = rule["match"].setdefault("namespaces", {})
        if included and "names" not in namespaces:
            namespaces["names"] = included
        if excluded:
            namespaces["except"] = excluded
        if not namespaces:
            del rule["match"]["namespaces"]
    resources = [name for name in flags.get("include-resources", []) if name != "all"]
    if resources or flags.get("exclude-resources"):
        text = "set TTL_KINDS to the kinds that may be deleted"
        imported.note("--include-resources, --exclude-resources", f"not a part of the policy: {text}")


@dataclass
class _Conditions:
    """The conditions of an expression.

    Attributes:
        match: Parts of the `match` of a rule.
        clauses: CEL expressions, all of which must hold.
    """

    match: dict[str, Any] = field(default_factory=dict)
    clauses: list[str] = field(default_factory=list)

    @property
    def when(self) -> str:
        """The `when` of a rule; empty if it needs none."""
        return " && ".join(self.clauses)


def _find_conditions(expression: str) -> _Conditions | None:
    """Translate an expression; None if a rule cannot have it.

    Understood: `&&` of tests of labels, annotations, the namespace, and texts at a path.
    """
    found = _Conditions()
    is_understood = all(_add(_strip(term), found) for term in expression.split("&&"))
    return found if is_understood else None


def _strip(term: str) -> str:
    """A term without brackets around all of it; `!` stays in front."""
    term = term.strip()
    negation = "!" if term.startswith("!") and not term.startswith("!=") else ""
    inner = term.removeprefix(negation).strip()
    while inner.startswith("(") and inner.endswith(")") and inner.count("(") == 1:
        inner = inner[1:-1].strip()
    return negation + inner


def _add(term: str, found: _Conditions) -> bool:
    is_negated, term = term.startswith("!"), term.removeprefix("!")
    if label := _LABEL.fullmatch(term):
        return _add_label(label, found, is_negated=is_negated)
    if is_negated:
        return False
    if equals := _EQUALS.fullmatch(term):
        return _add_test(equals, found, "{path} " + equals["is"] + " {text}", "{}" if equals["is"] == "==" else "")
    if call := _CALL.fullmatch(term):
        return _add_test(call, found, "{path}." + _METHODS[call["call"]] + "({text})", _GLOBS[call["call"]])
    return False


def _add_label(found: re.Match[str], conditions: _Conditions, *, is_negated: bool) -> bool:
    key, value = found["key"] or found["quoted"], _text_of(found)
    if found["field"] == "annotations":
        if is_negated or found["is"] == "!=":
            return False
        return _set(conditions.match.setdefault("annotations", {}), key, "?*" if value is None else escaped(value))
    if value is not None and is_negated:
        return False
    labels = conditions.match.setdefault("labels", {})
    if value is None:
        # A label with an empty value is false in JMESPath.
        is_set = [{"key": key, "operator": "Exists"}, {"key": key, "operator": "NotIn", "values": [""]}]
        tests = [{"key": key, "operator": "DoesNotExist"}] if is_negated else is_set
        labels.setdefault("matchExpressions", []).extend(tests)
        return True
    if found["is"] == "!=":
        labels.setdefault("matchExpressions", []).append({"key": key, "operator": "NotIn", "values": [value]})
        return True
    return _set(labels.setdefault("matchLabels", {}), key, value)


def _add_test(found: re.Match[str], conditions: _Conditions, clause: str, glob: str) -> bool:
    path, value = found["path"], _text_of(found) or ""
    if path.startswith("_context") or path == "metadata.creationTimestamp":
        return False
    if path == "metadata.namespace" and glob:
        name = glob.format(escaped(value))
        return _set(conditions.match.setdefault("namespaces", {}), "names", [name])
    parts = ["object", *path.split(".")]
    if path not in ("metadata.name", "metadata.namespace"):  # every object has them
        conditions.clauses += [f"has({'.'.join(parts[:count])})" for count in range(2, len(parts) + 1)]
    conditions.clauses.append(clause.format(path=".".join(parts), text=json.dumps(value)))
    return True


def _set(where: dict[str, Any], key: str, value: Any) -> bool:
    """Set a value that was not set before."""
    return bool(where.setdefault(key, value) == value)


def _text_of(found: re.Match[str]) -> str | None:
    return found["raw"] if found["raw"] is not None else found["literal"]
