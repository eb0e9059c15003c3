"""Find references by the shape of fields, in an object of any kind.

The search finds more than references. That is its purpose: an object that seems to be referred to is kept. It finds

- a key that contains secret or configMap, such as secretName, valuesSecretRef or imagePullSecrets: the value is a name,
  a mapping with a name, or a list of these
- a mapping with `kind: Secret` or `kind: ConfigMap` and a name
- a mapping that has a name and a key, and no other field: it selects a key of a Secret or of a ConfigMap
- an annotation whose name contains one of these words: the value is NAME or NAMESPACE/NAME

So it finds each field of each PodSpec, wherever in the object the PodSpec is.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from shared.core.references.field_values import Keys, Origin
from shared.core.references.reference import ANY, BOTH, OBJECT_NAME_CHARACTERS_MAX, Reference, TargetKind, as_pattern

_NAME = re.compile(r"[a-z0-9*][-a-z0-9.*]*")
_KEY_SELECTOR = frozenset({"name", "key", "optional", "namespace"})
_KEY_CHARACTERS_MAX = 500
_NO_SPECIAL = str.maketrans("", "", "-_")

Hit = tuple[tuple[TargetKind, ...], bool]
"""The kinds that a key is about, and whether it is a plural."""


def find_by_shape(origin: Origin) -> Iterator[Reference]:
    """The references in all fields of an object outside of its metadata. Total, for any depth."""
    stack: list[tuple[Any, Keys]] = [(origin.obj[key], (key,)) for key in origin.obj if key != "metadata"]
    for key, hit in _hits(origin.obj):
        yield from _of_value(origin, hit, origin.obj, key, ())
    while stack:
        value, keys = stack.pop()
        if isinstance(value, dict):
            yield from _of_mapping(origin, value, keys)
            stack += [(one, (*keys, key)) for key, one in value.items() if isinstance(one, dict | list)]
        elif isinstance(value, list):
            stack += [(one, (*keys, place)) for place, one in enumerate(value) if isinstance(one, dict | list)]


def find_in_annotations(origin: Origin) -> Iterator[Reference]:
    """The references in the annotations of an object of any kind."""
    metadata = origin.obj.get("metadata")
    given = metadata.get("annotations") if isinstance(metadata, dict) else None
    annotations: dict[str, Any] = given if isinstance(given, dict) else {}
    for key, (kinds, _) in _hits(annotations):
        value = annotations[key]
        beside = annotations.get(f"{key.removesuffix('name')}namespace") if key.endswith("name") else None
        for text in value.replace(",", " ").split() if isinstance(value, str) else ():
            namespace, _, name = text.rpartition("/")
            namespace = namespace or (beside if isinstance(beside, str) and beside else origin.home)
            yield from _refer(origin, kinds, namespace, name, ("metadata", "annotations", key))


def _hits(mapping: Mapping[Any, Any]) -> Iterator[tuple[str, Hit]]:
    for key in mapping:
        if isinstance(key, str) and (hit := _hit_of(key)) is not None:
            yield key, hit


@lru_cache(maxsize=16_384)
def _hit_of(key: str) -> Hit | None:
    word = key[-_KEY_CHARACTERS_MAX:].rpartition("/")[2].lower().translate(_NO_SPECIAL)
    kinds = () if word.endswith("namespace") else tuple(kind for kind in BOTH if kind.lower() in word)
    return (kinds, word.endswith("s")) if kinds else None


def _of_mapping(origin: Origin, value: Mapping[Any, Any], keys: Keys) -> Iterator[Reference]:
    for key, hit in _hits(value):
        yield from _of_value(origin, hit, value, key, keys)
    name, kind = value.get("name"), value.get("kind")
    if not isinstance(name, str):
        return
    if kind in BOTH:
        yield from _refer(origin, (TargetKind(kind),), _namespace_of(origin, value), name, (*keys, "name"))
    elif isinstance(value.get("key"), str) and _KEY_SELECTOR.issuperset(value):
        yield from _refer(origin, BOTH, _namespace_of(origin, value), name, (*keys, "name"))


def _of_value(origin: Origin, hit: Hit, owner: Mapping[Any, Any], key: str, keys: Keys) -> Iterator[Reference]:
    """The references by the value of a key that is about Secrets or ConfigMaps."""
    (kinds, is_plural), value = hit, owner[key]
    at = (*keys, key)
    if isinstance(value, str):
        yield from _by_text(origin, kinds, owner, value, at)
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from _of_element(origin, kinds, owner, one, (*at, place))
    elif isinstance(value, dict) and isinstance(value.get("name"), str):
        yield from _by_name(origin, kinds, value, at)
    elif isinstance(value, dict) and is_plural:  # names of objects as keys, or as values
        for name, one in value.items():
            yield from _of_element(origin, kinds, owner, name, (*at, str(name)))
            yield from _of_element(origin, kinds, owner, one, (*at, str(name)))


def _of_element(
    origin: Origin, kinds: tuple[TargetKind, ...], owner: Mapping[Any, Any], one: Any, keys: Keys
) -> Iterator[Reference]:
    if isinstance(one, str):
        yield from _by_text(origin, kinds, owner, one, keys)
    elif isinstance(one, dict):
        yield from _by_name(origin, kinds, one, keys)


def _by_name(
    origin: Origin, kinds: tuple[TargetKind, ...], value: Mapping[Any, Any], keys: Keys
) -> Iterator[Reference]:
    name = value.get("name")
    if isinstance(name, str):
        yield from _refer(origin, kinds, _namespace_of(origin, value), name, (*keys, "name"))


def _by_text(
    origin: Origin, kinds: tuple[TargetKind, ...], owner: Mapping[Any, Any], text: str, keys: Keys
) -> Iterator[Reference]:
    """A text is NAME or NAMESPACE/NAME; each field beside it that names a namespace may be about it."""
    before, _, name = text.rpartition("/")
    if before:
        yield from _refer(origin, kinds, before, name, keys)
        return
    beside = (one for key, one in owner.items() if isinstance(key, str) and key.lower().endswith("namespace"))
    for namespace in dict.fromkeys((origin.home, *(one for one in beside if isinstance(one, str) and one))):
        yield from _refer(origin, kinds, namespace, name, keys)


def _namespace_of(origin: Origin, value: Mapping[Any, Any]) -> str:
    namespace = value.get("namespace")
    return namespace if isinstance(namespace, str) and namespace else origin.home


def _refer(origin: Origin, kinds: tuple[TargetKind, ...], namespace: str, name: str, keys: Keys) -> Iterator[Reference]:
    """The reference, if the text can be the name of an object."""
    place, pattern = as_pattern(namespace), as_pattern(name)
    if (
        len(pattern) <= OBJECT_NAME_CHARACTERS_MAX
        and _NAME.fullmatch(pattern)
        and (place == ANY or _NAME.fullmatch(place))
    ):
        for kind in kinds:
            yield origin.refer(kind, place, pattern, keys)
