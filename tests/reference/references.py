"""All shipped carrier rules, what is never collected, and the reasons of decisions about unused objects."""

from shared.adapters.config.carrier_files import read_carriers
from shared.core.references.reading import POD_SPEC_FIELDS
from shared.core.usage.never_collected import (
    ANNOTATIONS_READ,
    CLUSTER_CONFIG_MAPS,
    LABEL_VALUES_READ,
    LABELS_READ,
    NAME_READERS,
    SECRET_TYPES,
    SYSTEM_NAMESPACES,
)
from shared.core.usage.unused_reasons import UnusedReason
from tests.reference.texts import code, fill, members, table

_READERS = {"sidecar": "[k8s-sidecar](#k8s-sidecar)", "azure": "[Azure](#azure-volumes)"}
"""The readers that have a section of the page."""


def render():
    """The page."""
    carriers = sorted(read_carriers().carriers, key=lambda one: (one.group, one.plural))
    referring = [one for one in carriers if not one.refers_to_none]
    none = [one for one in carriers if one.refers_to_none]
    return fill(
        "references",
        count=len(referring),
        none_count=len(none),
        pod_spec=table(
            ("Field", "Kind"),
            [_pod_spec_row(one) for one in POD_SPEC_FIELDS],
        ),
        carriers=table(("Kind", "Name", "Fields", "Searched as a whole"), [_row(one) for one in referring]),
        none=table(("Kind", "Name", "Why"), [(one.kind, code(one.name), one.refers_to_none) for one in none]),
        never=table(("Objects", "Reason"), _never()),
        reasons=table(
            ("Reason", "Meaning", "What to do"), [(code(one), *texts) for one, texts in members(UnusedReason)]
        ),
    )


def _pod_spec_row(field):
    if field.reader in _READERS:
        return code(field.path), _READERS[field.reader]
    return code(_path(field) if field.name != "name" else f"{field.path}.name"), field.to


def _row(carrier):
    specs = [f"{code(path)} (PodSpec)" for path in carrier.pod_specs]
    fields = [f"{code(_path(one))} ({_about(one)})" for one in carrier.fields]
    notes = [carrier.notes] if carrier.notes else []
    cell = ", ".join([*specs, *fields]) or "annotations only"
    return carrier.kind, code(carrier.name), ". ".join([cell, *notes]), "no" if carrier.complete else "yes"


def _path(field):
    """The path of the value of a field, with the key of the name if that is not `name`."""
    if field.prefix is not None:
        return f"{field.path}[{field.prefix}*]"
    if field.name == "name":
        return field.path
    return f"{field.path}.{field.name}" if field.name.isidentifier() else f'{field.path}["{field.name}"]'


def _about(field):
    if field.reader in _READERS:
        return _READERS[field.reader]
    kind = {"any": "Secret or ConfigMap", "typed": "by its kind"}.get(field.to, field.to)
    return f"{kind}, any namespace" if field.any_namespace else kind


def _never():
    return [
        ("In the namespaces " + _codes(SYSTEM_NAMESPACES), code(UnusedReason.SYSTEM_NAMESPACE)),
        *((f"Secrets of the type {code(name)}", code(reason)) for name, reason in SECRET_TYPES.items()),
        ("ConfigMaps named " + _codes(CLUSTER_CONFIG_MAPS), code(UnusedReason.CLUSTER_CONFIG)),
        ("ConfigMaps with the annotation of a leader election", code(UnusedReason.LEADER_ELECTION)),
        ("ConfigMaps of Knative named `config-*`", code(UnusedReason.READ_BY_NAME)),
        *(
            (f"{kind}s that {one.reader} reads: {_codes(names)}", code(UnusedReason.READ_BY_NAME))
            for one in NAME_READERS
            for kind, names in (("ConfigMap", one.config_maps), ("Secret", one.secrets))
            if names
        ),
        ("With one of the labels " + _codes(LABELS_READ), code(UnusedReason.READ_BY_LABEL)),
        *(
            (f"With the label {code(f'{key}: {value}')}", code(UnusedReason.READ_BY_LABEL))
            for key, value in LABEL_VALUES_READ.items()
        ),
        ("With one of the annotations " + _codes(ANNOTATIONS_READ), code(UnusedReason.READ_BY_LABEL)),
        ("With a finalizer", code(UnusedReason.FINALIZED)),
        ("With an owner reference", code(UnusedReason.OWNED)),
        ("With `immutable`", code(UnusedReason.IMMUTABLE)),
        ("With the annotation `ttlafterfinished.dev/hold`", code(UnusedReason.HELD)),
    ]


def _codes(names):
    return ", ".join(map(code, sorted(names)))
