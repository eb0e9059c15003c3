"""Read all references to Secrets and ConfigMaps from an object of any kind.

Total: no JSON raises an error. If a field cannot be read that the carrier rule of the kind names, the result has a
reference with a problem to every object that the field may name: whether these are used is unknown.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from shared.core.objects import ANNOUNCED_LABEL, get_in, get_text, ref_of
from shared.core.references.carrier import Carrier, ReferenceField
from shared.core.references.carriers import Carriers
from shared.core.references.field_tree import FieldNode, plant
from shared.core.references.field_values import Keys, Origin, read_default, read_field
from shared.core.references.reference import ANY, BOTH, Reference
from shared.core.references.shapes import find_by_shape, find_in_annotations


class ReferenceReader:
    """Reads the references of objects of all kinds.

    Args:
        carriers: The known carrier rules.
    """

    def __init__(self, carriers: Carriers) -> None:
        self._carriers = carriers
        self._trees: dict[tuple[str, str], FieldNode] = {}

    def read(self, obj: Any) -> tuple[Reference, ...]:
        """The references of an object, each once; it needs its apiVersion and kind, which lists may leave out."""
        version, kind = get_text(obj, "apiVersion"), get_text(obj, "kind")
        carrier = self._carriers.get(version, kind)
        if carrier is None:
            return read_references(obj, None)
        tree = self._trees.get((version, kind))
        if tree is None:
            tree = self._trees[version, kind] = plant(carrier)
        return read_references(obj, carrier, tree=tree)


def read_references(obj: Any, carrier: Carrier | None, *, tree: FieldNode | None = None) -> tuple[Reference, ...]:
    """The references of an object, each once.

    Args:
        obj: The object; any JSON is accepted.
        carrier: The carrier rule of its kind; None if its kind is unknown.
        tree: The fields of the carrier rule, for many objects of one kind.
    """
    source = ref_of(obj)
    if (carrier is not None and carrier.refers_to_none is not None) or _only_warns(obj):
        return ()
    if not isinstance(obj, dict):
        return tuple(Origin({}, source, ANY).unreadable(BOTH, (), obj, crosses=True))
    origin = Origin(obj, source, source.namespace or ANY)
    found: list[Reference] = []
    if carrier is not None:
        found += _read_known(origin, carrier, tree or plant(carrier))
    found += find_in_annotations(origin)
    if carrier is None or not carrier.complete:
        found += find_by_shape(origin)
    return _each_once(found)


def _only_warns(obj: Any) -> bool:
    """Return whether an object is the binding of a policy that warns about announced deletions.

    It selects exactly the objects whose deletion is announced. If it counted as a reference, nothing would be deleted.
    """
    is_binding = get_text(obj, "kind") == "ValidatingAdmissionPolicyBinding"
    return is_binding and get_in(obj, "spec.paramRef.selector") == {"matchLabels": {ANNOUNCED_LABEL: "true"}}


def _each_once(references: Iterable[Reference]) -> tuple[Reference, ...]:
    """One reference for each kind, namespace, name and path."""
    return tuple({(one.kind, one.namespace, one.name, one.path): one for one in references}.values())


def _read_known(origin: Origin, carrier: Carrier, tree: FieldNode) -> Iterator[Reference]:
    """The references in the fields that a carrier rule names."""
    named: set[int] = set()
    for field, reference in _walk(tree, origin.obj, (), origin):
        named.add(id(field))
        yield reference
    for field in carrier.fields:
        if field.default_name is not None and id(field) not in named:
            yield from read_default(field, origin)


Found = tuple[ReferenceField | None, Reference]
"""A reference, with its field if the value of the field was reached."""


def _walk(node: FieldNode, value: Any, keys: Keys, origin: Origin) -> Iterator[Found]:
    """The references from one step of the paths on."""
    if value is None:
        return
    for field in node.ends:
        for reference in read_field(field, value, keys, origin):
            yield field, reference
    if node.elements is not None:
        yield from _walk_list(node.elements, value, keys, origin)
    if node.keys or node.values is not None:
        yield from _walk_mapping(node, value, keys, origin)


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
