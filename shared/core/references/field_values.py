"""Read the value of one field of a carrier rule. Total: a value that cannot be read is a reference with a problem."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shared.core.references.carrier import TYPED, Many, ReferenceField, format_path, parse_path
from shared.core.references.reference import ANY, BOTH, Reference, Selector, TargetKind, as_pattern, read_selector
from shared.core.values.objects import ObjectRef, quote

Keys = tuple[str | int, ...]


@dataclass(slots=True)
class Origin:
    """The object whose fields are read.

    Attributes:
        obj: The object.
        source: Its identity.
        home: Its namespace; any for a cluster-scoped object.
        crosses: Whether objects of its kind may refer to other namespaces by a field, see `Carrier.crosses`.
        by_rule: Whether the fields that are read are those that the carrier rule of its kind names.
    """

    obj: Mapping[str, Any]
    source: ObjectRef
    home: str
    crosses: bool = True
    by_rule: bool = False

    def refer(
        self, kind: TargetKind, namespace: str, name: str, keys: Keys, selector: Selector | None = None
    ) -> Reference:
        """A reference by one field of the object; one that may name everything tells nothing, and has a problem."""
        path, pattern, problem = format_path(keys), as_pattern(name), ""
        if selector is None and not pattern.strip(ANY):
            problem = f"{path}: expected the name of a {kind}, got {quote(name)}, which may become any name"
        place = self._within(as_pattern(namespace)) if problem else as_pattern(namespace)
        return Reference(kind, place, pattern, path, self.source, selector, problem, is_field=self.by_rule)

    def unreadable(
        self, kinds: tuple[TargetKind, ...], keys: Keys, value: Any, *, crosses: bool
    ) -> Iterator[Reference]:
        """References to every object that a field may name which cannot be read."""
        return self.unreadable_in(ANY if crosses else self.home, kinds, keys, value)

    def unreadable_in(
        self, namespace: str, kinds: tuple[TargetKind, ...], keys: Keys, value: Any, *, expected: str = ""
    ) -> Iterator[Reference]:
        """References to every object of a namespace that a field may name which cannot be read."""
        path, what = format_path(keys), expected or f"a reference to {' or '.join(kinds)}"
        problem = f"{path}: expected {what}, got {quote(value)}"
        for kind in kinds:
            place = self._within(namespace)
            yield Reference(kind, place, ANY, path, self.source, problem=problem, is_field=self.by_rule)

    def _within(self, place: str) -> str:
        """The namespaces of which a field that cannot be read makes it unknown what is used.

        If no rule names the field, that is the namespace of the object alone: otherwise a user who may write an object
        of any kind would stop the pass for all namespaces.
        """
        return place if self.by_rule or ANY not in place else self.home


def read_field(field: ReferenceField, value: Any, keys: Keys, origin: Origin) -> Iterator[Reference]:
    """The references by the value of a field, which is not null."""
    if field.prefix is not None and isinstance(value, dict):
        yield from _read_prefixed(field, field.prefix, value, keys, origin)
    elif field.prefix is None and isinstance(value, dict):
        yield from _read_mapping(field, value, keys, origin)
    elif field.prefix is None and isinstance(value, str) and field.to != TYPED:
        yield from _read_text(field, value, keys, origin)
    else:
        yield from _unreadable(field, value, keys, origin)


def read_default(field: ReferenceField, origin: Origin) -> Iterator[Reference]:
    """The references by the field that has the name if there is none at the path of a field."""
    if field.default_name is None:
        return
    value, keys = _at(origin.obj, field.default_name)
    if isinstance(value, str) and value:
        for kind in field.kinds:
            yield origin.refer(kind, _namespace(field, origin), field.expand(value), keys)


def _read_prefixed(
    field: ReferenceField, prefix: str, value: Mapping[Any, Any], keys: Keys, origin: Origin
) -> Iterator[Reference]:
    for key, item in value.items():
        if not isinstance(key, str) or not key.startswith(prefix) or item is None:
            continue
        text = key.removeprefix(prefix) if field.form == "key" else item
        if isinstance(text, str):
            yield from _read_text(field, text, (*keys, key), origin)
        else:
            yield from _unreadable(field, text, (*keys, key), origin)


def _read_text(field: ReferenceField, text: str, keys: Keys, origin: Origin) -> Iterator[Reference]:
    """The references by a text; it may name several objects, with commas between them."""
    for part in text.split(","):
        namespace, name = _namespace(field, origin), part.strip()
        if field.form == "namespace/name" and "/" in name:
            namespace, _, name = name.partition("/")
        elif field.form == "name:key":
            name = name.partition(":")[0]
        if name:
            for kind in field.kinds:
                yield origin.refer(kind, namespace or ANY, field.expand(name), keys)


def _read_mapping(field: ReferenceField, value: Mapping[Any, Any], keys: Keys, origin: Origin) -> Iterator[Reference]:
    kinds = _kinds(field, value)
    name, namespace = value.get(field.name), value.get(field.namespace) if field.namespace else None
    if kinds is None or not isinstance(name, str | None) or not isinstance(namespace, str | None):
        yield from _unreadable(field, value, keys, origin)
        return
    selector = value.get(field.selector) if field.selector else None
    for kind in kinds:
        place = namespace or _namespace(field, origin)
        if name:
            yield origin.refer(kind, place, field.expand(name), (*keys, field.name))
        elif field.selector and selector is not None:
            yield origin.refer(kind, place, ANY, (*keys, field.selector), read_selector(selector))


def _kinds(field: ReferenceField, value: Mapping[Any, Any]) -> tuple[TargetKind, ...] | None:
    """The kinds that a mapping names; empty for other kinds, and None if its kind cannot be read."""
    if field.to != TYPED:
        return field.kinds
    kind = value.get("kind")
    if kind is None or kind == "":
        return (TargetKind(field.default_kind),) if field.default_kind else BOTH
    if not isinstance(kind, str):
        return None
    return tuple(one for one in BOTH if one == kind)


def _namespace(field: ReferenceField, origin: Origin) -> str:
    """The namespace of a name whose value names none."""
    if field.namespace_from is not None:
        value, _ = _at(origin.obj, field.namespace_from)
        if isinstance(value, str) and value:
            return value
        if value is not None and value != "":
            return ANY
    return ANY if field.any_namespace else origin.home


def _at(obj: Mapping[str, Any], path: str) -> tuple[Any, Keys]:
    """The value at a path without `*`, and its keys; None if a step is absent."""
    value: Any = obj
    keys: Keys = ()
    for step in parse_path(path):
        if isinstance(step, Many) or not isinstance(value, dict):
            return None, keys
        value, keys = value.get(step), (*keys, step)
    return value, keys


def _unreadable(field: ReferenceField, value: Any, keys: Keys, origin: Origin) -> Iterator[Reference]:
    return origin.unreadable(field.kinds, keys, value, crosses=field.crosses)
