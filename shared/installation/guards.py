"""All guards of some kinds, as manifests: the delete guard of each, and the stop guard of those that can be stopped.

The components delete-guard/* contain the output for three kinds.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from shared.core.kinds.rule import KindRule
from shared.installation.delete_guard import guard
from shared.installation.kind_manifests import Manifest
from shared.installation.stop_guard import can_stop, stop_guard

_DELETE_COMMENT = (
    "Rejects a DELETE from our accounts if the object is unfinished, held or exempt, or if preconditions are missing."
)
_STOP_COMMENT = (
    "Rejects a change by our accounts that is not the stop of its kind, or of a held, exempt or finished object."
)
_BINDING_COMMENT = "Puts the policy in force."


def guards(rules: Iterable[KindRule], namespace: str, others: Sequence[str] = ()) -> Iterator[Manifest]:
    """Make the admission policies and bindings of all kinds.

    Args:
        rules: The kind rules; all rules of one kind make one policy.
        namespace: The namespace of the installation whose accounts the policies bind.
        others: The names of other users that the policies bind.
    """
    kinds: defaultdict[str, list[KindRule]] = defaultdict(list)
    for rule in rules:
        kinds[rule.name].append(rule)
    for of_kind in kinds.values():
        made = [(_DELETE_COMMENT, guard(of_kind, namespace, others))]
        made += [(_STOP_COMMENT, stop_guard(of_kind, namespace, others))] if can_stop(of_kind) else []
        for comment, (policy, binding) in made:
            yield Manifest(comment, policy)
            yield Manifest(_BINDING_COMMENT, binding)
