"""Find mentions: a text in which the name of a Secret or of a ConfigMap stands as a word.

A mention counts as a reference. It is searched wherever no schema says what a text means: in annotations, in the
arguments and variables of containers, and in all fields of an object whose kind is unknown or not completely known.
`auth: prod/app-secret`, `{"secretName": "app-secret"}`, `--tls-secret=app-secret` and `app-secret:password` all mention
`app-secret`. So an unused object may seem used, but a used one does not seem unused.

A mention concerns objects in the namespace of the object that has the text, and in each namespace that the object
mentions too. A cluster-scoped object may mean any namespace.

Which words of a text may be names says `words`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from shared.core.references.field_values import Keys, Origin
from shared.core.references.reference import ANY, BOTH, Reference, TargetKind
from shared.core.references.shapes import kinds_of, named_by
from shared.core.references.target_names import TargetNames
from shared.core.references.words import templates_of, words_of

TEXTS_OF_ONE_MAX = 3
"""The mentions of one name that are kept of one object; further ones count only if they name another kind."""

FREE_TEXTS = frozenset({"annotations", "args", "command", "env", "options", "volumeAttributes"})
"""The fields of a workload with texts that no schema describes."""

COPIES = frozenset(
    {
        "argocd.argoproj.io/tracking-id",
        "kubectl.kubernetes.io/last-applied-configuration",
        "meta.helm.sh/release-name",
        "meta.helm.sh/release-namespace",
    }
)
"""Annotations that repeat the object, or that name what has created it."""

_NO_REFERENCES = COPIES | {"labels", "managedFields", "matchLabels", "ownerReferences"}
_COMMANDS = frozenset({"args", "command", "env"})
_SCHEMA_KNOWN = _NO_REFERENCES | {"valueFrom"}
_KNOWN = _SCHEMA_KNOWN | {"status"}
Kinds = tuple[TargetKind, ...]

_Value = tuple[Any, Keys, Kinds]
"""A value of an object, where it is, and the kinds that a text there may name."""


@dataclass(slots=True)
class Text:
    """A text that may mention names.

    Attributes:
        text: The text.
        keys: Where it is.
        kinds: The kinds of which it names objects: a text below `secretRef` names no ConfigMap.
        is_value: Whether each of its words counts, even a plain word within a sentence.
    """

    text: str
    keys: Keys
    kinds: Kinds = BOTH
    is_value: bool = False


def list_texts(origin: Origin, *, every_field: bool) -> Iterator[Text]:
    """Yield the texts of an object that may mention names. Total, for any depth.

    Args:
        origin: The object.
        every_field: Whether all fields outside of the metadata are searched; else only those of `FREE_TEXTS`.
    """
    metadata = origin.obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    yield from _list_below(annotations, ("metadata", "annotations"), COPIES)
    if every_field:
        root = {key: value for key, value in origin.obj.items() if key not in ("apiVersion", "kind", "metadata")}
        yield from _list_below(root, (), _NO_REFERENCES, with_keys=True)
        return
    for value, keys in _find_free_texts(origin.obj):
        yield from _list_below(value, keys, _SCHEMA_KNOWN, is_command=keys[-1] in _COMMANDS)


def _find_free_texts(obj: Any) -> Iterator[tuple[Any, Keys]]:
    """Yield the fields of a workload with texts that no schema describes."""
    stack: list[tuple[Any, Keys]] = [(obj, ())]
    while stack:
        value, keys = stack.pop()
        if isinstance(value, list):
            stack += [(one, (*keys, place)) for place, one in enumerate(value) if isinstance(one, dict | list)]
            continue
        for key, one in value.items():
            if key in FREE_TEXTS:
                yield one, (*keys, key)
            elif isinstance(one, dict | list) and key not in _KNOWN:
                stack.append((one, (*keys, str(key))))


def _list_below(
    value: Any, keys: Keys, skipped: AbstractSet[str], *, with_keys: bool = False, is_command: bool = False
) -> Iterator[Text]:
    """Yield the texts of a value and of all values in it.

    Args:
        value: The value.
        keys: Where it is.
        skipped: The keys of the mappings that are passed over.
        with_keys: Whether a key of a mapping may be a name, too.
        is_command: Whether the texts are parts of a command, in which each word may be a name.
    """
    stack: list[_Value] = [(value, keys, BOTH)]
    while stack:
        value, keys, kinds = stack.pop()
        if isinstance(value, str):
            yield Text(value, keys, kinds, is_value=is_command or _is_about_targets(keys))
        elif isinstance(value, list):
            stack += [(one, (*keys, place), kinds) for place, one in enumerate(value)]
        elif isinstance(value, dict):
            if with_keys:
                yield from (Text(str(key), (*keys, str(key)), kinds) for key in value if key not in skipped)
            stack += _list_fields(value, keys, kinds, skipped)


def _list_fields(mapping: dict[str, Any], keys: Keys, kinds: Kinds, skipped: AbstractSet[str]) -> Iterator[_Value]:
    """Yield the values of a mapping, with the kinds that a text there may name."""
    of_kind = mapping.get("kind")
    typed = (TargetKind(of_kind),) if of_kind in BOTH else ()
    for key, one in mapping.items():
        if key not in skipped and isinstance(one, str | dict | list):
            about = (typed if key == "name" else ()) or named_by(str(key))
            yield one, (*keys, str(key)), about or (kinds if key == "name" else BOTH)


def _is_about_targets(keys: Keys) -> bool:
    """Return whether a key above a text contains secret or configMap."""
    return any(isinstance(key, str) and kinds_of(key) for key in keys[-2:])


def find_mentions(origin: Origin, names: TargetNames, texts: Iterable[Text]) -> Iterator[Reference]:
    """The references by the texts of an object; it does not refer to itself."""
    mentioned: defaultdict[str, list[Text]] = defaultdict(list)
    namespaces, templates = {origin.home}, dict[Any, Reference]()
    for text in texts:
        for namespace, pattern in templates_of(text.text):
            for kind in text.kinds:
                one = origin.refer(kind, namespace or origin.home, pattern, text.keys)
                templates.setdefault((one.kind, one.namespace, one.name), one)
        words, values = words_of(text.text)
        namespaces |= words & names.namespaces
        for name in (words if text.is_value else values) & names.by_name.keys():
            if len(mentioned[name]) < TEXTS_OF_ONE_MAX or mentioned[name][-1].kinds != text.kinds:
                mentioned[name].append(text)
    yield from templates.values()
    itself = (origin.source.kind, origin.source.namespace, origin.source.name)
    for name, mentions in mentioned.items():
        places = names.by_name[name] if origin.home == ANY else names.find_in(name, namespaces)
        for kind, namespace in sorted(places):
            meant = (one for one in mentions if kind in one.kinds and (kind, namespace, name) != itself)
            yield from (origin.refer(kind, namespace, name, one.keys) for one in meant)
