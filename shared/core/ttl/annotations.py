"""Which annotations of our domain there are. Any other means nothing, and is most likely a slip that should be told."""

from collections.abc import Mapping, Sequence
from typing import Any

from shared.core.namespaces import DEFAULTS, Namespace
from shared.core.objects import ANNOTATION_DOMAIN, get_annotations
from shared.core.ttl.edits import HELD_TTL
from shared.core.ttl.ttl import TTL_ANNOTATIONS

OF_OBJECTS = ("hold", *TTL_ANNOTATIONS, "owner", HELD_TTL)
"""Without their domain, as those below."""

OF_NAMESPACES = (*DEFAULTS, "max-ttl", "exempt")
"""Beside those of objects: a Namespace may be an object of a rule of one's own."""


def describe_unknown(obj: Any) -> list[str]:
    """One sentence for each unknown annotation of the domain on an object."""
    return [_sentence(name, "", OF_OBJECTS) for name in get_annotations(obj) if name not in OF_OBJECTS]


def describe_unknown_of(namespace: Namespace) -> list[str]:
    """One sentence for each unknown annotation of the domain on a Namespace."""
    names, where = _of_domain(namespace.annotations), f" of namespace {namespace.ref.name}"
    return [_sentence(name, where, OF_NAMESPACES) for name in names if name not in (*OF_NAMESPACES, *OF_OBJECTS)]


def _of_domain(annotations: Mapping[str, Any]) -> Mapping[str, Any]:
    return get_annotations({"metadata": {"annotations": annotations}})


def _sentence(name: str, where: str, known: Sequence[str]) -> str:
    return f"unknown annotation {ANNOTATION_DOMAIN}/{name}{where}: expected one of {', '.join(known)}"
