"""Find references without a literal name by the shape of fields, in an object of any kind, and in a k8s-sidecar.

A literal name is found as a mention, see `mentions`. The search finds names that are templates, and label selectors:

- a key that contains secret or configMap, such as secretName, valuesSecretRef or imagePullSecrets: the value is a name,
  a mapping with a name or a selector, or a list of these
- a mapping with `kind: Secret` or `kind: ConfigMap` and a name or a selector. With neither, it may mean any object.
  `kinds: [v1/Secret]` beside a selector or a namespace is the same
- a mapping that has a name and a key, and no other field: it selects a key of a Secret or of a ConfigMap
- a mapping with `env`, which is a k8s-sidecar container: it selects by a label, see `read_sidecar`

kiwigrid/k8s-sidecar `src/sidecar.py`: `LABEL` is the key, `LABEL_VALUE` the value, and any value counts without it.
`RESOURCE` is `configmap`, `secret` or `both`. `NAMESPACE` is a list with commas, or `ALL`. The charts of Grafana and
Jenkins run it. A mirror may rename the image, so a container with both required variables counts, too.

A variable whose value is not in the container, such as one with `valueFrom`, may have any value.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from shared.core.references.carrier import Keys, Origin
from shared.core.references.reference import (
    ANY,
    BOTH,
    OBJECT_NAME_CHARACTERS_MAX,
    Reference,
    TargetKind,
    as_pattern,
    read_selector,
)
from shared.core.references.words import Variables, text_of, variables_of

_NAMING = re.compile(r"(?:secret|configmap)(?:key)?(?:ref|name|selector|targetref)?s?$")
_NAME = re.compile(r"[a-z0-9*][-a-z0-9.*]*")
_KEY_SELECTOR = frozenset({"name", "key", "optional", "namespace"})
_SELECTORS = ("selector", "labelSelector")
_SELECTOR_FIELDS = frozenset({"matchLabels", "matchExpressions"})
_KEY_CHARACTERS_MAX = 200
_VALUES_AT_ONCE = 500
_NO_SPECIAL = str.maketrans("", "", "-_")

Hit = tuple[tuple[TargetKind, ...], bool, bool]
"""The kinds that a key is about, whether it is a plural, and whether it names objects of these kinds."""


def find_by_shape(origin: Origin) -> Iterator[Reference | None]:
    """The references in all fields of an object outside of its metadata. Total, for any depth.

    Yields None after each part of the work, see `read_each`.
    """
    stack: list[tuple[Any, Keys]] = [(origin.obj[key], (key,)) for key in origin.obj if key != "metadata"]
    for key, hit in _hits(origin.obj):
        yield from _of_value(origin, hit, origin.obj, key, ())
    done = 0
    while stack:
        done += 1
        if done % _VALUES_AT_ONCE == 0:
            yield None
        value, keys = stack.pop()
        if isinstance(value, dict):
            yield from _of_mapping(origin, value, keys)
            stack += [(one, (*keys, key)) for key, one in value.items() if isinstance(one, dict | list)]
        elif isinstance(value, list):
            stack += [(one, (*keys, place)) for place, one in enumerate(value) if isinstance(one, dict | list)]


def _hits(mapping: Mapping[Any, Any]) -> Iterator[tuple[str, Hit]]:
    for key in mapping:
        if isinstance(key, str) and (hit := _hit_of(key)) is not None:
            yield key, hit


def kinds_of(key: str) -> tuple[TargetKind, ...]:
    """The kinds that a key is about, by its words: `secretRef` is about Secrets; empty for other words."""
    hit = _hit_of(key)
    return hit[0] if hit is not None else ()


def named_by(key: str) -> tuple[TargetKind, ...]:
    """The kind that a key names: `secretRef` names a Secret; empty for `secretStore`, which may have anything in it."""
    hit = _hit_of(key)
    return hit[0] if hit is not None and len(hit[0]) == 1 and hit[2] else ()


def _hit_of(key: str) -> Hit | None:
    return _cached_hit(key[-_KEY_CHARACTERS_MAX:])


@lru_cache(maxsize=8_192)
def _cached_hit(key: str) -> Hit | None:
    word = key.rpartition("/")[2].lower().translate(_NO_SPECIAL)
    kinds = () if word.endswith("namespace") else tuple(kind for kind in BOTH if kind.lower() in word)
    return (kinds, word.endswith("s"), bool(_NAMING.search(word))) if kinds else None


def _of_mapping(origin: Origin, value: Mapping[Any, Any], keys: Keys) -> Iterator[Reference]:
    for key, hit in _hits(value):
        yield from _of_value(origin, hit, value, key, keys)
    if "env" in value:
        yield from read_sidecar(origin, value, keys)
    name, kinds = value.get("name"), _typed(value)
    if kinds:
        yield from _of_typed(origin, kinds, value, keys)
    elif isinstance(name, str) and isinstance(value.get("key"), str) and _KEY_SELECTOR.issuperset(value):
        yield from _refer(origin, BOTH, _namespace_of(origin, value), name, (*keys, "name"))


def _typed(value: Mapping[Any, Any]) -> tuple[TargetKind, ...]:
    """The kinds that a mapping names by `kind` or `resource`, and beside a selector by `kinds` or `resources`, too.

    `kinds` beside a namespace, without a selector, means all objects of these kinds there.
    """
    keys: tuple[str, ...] = ("kind", "resource")
    if _find_selector(value) is not None:
        keys = (*keys, "kinds", "resources")
    elif _names_namespace(value):
        keys = (*keys, "kinds")
    words: list[str] = []
    for key in keys:
        given = value.get(key)
        words += [one for one in (given if isinstance(given, list) else [given]) if isinstance(one, str)]
    named = {_kind_of(part) for word in words if len(word) <= _KEY_CHARACTERS_MAX for part in word.split(",")}
    return tuple(kind for kind in BOTH if kind.lower() in named)


def _kind_of(word: str) -> str:
    """The kind of `Secret`, `v1/Secret`, `*/Secret`, `core/v1/Secret`, `secrets` or `secrets.v1`, in lower case."""
    return word.strip().lower().rpartition("/")[2].partition(".")[0].removesuffix("s")


def _of_typed(
    origin: Origin, kinds: tuple[TargetKind, ...], value: Mapping[Any, Any], keys: Keys
) -> Iterator[Reference]:
    """The references by a mapping that has the kinds of what it names."""
    if isinstance(value.get("name"), str):
        yield from _refer(origin, kinds, _namespace_of(origin, value), value["name"], (*keys, "name"))
    elif (selected := _find_selector(value)) is not None:
        yield from _select(origin, kinds, selected, keys, places=_places_of(origin, value))
    elif "kinds" in value and _names_namespace(value):
        for place in _places_of(origin, value):
            yield from origin.unreadable_in(place, kinds, keys, value)
    elif not isinstance(value.get("metadata"), dict):  # else it is a whole object, whose name is a mention
        yield from origin.unreadable(kinds, keys, value, crosses=origin.home == ANY)


def _places_of(origin: Origin, value: Mapping[Any, Any]) -> Iterable[str]:
    """The namespaces in which a mapping selects: those that it names, and that of the object.

    Any other field about namespaces, such as `namespaceSelector`, may mean any of them.
    """
    about = [key for key in value if isinstance(key, str) and "namespace" in key.lower()]
    if not about:
        return (origin.home,)
    named = [value.get("namespace"), *_listed(value.get("namespaces"))]
    places = [as_pattern(one) for one in named if isinstance(one, str) and one]
    are_names = all(_NAME.fullmatch(one) for one in places) and len(places) == len([one for one in named if one])
    if not places or not are_names or not {"namespace", "namespaces"}.issuperset(about):
        return (ANY,)
    return dict.fromkeys((*places, *([origin.home] if origin.home != ANY else [])))


def _names_namespace(value: Mapping[Any, Any]) -> bool:
    namespace = value.get("namespace")
    return isinstance(namespace, str) and bool(namespace)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _of_value(origin: Origin, hit: Hit, owner: Mapping[Any, Any], key: str, keys: Keys) -> Iterator[Reference]:
    """The references by the value of a key that is about Secrets or ConfigMaps."""
    (kinds, is_plural, _), value = hit, owner[key]
    at = (*keys, key)
    if "selector" in key.lower() and not isinstance(value, list) and not _has_name(value):
        yield from _select_beside(origin, kinds, owner, value, at)
    elif isinstance(value, str):
        yield from _by_text(origin, kinds, owner, value, at)
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from _of_element(origin, kinds, owner, one, (*at, place))
    elif isinstance(value, dict) and (_has_name(value) or _find_selector(value) is not None):
        yield from _of_element(origin, kinds, owner, value, at)
    elif isinstance(value, dict) and is_plural:  # names of objects as keys, or as values
        for name, one in value.items():
            yield from _of_element(origin, kinds, owner, name, (*at, str(name)))
            yield from _of_element(origin, kinds, owner, one, (*at, str(name)))


def _of_element(
    origin: Origin, kinds: tuple[TargetKind, ...], owner: Mapping[Any, Any], one: Any, keys: Keys
) -> Iterator[Reference]:
    if isinstance(one, str):
        yield from _by_text(origin, kinds, owner, one, keys)
    elif isinstance(one, dict) and (selected := _find_selector(one)) is not None and not _has_name(one):
        yield from _select_beside(origin, kinds, {**owner, **one}, selected, keys)
    elif isinstance(one, dict):
        yield from _by_name(origin, kinds, one, keys)


def _has_name(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str)


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
    before, _, name = as_pattern(text).rpartition("/")
    beside = (one for key, one in owner.items() if isinstance(key, str) and key.lower().endswith("namespace"))
    places = (origin.home, *(one for one in beside if isinstance(one, str) and one))
    for namespace in (before,) if before else dict.fromkeys(places):
        yield from _refer(origin, kinds, namespace, name, keys)


def _namespace_of(origin: Origin, value: Mapping[Any, Any]) -> str:
    return value["namespace"] if _names_namespace(value) else origin.home


def _find_selector(value: Mapping[Any, Any]) -> Any:
    """The label selector in a mapping, or the mapping itself if it is one; None if there is none."""
    if not _SELECTOR_FIELDS.isdisjoint(value):
        return value
    return next((value[key] for key in _SELECTORS if value.get(key) is not None), None)


def _select_beside(
    origin: Origin, kinds: tuple[TargetKind, ...], beside: Mapping[Any, Any], selected: Any, keys: Keys
) -> Iterator[Reference]:
    """The references by a label selector; a field beside it that is about namespaces may mean any of them."""
    selects_namespaces = any(isinstance(key, str) and "namespace" in key.lower() for key in beside)
    return _select(origin, kinds, selected, keys, places=(ANY if selects_namespaces else origin.home,))


def _select(
    origin: Origin, kinds: tuple[TargetKind, ...], selected: Any, keys: Keys, *, places: Iterable[str]
) -> Iterator[Reference]:
    """The references by a label selector in these namespaces; without a readable requirement it may mean any object."""
    is_map = isinstance(selected, dict) and _SELECTOR_FIELDS.isdisjoint(selected)
    selector = read_selector({"matchLabels": selected} if is_map else selected)
    for place in places:
        if selector.requirements:
            yield from (origin.refer(kind, place, ANY, keys, selector) for kind in kinds)
        else:
            yield from origin.unreadable_in(place, kinds, keys, selected)


def _refer(origin: Origin, kinds: tuple[TargetKind, ...], namespace: str, name: str, keys: Keys) -> Iterator[Reference]:
    """The reference, if the text is a template; one that cannot be read may mean any object."""
    place, pattern = as_pattern(namespace), as_pattern(name)
    if ANY not in pattern + place.removeprefix(origin.home):
        return
    is_name = len(pattern) <= OBJECT_NAME_CHARACTERS_MAX and _NAME.fullmatch(pattern)
    if is_name and (place == ANY or _NAME.fullmatch(place)):
        yield from (origin.refer(kind, place, pattern, keys) for kind in kinds)
    else:
        yield from origin.unreadable(kinds, keys, name, crosses=ANY in place)


_IMAGE = re.compile(r"(?:^|[/-])k8s-sidecar(?:[:@]|$)")
_REQUIRED = ("LABEL", "FOLDER")
_KINDS = {"configmap": (TargetKind.CONFIG_MAP,), "secret": (TargetKind.SECRET,)}
_NAMESPACE = re.compile(r"[a-z0-9][-a-z0-9]*")


def read_sidecar(origin: Origin, container: Any, keys: Keys) -> Iterator[Reference]:
    """The references by the label that a container selects by, if it is a k8s-sidecar. Total.

    Args:
        origin: The object that has the container.
        container: The container.
        keys: Where it is.
    """
    if not isinstance(container, dict):
        yield from origin.unreadable(BOTH, keys, container, crosses=False)
        return
    variables, has_more = variables_of(container), bool(container.get("envFrom"))
    if not _has_required(variables) and not _IMAGE.search(text_of(container.get("image"))):
        return
    values = Variables(variables, origin.home).values
    if "LABEL" not in values and not has_more:  # it ends at once
        return
    unset = None if has_more else ""
    selector = read_selector(_as_selector(values.get("LABEL", unset), values.get("LABEL_VALUE", unset)))
    kinds = _KINDS.get(values.get("RESOURCE", None if has_more else "configmap") or "", BOTH)
    at = (*keys, "env" if "LABEL" in values else "envFrom")
    for place in _read_places(values.get("NAMESPACE", None if has_more else origin.home)):
        if selector.requirements:
            yield from (origin.refer(kind, place, ANY, at, selector) for kind in kinds)
        else:
            yield from origin.unreadable_in(place, kinds, at, values.get("LABEL"), expected="the label in LABEL")


def _has_required(variables: Sequence[Mapping[str, Any]]) -> bool:
    return all(any(one.get("name") == name for one in variables) for name in _REQUIRED)


def _as_selector(key: str | None, value: str | None) -> Any:
    if key and value:
        return {"matchLabels": {key: value}}
    return {"matchExpressions": [{"key": key, "operator": "Exists"}]}


def _read_places(text: str | None) -> tuple[str, ...]:
    """The namespaces of a list with commas; any if one of them is unknown, or `ALL`."""
    places = tuple(dict.fromkeys(one.strip() for one in (text or ANY).split(",")))
    return places if all(map(_NAMESPACE.fullmatch, places)) else (ANY,)
