"""The fields of a PodSpec that name Secrets and ConfigMaps.

They are those of `VisitPodSecretNames` and `VisitPodConfigmapNames` in Kubernetes' `pkg/api/v1/pod/util.go`, and
`cinder.secretRef`, which those leave out. An optional reference counts as well. `serviceAccountName` is no field here:
all Secrets that a ServiceAccount names count as used, whether or not a Pod has that ServiceAccount.

Beside them are what a k8s-sidecar container selects, and the Secret of an inline volume of Azure.
"""

from shared.core.references.carrier import ReferenceField
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
"""The paths start at the PodSpec."""
