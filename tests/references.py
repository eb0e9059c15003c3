"""Objects that refer to Secrets and ConfigMaps, and the shipped carrier rules."""

from functools import cache
from typing import Any

from shared.adapters.config.carrier_files import read_carriers
from shared.core.references.carrier import Carrier, Carriers, Many, parse_path
from shared.core.references.reading import ReferenceReader, read_each_reference
from shared.core.references.reference import BOTH, Reference, TargetNames, name_targets

AZURE = "azure-storage-account-used-secret"
NAMES = ("a", "b", "carrier", "carrier-key", "database", "more", "used", "used-cacert", "web", "web-cacert", "x", AZURE)
"""The Secrets and ConfigMaps that exist in the namespaces ci, claims and other."""

EXISTING = name_targets((kind, place, name) for kind in BOTH for place in ("ci", "claims", "other") for name in NAMES)


@cache
def shipped_carriers() -> Carriers:
    return read_carriers()


@cache
def shipped_reader() -> ReferenceReader:
    return ReferenceReader(shipped_carriers())


def at_path(path: str, value: Any) -> Any:
    """An object that has one value, at this path: `[*]` is a list of one, and `*` a mapping of one."""
    for step in reversed(parse_path(path)):
        match step:
            case Many.ELEMENTS:
                value = [value]
            case Many.VALUES:
                value = {"any": value}
            case str():
                value = {step: value}
    return value


def merged(one: Any, other: Any) -> Any:
    """Two objects as one."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: merged(one.get(key), other.get(key)) for key in (*one, *other)}
    return one if other is None else other


def carrying(api_version: str, kind: str, *parts: tuple[str, Any], namespace: str = "ci") -> dict[str, Any]:
    """An object of a kind with these values at these paths."""
    metadata = {"name": "carrier", **({"namespace": namespace} if namespace else {})}
    obj: Any = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    for path, value in parts:
        obj = merged(obj, at_path(path, value))
    return obj


def read(obj: Any, names: TargetNames = EXISTING) -> tuple[Reference, ...]:
    """The references of an object to what exists."""
    return tuple(one for one in shipped_reader().read_each(obj, names) if one is not None)


def read_by(carrier: Carrier | None, obj: Any) -> tuple[Reference, ...]:
    """The references of an object to what exists, by one carrier rule or by none."""
    return tuple(one for one in read_each_reference(obj, carrier, EXISTING) if one is not None)


def names(obj: Any) -> set[str]:
    """The references of an object: `Secret ci/token`."""
    return {text_of(one) for one in read(obj) if not one.problem}


def text_of(one: Reference) -> str:
    return f"{one.kind} {one.namespace}/{one.name}"


def names_by_rule(obj: Any) -> set[str]:
    """The references in the fields that the carrier rule of its kind names."""
    carrier = shipped_carriers().get(obj["apiVersion"], obj["kind"])
    assert carrier is not None
    alone = carrier.model_copy(update={"complete": True})
    return {text_of(one) for one in read_by(alone, obj) if not one.problem}


def problems(obj: Any) -> set[str]:
    """What a reference with a problem may name: `Secret ci/*`."""
    return {text_of(one) for one in read(obj) if one.problem}
