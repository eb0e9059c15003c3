"""Find mentions: a text in which the name of a Secret or of a ConfigMap stands as a word.

A mention counts as a reference. It is searched wherever no schema says what a text means: in annotations, in the
arguments and variables of containers, and in all fields of an object whose kind is unknown or not completely known.
`auth: prod/app-secret`, `{"secretName": "app-secret"}`, `--tls-secret=app-secret` and `app-secret:password` all mention
`app-secret`. So an unused object may seem used, but a used one does not seem unused.

A mention concerns objects in the namespace of the object that has the text. A cluster-scoped object may mean any
namespace. A namespaced object refers to another namespace only by the namespace and the name together: `prod/tls`,
or a field about a namespace in the same mapping or in one around it. If it mentions the namespace at another place, as
`kubectl -n prod get secret app-secret` does, it is unknown whether it means the object there: the object is kept.

The module `words` says which words of a text may be names. In an object of any kind, each word counts below a key such
as `args`, `env` or `script`, and below a key that contains secret or configMap.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, product
from sys import intern
from typing import Any

from shared.core.references.carrier import Keys, Origin
from shared.core.references.reference import ANY, BOTH, Reference, TargetKind, TargetNames
from shared.core.references.shapes import kinds_of, named_by
from shared.core.references.words import expanded_texts, many_labels_of, pairs_of, portions_of, templates_of, words_of

TEXTS_OF_ONE_MAX = 3
"""The mentions of one name that are kept of one object, for each kind."""

NAMESPACES_BESIDE_MAX = 100
"""The namespaces that fields around a text name. In further ones, it is unknown whether the text means an object."""

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
_COMMAND = re.compile(
    r"(?:arg|argument|cmd|command|entrypoint|env|environment|envvar|flag|option|opt|param|parameter|run|script|source"
    r"|var|variable)s?$"
)
_KEY_CHARACTERS_MAX = 200
_CHARACTERS_OF_TEXT = 50
_CHARACTERS_AT_ONCE = 10_000
_SCHEMA_KNOWN = _NO_REFERENCES | {"valueFrom"}
_KNOWN = _SCHEMA_KNOWN | {"status"}
Kinds = tuple[TargetKind, ...]

_Value = tuple[Any, Keys, Kinds, bool, frozenset[str]]
"""A value of an object, where it is, the kinds that a text there may name, whether each of its words counts, and the
namespaces that fields around it name.
"""


@dataclass(slots=True)
class Text:
    """A text that may mention names.

    Attributes:
        text: The text.
        keys: Where it is.
        kinds: The kinds of which it names objects: a text below `secretRef` names no ConfigMap.
        is_value: Whether each of its words counts, even a plain word within a sentence, a path or a host name.
        beside: The namespaces that fields around it name.
    """

    text: str
    keys: Keys
    kinds: Kinds = BOTH
    is_value: bool = False
    beside: frozenset[str] = frozenset()


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
        yield from _list_below(root, (), _NO_REFERENCES, home=origin.home, with_keys=True)
        return
    for value, keys in _find_free_texts(origin.obj, origin.home):
        yield from _list_below(value, keys, _SCHEMA_KNOWN)


def _find_free_texts(obj: Any, home: str) -> Iterator[tuple[Any, Keys]]:
    """Yield the fields of a workload with texts that no schema describes, as they are and with known variables."""
    stack: list[tuple[Any, Keys]] = [(obj, ())]
    while stack:
        value, keys = stack.pop()
        if isinstance(value, list):
            stack += [(one, (*keys, place)) for place, one in enumerate(value) if isinstance(one, dict | list)]
            continue
        yield from ((one, (*keys, field)) for field, one in expanded_texts(value, home).items())
        for key, one in value.items():
            if key in FREE_TEXTS:
                yield one, (*keys, key)
            elif isinstance(one, dict | list) and key not in _KNOWN:
                stack.append((one, (*keys, str(key))))


def _list_below(
    value: Any, keys: Keys, skipped: AbstractSet[str], *, home: str = "", with_keys: bool = False
) -> Iterator[Text]:
    """Yield the texts of a value and of all values in it.

    Args:
        value: The value.
        keys: Where it is.
        skipped: The keys of the mappings that are passed over.
        home: The namespace, if the value may have containers; else empty.
        with_keys: Whether a key of a mapping may be a name, too.
    """
    is_value = any(isinstance(key, str) and _has_values(key) for key in keys[-1:])
    stack: list[_Value] = [(value, keys, BOTH, is_value, frozenset())]
    while stack:
        value, keys, kinds, is_value, beside = stack.pop()
        if isinstance(value, str):
            yield Text(value, keys, kinds, is_value, beside)
        elif isinstance(value, list):
            stack += [(one, (*keys, place), kinds, is_value, beside) for place, one in enumerate(value)]
        elif isinstance(value, dict):
            beside = _add_namespaces(beside, value, skipped)
            if with_keys:
                named = (str(key) for key in value if key not in skipped)
                yield from (Text(key, (*keys, key), kinds, is_value, beside) for key in named)
            fields = _list_fields(value, keys, kinds, skipped, is_value=is_value)
            stack += [(*one, beside) for one in fields]
            if home:
                expanded = expanded_texts(value, home)
                stack += [(one, (*keys, field), kinds, True, beside) for field, one in expanded.items()]


def _add_namespaces(beside: frozenset[str], mapping: dict[str, Any], skipped: AbstractSet[str]) -> frozenset[str]:
    """Add the namespaces that the fields of a mapping name, such as `namespace` and `secretNamespace`."""
    if len(beside) >= NAMESPACES_BESIDE_MAX:
        return beside
    keys = (key for key in mapping if isinstance(key, str) and key.lower().endswith("namespace") and key not in skipped)
    found = (one for one in map(mapping.get, keys) if isinstance(one, str))
    more = frozenset(islice(found, NAMESPACES_BESIDE_MAX - len(beside)))
    return beside | more if more else beside


def _list_fields(
    mapping: dict[str, Any], keys: Keys, kinds: Kinds, skipped: AbstractSet[str], *, is_value: bool
) -> Iterator[tuple[Any, Keys, Kinds, bool]]:
    """Yield the values of a mapping, the kinds that a text there may name, and whether each of its words counts."""
    of_kind = mapping.get("kind")
    typed = (TargetKind(of_kind),) if of_kind in BOTH else ()
    for key, one in mapping.items():
        if key not in skipped and isinstance(one, str | dict | list):
            text = str(key)
            about = (typed if key == "name" else ()) or named_by(text) or (kinds if key == "name" else BOTH)
            yield one, (*keys, text), about, is_value or _has_values(text)


def _has_values(key: str) -> bool:
    """Return whether each word below a key counts: it is about a command or its variables, or about our two kinds."""
    return bool(kinds_of(key)) or _is_of_command(key[-_KEY_CHARACTERS_MAX:])


@lru_cache(maxsize=8_192)
def _is_of_command(key: str) -> bool:
    return _COMMAND.search(key.lower().replace("-", "").replace("_", "")) is not None


class Mentions:
    """The words of the texts of one object that are names of Secrets, ConfigMaps and namespaces.

    Args:
        origin: The object.
        names: The objects that exist.
    """

    def __init__(self, origin: Origin, names: TargetNames) -> None:
        self._origin, self._names = origin, names
        self._namespaces = {origin.home}
        self._texts: defaultdict[str, defaultdict[TargetKind, list[Text]]] = defaultdict(lambda: defaultdict(list))
        self._foreign: dict[tuple[TargetKind, str, str], Text] = {}  # with the namespace

    def add(self, text: Text, portion: str) -> None:
        """Add the words of a portion of a text."""
        words, values = words_of(portion)
        self._namespaces |= words & self._names.namespaces
        found = self._find_within(portion) | ((words if text.is_value else values) & self._names.by_name.keys())
        if self._origin.home != ANY:
            self._add_foreign(text, portion, found)
        for name in found:
            for kind in text.kinds:
                kept = self._texts[name][kind]
                if len(kept) < TEXTS_OF_ONE_MAX and kept[-1:] != [text]:
                    kept.append(text)

    def _find_within(self, portion: str) -> AbstractSet[str]:
        return {name for word in many_labels_of(portion) for name in self._names.find_within(word)}

    def _add_foreign(self, text: Text, portion: str, found: Iterable[str]) -> None:
        """Add the names that a portion of a text has together with another namespace than that of the object."""
        places, home = text.beside & self._names.namespaces - {self._origin.home}, self._origin.home
        named = [(name, places) for name in found] if places else []
        for place, part in pairs_of(portion):
            if place != home and place in self._names.namespaces:
                words = self._find_within(part) | (words_of(part)[0] & self._names.by_name.keys())
                named += [(name, frozenset((place,))) for name in words]
        for name, within in named:
            for place, kind in product(within, text.kinds):
                if self._names.has(kind, place, name):
                    self._foreign.setdefault((kind, place, name), text)

    def find(self, wants_more: Callable[[], bool]) -> Iterator[Reference]:
        """Yield the references; the object does not refer to itself.

        Args:
            wants_more: Whether more than one reference to one object is still wanted.
        """
        origin = self._origin
        itself = (origin.source.kind, origin.source.namespace, origin.source.name)
        everywhere = origin.home == ANY
        for (kind, namespace, name), text in self._foreign.items():
            yield origin.refer(kind, namespace, name, text.keys)
        for name, texts in self._texts.items():
            places = self._names.by_name[name] if everywhere else self._names.find_in(name, self._namespaces)
            for kind, namespace in sorted(places):
                if (kind, namespace, name) == itself or (kind, namespace, name) in self._foreign:
                    continue
                is_certain = everywhere or namespace == origin.home
                for text in texts[kind] if is_certain and wants_more() else texts[kind][:1]:
                    one = origin.refer(kind, namespace, name, text.keys)
                    yield one if is_certain else _doubt(one)


def _doubt(one: Reference) -> Reference:
    """A mention of an object of another namespace that is named at another place: both may be about something else."""
    problem = f"{one.path}: may name an object of another namespace, which is mentioned at another place"
    return replace(one, problem=intern(problem))  # many references have the same one


def find_mentions(
    origin: Origin, names: TargetNames, texts: Iterable[Text], *, wants_more: Callable[[], bool]
) -> Iterator[Reference | None]:
    """The references by the texts of an object; None after each part of the work, see `read_each`.

    Args:
        origin: The object.
        names: The objects that exist.
        texts: The texts of the object.
        wants_more: Whether more than one reference to one Secret or ConfigMap is still wanted.
    """
    mentions, done = Mentions(origin, names), 0
    for text in texts:
        yield from _find_templates(origin, names, text)
        for portion in portions_of(text.text):
            mentions.add(text, portion)
            done += len(portion) + _CHARACTERS_OF_TEXT
            if done >= _CHARACTERS_AT_ONCE:
                done = 0
                yield None
    yield from mentions.find(wants_more)


def _find_templates(origin: Origin, names: TargetNames, text: Text) -> Iterator[Reference]:
    """The references by the templates in a text.

    In an object of a namespace they concern this namespace only, whatever namespace the text names. Otherwise, a user
    who may write an annotation would keep the objects of all others.
    """
    for namespace, pattern in templates_of(text.text, is_command=text.is_value):
        for kind in text.kinds:
            one = origin.refer(kind, (namespace or ANY) if origin.home == ANY else origin.home, pattern, text.keys)
            yield from names.find_named(one)
