"""Every annotation of the project's domain."""

from shared.core.ttl.annotations import OF_NAMESPACES, OF_OBJECTS
from shared.core.values.objects import ANNOTATION_DOMAIN
from shared.core.values.scope import Scope
from tests.reference.texts import attributes, code, fill, table


def render():
    """The page."""
    leases = table(("Annotation", "Meaning"), [(code(name), text) for name, text in _of_leases()])
    return fill("annotations", objects=_table(OF_OBJECTS), namespaces=_table(OF_NAMESPACES), leases=leases)


def _of_leases():
    """Each annotation on a Lease with its meaning, which the attribute of Scope has."""
    texts = attributes(Scope)
    for name in Scope("", (), "", dry_run=False, version="").as_annotations("holder"):
        _, _, part = name.partition("/leader-")
        yield name, texts[part.replace("-", "_")] if part else "The holder that wrote these annotations."


def _table(known):
    rows = [
        (code(f"{ANNOTATION_DOMAIN}/{name}"), one.values, code(one.example), one.does) for name, one in known.items()
    ]
    return table(("Annotation", "Values", "Example", "Meaning"), rows)
