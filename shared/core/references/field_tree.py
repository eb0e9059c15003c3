"""The fields of a carrier rule as a tree, so that one walk over an object reads all of them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from shared.core.references.carrier import Carrier, Many, ReferenceField, Step, parse_path
from shared.core.references.reference import TargetKind

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
