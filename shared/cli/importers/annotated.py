"""TTLs that another cleaner reads from an annotation or a label of an object, as rules: one for each value."""

from collections.abc import Callable, Iterable
from typing import Any

from shared.cli.importers.imported import Imported, Source, escaped
from shared.core.values.objects import get_text, quote

ReadTtl = Callable[[str], str]
"""Turns the value of an annotation into a TTL of a rule; raises ValueError with what was expected."""


def import_annotated(
    sources: Iterable[Source], imported: Imported, *, field: str, key: str, name: str, read: ReadTtl
) -> None:
    """Add a rule for each value that an object has which can finish.

    Args:
        sources: The objects.
        imported: Where the rules are added.
        field: `annotations` or `labels`.
        key: The annotation or label.
        name: The beginning of the names of the rules.
        read: Reads a value.
    """
    opt_in: dict[str, list[str]] = {}
    for source in sources:
        value = _value_of(source, field, key)
        if value is None:
            continue
        place = source.at(f"metadata.{field}.{key}")
        rule = imported.kinds.get(get_text(source.document, "apiVersion"), source.kind)
        if rule is None:
            imported.note(
                place, f"no kind rule for {source.kind}, so the object is kept; see docs/how-to/add-a-kind.md"
            )
            continue
        if rule.never_finishes:
            imported.note(place, f"a {source.kind} never finishes, so the object is kept")
            continue
        named = opt_in.setdefault(str(value), [])
        if rule.opt_in and rule.name not in named:
            named.append(rule.name)
        try:
            read(str(value))
        except ValueError as error:
            imported.note(place, f"{error}; a rule keeps the object")
    for value, named in opt_in.items():
        wanted = (
            {"labels": {"matchLabels": {key: value}}} if field == "labels" else {"annotations": {key: escaped(value)}}
        )
        imported.add(f"{name}-{value}", {"kinds": ["*", *named], **wanted}, ttl=_ttl_of(value, read))


def _ttl_of(value: str, read: ReadTtl) -> str:
    """A TTL; `never` for a value that the other cleaner does not read, so that no rule below deletes its object."""
    try:
        return read(value)
    except ValueError:
        return "never"


def _value_of(source: Source, field: str, key: str) -> Any:
    values = source.get(f"metadata.{field}")
    return values.get(key) if isinstance(values, dict) else None


def note_absolute(imported: Imported, source: Source, *, field: str, key: str) -> None:
    """Note an instant at which another cleaner deletes an object: a rule cannot set an instant."""
    value = _value_of(source, field, key)
    if value is not None:
        instant = f"{value}T00:00:00Z"[:20] if len(str(value)) == len("2026-12-24") else str(value)
        instant = f"{instant}:00Z" if len(instant) == len("2026-12-24T00:00") else instant
        target = f"{source.kind.lower()}/{get_text(source.document, 'metadata.name')}"
        namespace = get_text(source.document, "metadata.namespace")
        command = f"kubectl ttl set {target} {instant}" + (f" -n {namespace}" if namespace else "")
        imported.note(
            source.at(f"metadata.{field}.{key}"),
            f"a rule cannot set an instant, got {quote(value)}; set it on the object: `{command}`",
        )
