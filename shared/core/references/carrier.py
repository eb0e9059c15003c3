"""Carrier rules: data that lists the fields of a kind that name Secrets and ConfigMaps.

Each kind has one YAML file, in `shared/references/`. To add a kind, add a file. The whole schema:

    apiVersions: [example.com/v1]    # every version that the rule fits, all of one group
    kind: Gizmo
    plural: gizmos
    scope: Namespaced                # or Cluster
    source: F.5                      # where the fields are documented
    podSpecs: [spec.template.spec]   # fields that have the type PodSpec: all references of a Pod are read there
    fields:                          # the other fields that name Secrets or ConfigMaps
      - path: spec.tls[*].secretName #   [*] is each element of a list, * each value of a mapping; ["a/b"] is a key.
                                     #   The value is a name, or a mapping that has it
        to: Secret                   #   or ConfigMap; any: both; typed: what the field kind of the mapping says
        name: name                   #   the key of the name in the mapping
        defaultKind: Secret          #   for typed: the kind if the mapping has none; without it, both
        namespace: namespace         #   the key of the namespace in the mapping; the mapping may lack it
        namespaceFrom: spec.claimRef.namespace   # the namespace if the mapping names none; the object may lack it
        anyNamespace: true           #   without a namespace: any. If left out: the namespace of the object itself, and
                                     #   any namespace for a cluster-scoped object
        defaultName: metadata.name   #   the name if there is no value at the path
        form: name                   #   how a text is read: name, namespace/name, name:key; or key: the key itself
        prefix: spark.secrets.       #   the value at the path is a mapping; each key with this prefix is read: its
                                     #   value by form, or, for the form key, the rest of the key
        as: "{name}-cacert"          #   the name of the object, if the value is only a part of it
        selector: selector           #   the key of a label selector in the mapping, which counts if there is no name
        reader: sidecar              #   in place of all others but path and to: the value is a container, see
                                     #   `shapes`; azure: it is a CSI volume, or the parameters of a StorageClass, see
                                     #   `reading`
    complete: true                   # no other field refers to Secrets or ConfigMaps. If left out, a name that stands
                                     # as a word anywhere in the object counts, as in an object of an unknown kind
    refersToNone: why                # instead of podSpecs, fields and complete: objects of the kind are not read at all
    notes: for people

A name that stands as a word in an annotation, or in an argument or a variable of a container, counts for every kind
that is read: see `mentions`.

A path starts at the root of the object. `[*]` stands for each element of a list, and `*` for each value of a mapping. A
key with other characters is quoted: `metadata.annotations["example.com/secret"]`.

A value that cannot be read is a reference with a problem.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from shared.core.kinds.predicates import NamedKind, RuleModel, Word
from shared.core.references.reference import ANY, BOTH, Reference, Selector, TargetKind, as_pattern, read_selector
from shared.core.values.objects import ObjectRef, quote


class Many(Enum):
    """A step of a path that leads to several values."""

    ELEMENTS = "[*]"
    VALUES = "*"


Step = str | Many

_KEY = r"[A-Za-z_][\w-]*"
_STEP = re.compile(rf'\.?(?P<key>{_KEY})|\.?(?P<values>\*)|(?P<elements>\[\*\])|\["(?P<quoted>[^"]+)"\]', re.ASCII)
_PATH = re.compile(rf'({_KEY}|\*)(\.({_KEY}|\*)|\[\*\]|\["[^"]+"\])*', re.ASCII)
_PLAIN = re.compile(_KEY, re.ASCII)

PATH_CHARACTERS_MAX = 500


def _check_path(text: str) -> str:
    if len(text) > PATH_CHARACTERS_MAX or not _PATH.fullmatch(text):
        raise PydanticCustomError(
            "path", 'expected a path such as spec.tls[*].secretName, spec.*.template or metadata.annotations["a/b"]'
        )
    return text


FieldPath = Annotated[str, AfterValidator(_check_path)]
"""A path of a carrier rule."""


def parse_path(path: str) -> tuple[Step, ...]:
    """The steps of a valid path."""
    steps: list[Step] = []
    for found in _STEP.finditer(path):
        if found["values"]:
            steps.append(Many.VALUES)
        elif found["elements"]:
            steps.append(Many.ELEMENTS)
        else:
            steps.append(found["key"] or found["quoted"])
    return tuple(steps)


def format_path(keys: tuple[str | int, ...]) -> str:
    """The text of a path with the keys and places that an object has: `spec.tls[0].secretName`."""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        elif _PLAIN.fullmatch(key):
            text += f".{key}"
        else:
            text += f'["{key}"]'
    return text.removeprefix(".")


TYPED = "typed"

_READ = {"sidecar": "any", "azure": "Secret"}
"""The kinds that each reader finds."""

_BESIDE_READER = {"path", "to", "reader"}


class ReferenceField(RuleModel):
    """A field that names Secrets or ConfigMaps."""

    path: FieldPath
    to: Literal["Secret", "ConfigMap", "any", "typed"]
    name: Word = "name"
    default_kind: Literal["Secret", "ConfigMap"] | None = None
    namespace: Word | None = None
    namespace_from: FieldPath | None = None
    any_namespace: bool = Field(default=False, strict=True)
    default_name: FieldPath | None = None
    form: Literal["name", "namespace/name", "name:key", "key"] = "name"
    prefix: Word | None = None
    as_: str = Field(default="{name}", alias="as", pattern=r"^[-a-z0-9.]*\{name\}[-a-z0-9.]*$")
    selector: Word | None = None
    reader: Literal["sidecar", "azure"] | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.reader is not None and (self.to != _READ[self.reader] or not self.model_fields_set <= _BESIDE_READER):
            message = "reader: {reader}: expected to: {to} and no other field than path beside it"
            raise PydanticCustomError("reader", message, {"reader": self.reader, "to": _READ[self.reader]})
        if self.default_kind is not None and self.to != TYPED:
            raise PydanticCustomError("default_kind", "defaultKind: expected to: typed beside it")
        if self.form == "key" and self.prefix is None:
            raise PydanticCustomError("form", "form: key: expected a prefix beside it")
        if self.prefix is not None and (self.namespace or self.selector or self.default_name):
            message = "prefix: expected no namespace, selector and defaultName beside it"
            raise PydanticCustomError("prefix", message)
        for name in ("namespace_from", "default_name"):
            if "*" in (getattr(self, name) or ""):
                alias = type(self).model_fields[name].alias
                raise PydanticCustomError("one_value", "{name}: expected a path without *", {"name": alias})
        return self

    def expand(self, text: str) -> str:
        """The name of the object that a value names."""
        return self.as_.replace("{name}", text)

    @property
    def kinds(self) -> tuple[TargetKind, ...]:
        """The kinds that it may name."""
        return BOTH if self.to in ("any", TYPED) else (TargetKind(self.to),)

    @property
    def crosses(self) -> bool:
        """Return whether it may name an object in another namespace."""
        elsewhere = self.any_namespace or self.form == "namespace/name"
        return elsewhere or self.namespace is not None or self.namespace_from is not None


class Carrier(NamedKind):
    """The fields of one kind that name Secrets and ConfigMaps; one YAML file defines one carrier."""

    scope: Literal["Namespaced", "Cluster"] = "Namespaced"
    source: Word
    pod_specs: tuple[FieldPath, ...] = Field(default=(), min_length=1)
    fields: tuple[ReferenceField, ...] = Field(default=(), min_length=1)
    complete: bool = Field(default=False, strict=True)
    refers_to_none: Word | None = None
    notes: Word | None = None

    @model_validator(mode="after")
    def _refers_or_not(self) -> Self:
        refers = bool(self.pod_specs or self.fields)
        if self.refers_to_none is not None and (refers or self.complete):
            message = "expected no podSpecs, fields and complete beside refersToNone"
            raise PydanticCustomError("refers", message)
        if not (refers or self.complete or self.refers_to_none):
            message = "expected at least one of podSpecs, fields, complete and refersToNone"
            raise PydanticCustomError("refers", message)
        return self

    @property
    def crosses(self) -> bool:
        """Return whether its objects may refer to other namespaces.

        Only workloads do not: kinds with PodSpecs, all of whose fields are known. An annotation of any other kind may
        name a namespace, such as that of an Ingress for the Secret of basic authentication. A text of a workload, such
        as an argument of a container, may mention another namespace too: see `UsageReader.look`.
        """
        is_workload = bool(self.pod_specs) and self.complete
        return not is_workload or any(one.crosses for one in self.fields)


class Carriers:
    """The carrier rules of all known kinds."""

    def __init__(self, carriers: tuple[Carrier, ...]) -> None:
        self.carriers = carriers
        self._by_kind = {(version, one.kind): one for one in carriers for version in one.api_versions}

    def get(self, api_version: str, kind: str) -> Carrier | None:
        """The carrier rule of a kind; None for an unknown kind, whose objects are searched as a whole."""
        return self._by_kind.get((api_version, kind))

    def is_searched(self, api_version: str, kind: str) -> bool:
        """Return whether the objects of a served kind have to be listed: all but those known to refer to none."""
        carrier = self.get(api_version, kind)
        return carrier is None or carrier.refers_to_none is None


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
