"""Find what a k8s-sidecar container reads: it selects Secrets and ConfigMaps by a label that its variables name.

kiwigrid/k8s-sidecar `src/sidecar.py`: `LABEL` is the key, `LABEL_VALUE` the value, and any value counts without it.
`RESOURCE` is `configmap`, `secret` or `both`. `NAMESPACE` is a list with commas, or `ALL`. The charts of Grafana and
Jenkins run it. A mirror may rename the image, so a container with both required variables counts, too.

A variable whose value is not in the container, such as one with `valueFrom`, may have any value.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shared.core.references.field_values import Keys, Origin
from shared.core.references.reference import ANY, BOTH, Reference, TargetKind, read_selector
from shared.core.references.variables import Variables, text_of, variables_of

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
