"""Find the object from which an object inherits its TTL, and read the TTL that the other object sets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.core.kinds.native_ttl import NativeTtl
from shared.core.ttl.ttl import InvalidTtlError, Ttl, read_fields
from shared.core.values.objects import ObjectRef, get_in, get_text


@dataclass(frozen=True, slots=True)
class InheritedFact:
    """What one object sets for the objects that refer to it.

    Attributes:
        source: The object that sets it, without a uid.
        ttl: The TTL; None if none of its fields is set.
        problem: Why the TTL cannot be read; empty if it can.
    """

    source: ObjectRef
    ttl: Ttl | None = None
    problem: str = ""


def find_ttl_source(obj: Any, ttl: NativeTtl | None) -> ObjectRef | None:
    """The object from which `obj` may inherit a TTL; None if its kind inherits no TTL, or if it refers to no object.

    A reference without a kind or a group means the first kind of the rule. If a reference names a kind that the rule
    does not know, or has another shape, the identity cannot be read: it is unknown what the object inherits.
    """
    if ttl is None or ttl.inherited is None:
        return None
    named = get_in(obj, ttl.inherited.ref)
    if named is None:
        return None
    first, given = ttl.inherited.kinds[0], named if isinstance(named, Mapping) else {}
    group = _part(given, "apiGroup", first.group)
    kind = _part(given, "kind", first.kind)
    known = ttl.inherited.find_kind(group, kind)
    namespace = "" if known and known.scope == "Cluster" else get_text(obj, "metadata.namespace")
    version = known.api_versions[0] if known else f"{group}/"
    return ObjectRef(version, kind, namespace, get_text(given, "name"), "")


def _part(given: Mapping[str, Any], name: str, default: str) -> str:
    """A part of a reference: the default if the part is absent, and empty if the part is not a text."""
    return default if given.get(name) is None else get_text(given, name)


def read_ttl_of_source(source: ObjectRef, obj: Any, ttl: NativeTtl) -> InheritedFact:
    """Read what an object sets for the objects that refer to it, by the kind rule of those objects.

    Args:
        source: The identity of the object, as they refer to it.
        obj: The object.
        ttl: The rule of their kind.
    """
    try:
        found = read_fields(obj, ttl, ttl.inherited.fields if ttl.inherited else ())
    except InvalidTtlError as error:
        return InheritedFact(source, problem=f"{source}: {error}")
    if found is None:
        return InheritedFact(source)
    return InheritedFact(source, Ttl(f"{found.source} of {source}", after=found.after, origin="inherited"))
