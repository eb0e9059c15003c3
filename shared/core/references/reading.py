"""Read all references to Secrets and ConfigMaps from an object of any kind, and limit what is kept of them.

Total: no JSON raises an error. If a field cannot be read that the carrier rule of the kind names, the result has a
reference with a problem to every object that the field may name: whether these are used is unknown.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from shared.core.references.carrier import (
    Carrier,
    Carriers,
    Keys,
    Many,
    Origin,
    ReferenceField,
    Step,
    parse_path,
    read_default,
    read_field,
)
from shared.core.references.mentions import find_mentions, list_texts
from shared.core.references.reference import ANY, BOTH, Reference, TargetKind, TargetNames
from shared.core.references.shapes import find_by_shape, read_sidecar
from shared.core.values.objects import ANNOUNCED_LABEL, ObjectRef, get_in, get_text, list_mappings, ref_of

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_SECRET, _CONFIG_MAP = TargetKind.SECRET, TargetKind.CONFIG_MAP
_OF_CONTAINERS = (
    ("env[*].valueFrom.secretKeyRef", _SECRET),
    ("env[*].valueFrom.configMapKeyRef", _CONFIG_MAP),
    ("envFrom[*].secretRef", _SECRET),
    ("envFrom[*].configMapRef", _CONFIG_MAP),
)
_WITH_SECRET_REF = ("cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos")


def _field(path: str, to: TargetKind, name: str = "name") -> ReferenceField:
    return ReferenceField(path=path, to=to.value, name=name)


POD_SPEC_FIELDS = (
    _field("imagePullSecrets[*]", _SECRET),
    *(_field(f"{one}[*].{path}", to) for one in _CONTAINERS for path, to in _OF_CONTAINERS),
    _field("volumes[*].secret", _SECRET, "secretName"),
    _field("volumes[*].configMap", _CONFIG_MAP),
    _field("volumes[*].projected.sources[*].secret", _SECRET),
    _field("volumes[*].projected.sources[*].configMap", _CONFIG_MAP),
    _field("volumes[*].azureFile", _SECRET, "secretName"),
    *(_field(f"volumes[*].{one}.secretRef", _SECRET) for one in _WITH_SECRET_REF),
    _field("volumes[*].csi.nodePublishSecretRef", _SECRET),
    ReferenceField(path="volumes[*].csi", to="Secret", reader="azure"),
    *(ReferenceField(path=f"{one}[*]", to="any", reader="sidecar") for one in _CONTAINERS),
    *(
        ReferenceField(path=f"volumes[*].ephemeral.volumeClaimTemplate.spec.{one}", to="typed")
        for one in ("dataSource", "dataSourceRef")
    ),
)
"""The fields of a PodSpec that name Secrets and ConfigMaps; the paths start at the PodSpec.

They are those of `VisitPodSecretNames` and `VisitPodConfigmapNames` in Kubernetes' `pkg/api/v1/pod/util.go`, and
`cinder.secretRef`, which those leave out. An optional reference counts as well. `serviceAccountName` is no field here:
all Secrets that a ServiceAccount names count as used, whether or not a Pod has that ServiceAccount.

