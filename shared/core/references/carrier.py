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
"""

import re
from enum import Enum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from shared.core.kinds.predicates import ApiVersion, RuleModel, Word
from shared.core.kinds.rule import check_one_group
from shared.core.references.reference import BOTH, TargetKind


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


class Carrier(RuleModel):
    """The fields of one kind that name Secrets and ConfigMaps; one YAML file defines one carrier."""

    api_versions: tuple[ApiVersion, ...] = Field(min_length=1)
    kind: str = Field(pattern=r"^[A-Z][A-Za-z0-9]*$")
    plural: str = Field(pattern=r"^[a-z][a-z0-9]*$")
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"
    source: Word
    pod_specs: tuple[FieldPath, ...] = Field(default=(), min_length=1)
    fields: tuple[ReferenceField, ...] = Field(default=(), min_length=1)
    complete: bool = Field(default=False, strict=True)
    refers_to_none: Word | None = None
    notes: Word | None = None

    @field_validator("api_versions")
    @classmethod
    def _of_one_group(cls, versions: tuple[str, ...]) -> tuple[str, ...]:
        return check_one_group(versions)

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
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_versions[0].rpartition("/")[0]

    @property
    def resource(self) -> str:
        """The unique name of the kind: `ingresses.networking.k8s.io`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

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