Beside them are what a k8s-sidecar container selects, the Secret of an inline volume of Azure, and the data source of an
ephemeral volume.
"""


@dataclass(slots=True)
class FieldNode:
    """One step of the paths of a carrier rule.

    Attributes:
        keys: The steps that continue at one key of a mapping.
        values: The step that continues at each value of a mapping.
        elements: The step that continues at each element of a list.
        ends: The fields whose path ends here.
        kinds: The kinds that the fields from here on may name.
        crosses: Whether one of these fields may name an object in another namespace.
    """

    keys: dict[str, "FieldNode"] = field(default_factory=dict)
    values: "FieldNode | None" = None
    elements: "FieldNode | None" = None
    ends: list[ReferenceField] = field(default_factory=list)
    kinds: list[TargetKind] = field(default_factory=list)
    crosses: bool = False

    def add(self, steps: Iterable[Step], one: ReferenceField) -> None:
        """Add a field at the end of these steps."""
        node = self
        node.cover(one)
        for step in steps:
            node = node.follow(step)
            node.cover(one)
        node.ends.append(one)

    def follow(self, step: Step) -> "FieldNode":
        """The node after one more step; it is added if there is none."""
        match step:
            case Many.ELEMENTS:
                self.elements = self.elements or FieldNode()
                return self.elements
            case Many.VALUES:
                self.values = self.values or FieldNode()
                return self.values
            case str():
                return self.keys.setdefault(step, FieldNode())

    def cover(self, one: ReferenceField) -> None:
        """Note what a field may name whose path leads through this node."""
        self.kinds = [*dict.fromkeys((*self.kinds, *one.kinds))]
        self.crosses = self.crosses or one.crosses


def plant(carrier: Carrier) -> FieldNode:
    """The tree of all fields of a carrier rule, those of its PodSpecs included."""
    root = FieldNode()
    for path in carrier.pod_specs:
        for one in POD_SPEC_FIELDS:
            root.add((*parse_path(path), *parse_path(one.path)), one)
    for one in carrier.fields:
        root.add(parse_path(one.path), one)
    return root


_NAME = "azure-storage-account-{}-secret"
_ACCOUNTS = ("storageaccount", "storageaccountname")
_ACCOUNT, _NAMESPACES = 1, slice(4, 6)
_PARTS_MIN = 3


def _read_azure_volume(origin: Origin, volume: Any, keys: Keys) -> Iterator[Reference]:
    """The references by a volume to the Secret with the key of its storage account. Total.

    Azure's CSI drivers for files and blobs make the name of the Secret from the name of the account: see
    azurefile-csi-driver `pkg/azurefile/azurefile.go` and blob-csi-driver `pkg/blob/blob.go`. The account is the
    attribute `storageAccount`, or the second part of the volumeHandle `GROUP#ACCOUNT#SHARE#...`. The drivers do not
    distinguish upper and lower case in the names of attributes. A name in `secretName` is a mention: see `mentions`.

    Args:
        origin: The object that has the volume.
        volume: The CSI volume, or the parameters of a StorageClass; a text is a volumeHandle.
        keys: Where it is.
    """
    if isinstance(volume, str):
        volume = {"volumeHandle": volume}
    attributes = volume.get("volumeAttributes", volume) if isinstance(volume, dict) else volume
    given = attributes if isinstance(attributes, dict) else {}
    values = {str(key).lower(): value for key, value in given.items()}
    named = [values[key] for key in _ACCOUNTS if values.get(key)]
    if not isinstance(attributes, dict | None) or not all(isinstance(one, str) for one in named):
        yield from origin.unreadable((TargetKind.SECRET,), keys, volume, crosses=origin.home == ANY)
        return
    parts = get_text(volume, "volumeHandle").split("#")
    named += [parts[_ACCOUNT]] if len(parts) >= _PARTS_MIN else []
    for namespace in _read_namespaces(values.get("secretnamespace"), parts, origin.home):
        for account in dict.fromkeys(filter(None, named)):
            yield origin.refer(TargetKind.SECRET, namespace, _NAME.format(account), keys)


def _read_namespaces(given: Any, parts: list[str], home: str) -> Iterable[str]:
    """The namespaces of the Secret.

    For an inline volume, that is the namespace of the Pod. Else it is the attribute `secretNamespace`, and for some
    requests the fifth or sixth part of the volumeHandle. Without the attribute, it may be the namespace of the claim,
    that of the Pod, or `default`, so any namespace counts.
    """
    if home != ANY:
        return (home,)
    if not isinstance(given, str) or not given:
        return (ANY,)
    return dict.fromkeys((given, *filter(None, parts[_NAMESPACES])))


class ReferenceReader:
    """Reads the references of objects of all kinds.

    Args:
        carriers: The known carrier rules.
    """

    def __init__(self, carriers: Carriers) -> None:
        self._carriers = carriers
        self._trees: dict[tuple[str, str], FieldNode] = {}

    def read_each(self, obj: Any, names: TargetNames) -> Iterator[Reference | None]:
        """Yield the references of an object to these names, each once.

        Yields None after each part of the work, which takes some milliseconds: there a caller may let other tasks run.

        Args:
            obj: The object; it needs its apiVersion and kind, which lists may leave out.
            names: The objects that exist; a reference to any other is left out.
        """
        version, kind = get_text(obj, "apiVersion"), get_text(obj, "kind")
        carrier = self._carriers.get(version, kind)
        if carrier is None:
            return read_each_reference(obj, None, names)
        tree = self._trees.get((version, kind))
        if tree is None:
            tree = self._trees[version, kind] = plant(carrier)
        return read_each_reference(obj, carrier, names, tree=tree)


def read_each_reference(
    obj: Any, carrier: Carrier | None, names: TargetNames, *, tree: FieldNode | None = None
) -> Iterator[Reference | None]:
    """Yield the references of an object, each once, and None after each part of the work.

    Args:
        obj: The object; any JSON is accepted.
        carrier: The carrier rule of its kind; None if its kind is unknown.
        names: The objects that exist; a reference to any other is left out.
        tree: The fields of the carrier rule, for many objects of one kind.
    """
    source = ref_of(obj)
    if (carrier is not None and carrier.refers_to_none is not None) or _only_warns(obj):
        return
    if not isinstance(obj, dict):
        yield from Origin({}, source, ANY).unreadable(BOTH, (), obj, crosses=True)
        return
    origin = Origin(obj, source, source.namespace or ANY, crosses=carrier is None or carrier.crosses)
    is_complete = carrier is not None and carrier.complete
    limits = ObjectLimits(source)
    in_fields: list[Iterator[Reference | None]] = [_read_owners(origin)]
    if carrier is not None:
        in_fields.append(_read_known(replace(origin, by_rule=True), carrier, tree or plant(carrier)))
    if not is_complete:
        in_fields.append(find_by_shape(origin))
    texts = list_texts(origin, every_field=not is_complete)
    mentions = find_mentions(origin, names, texts, wants_more=lambda: not limits.is_full)
    for one in chain(_find_named(chain(*in_fields), names), mentions):
        yield limits.take(one) if one is not None else None


def _find_named(found: Iterator[Reference | None], names: TargetNames) -> Iterator[Reference | None]:
    """Yield a reference for each existing object that a field names."""
    for one in found:
        yield from names.find_named(one) if one is not None else (None,)


def _read_owners(origin: Origin) -> Iterator[Reference]:
    """The references to the owners of an object: after them, the garbage collector would delete the object."""
    for place, owner in enumerate(list_mappings(origin.obj, "metadata.ownerReferences")):
        kind, name = get_text(owner, "kind"), get_text(owner, "name")
        if kind in BOTH and get_text(owner, "apiVersion") == "v1" and name:
            yield origin.refer(TargetKind(kind), origin.home, name, ("metadata", "ownerReferences", place, "name"))


def _only_warns(obj: Any) -> bool:
    """Return whether an object is the binding of a policy that warns about announced deletions.

    It selects exactly the objects whose deletion is announced. If it counted as a reference, nothing would be deleted.
    """
    is_binding = get_text(obj, "kind") == "ValidatingAdmissionPolicyBinding"
    return is_binding and get_in(obj, "spec.paramRef.selector") == {"matchLabels": {ANNOUNCED_LABEL: "true"}}


def _read_known(origin: Origin, carrier: Carrier, tree: FieldNode) -> Iterator[Reference]:
    """The references in the fields that a carrier rule names."""
    named: set[int] = set()
    for one, reference in _walk(tree, origin.obj, (), origin):
        named.add(id(one))
        yield reference
    for one in carrier.fields:
        if one.default_name is not None and id(one) not in named:
            yield from read_default(one, origin)


Found = tuple[ReferenceField | None, Reference]
"""A reference, with its field if the value of the field was reached."""


def _walk(node: FieldNode, value: Any, keys: Keys, origin: Origin) -> Iterator[Found]:
    """The references from one step of the paths on."""
    if value is None:
        return
    for one in node.ends:
        for reference in _read_end(one, value, keys, origin):
            yield one, reference
    if node.elements is not None:
        yield from _walk_list(node.elements, value, keys, origin)
    if node.keys or node.values is not None:
        yield from _walk_mapping(node, value, keys, origin)


def _read_end(field: ReferenceField, value: Any, keys: Keys, origin: Origin) -> Iterator[Reference]:
    """The references by the value at the end of a path."""
    match field.reader:
        case "sidecar":
            return read_sidecar(origin, value, keys)
        case "azure":
            return _read_azure_volume(origin, value, keys)
        case _:
            return read_field(field, value, keys, origin)


def _walk_list(node: FieldNode, value: Any, keys: Keys, origin: Origin) -> Iterator[Found]:
    if not isinstance(value, list):
        yield from _unreadable(node, value, keys, origin)
        return
    for place, one in enumerate(value):
        yield from _walk(node, one, (*keys, place), origin)


def _walk_mapping(node: FieldNode, value: Any, keys: Keys, origin: Origin) -> Iterator[Found]:
    if not isinstance(value, dict):
        yield from _unreadable(node, value, keys, origin)
        return
    for key, child in node.keys.items():
        if (one := value.get(key)) is not None:
            yield from _walk(child, one, (*keys, key), origin)
    if node.values is not None:
        for key, one in value.items():
            yield from _walk(node.values, one, (*keys, str(key)), origin)


def _unreadable(node: FieldNode, value: Any, keys: Keys, origin: Origin) -> Iterator[Found]:
    """References to all objects that the fields below a value may name, which has another shape than expected."""
    for reference in origin.unreadable(tuple(node.kinds), keys, value, crosses=node.crosses):
        yield None, reference


TEMPLATES_OF_ONE_MAX = 100
"""The most names with templates, and label selectors, that are read from one object. More make the answer unknown."""

REFERENCES_OF_OBJECT_MAX = 1_000
"""The references of one object after which only one to each further Secret or ConfigMap is kept: one shows its use."""


class ObjectLimits:
    """What was kept of the references of one object.

    Args:
        source: The object.
    """

    def __init__(self, source: ObjectRef) -> None:
        self._source = source
        self._seen: set[Any] = set()
        self._targets: set[tuple[str, str, str]] = set()
        self._exact = self._broad = 0

    @property
    def is_full(self) -> bool:
        """Return whether only the first reference to each further object is kept."""
        return self._exact >= REFERENCES_OF_OBJECT_MAX

    def take(self, one: Reference) -> Reference | None:
        """Return what is kept of a reference: itself, None, or one by which it is unknown what it may name."""
        if one.is_exact:
            return self._take_exact(one)
        key = (one.kind, one.namespace, one.name, one.selector, bool(one.problem))
        if key in self._seen:
            return None
        self._broad += 1
        if self._broad > TEMPLATES_OF_ONE_MAX:
            return self._overflow(one)
        self._seen.add(key)
        return one

    def _take_exact(self, one: Reference) -> Reference | None:
        target = (one.kind, one.namespace, one.name)
        key = (*target, one.path)
        if key in self._seen or (self.is_full and target in self._targets):
            return None
        self._seen.add(key)
        self._targets.add(target)
        self._exact += 1
        return one

    def _overflow(self, one: Reference) -> Reference | None:
        """Return once for each kind and namespace that it is unknown which of their objects are used."""
        home = self._source.namespace
        place = one.namespace if ANY not in one.namespace else ANY if one.is_field or not home else home
        key = (one.kind, place, "")
        if key in self._seen:
            return None
        self._seen.add(key)
        problem = f"expected at most {TEMPLATES_OF_ONE_MAX} templates and selectors in one object, got more"
        return Reference(one.kind, place, ANY, one.path, self._source, problem=problem)
