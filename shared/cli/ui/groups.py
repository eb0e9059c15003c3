"""The objects of a cluster, counted for each kind and namespace: the page shows sums and some names."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shared.cli.planning.due_rows import By, DueRow, count_rows
from shared.cli.planning.forecast import forecast
from shared.cli.planning.piles import Pile, count_piles
from shared.core.decision.decide import Ignore, find_fate
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef
from shared.evaluation.batch import BatchResult

STEP_HOURS = 1
"""The hours of a window of the forecast."""

EXAMPLES_MAX = 3
"""Objects that are named for each reason."""


@dataclass(frozen=True, slots=True)
class KindPlace:
    """A kind in a namespace: the unit for which the API server grants `list`.

    Attributes:
        group: The API group of the kind.
        plural: The resource name of the kind.
        namespace: The namespace; empty if the kind is cluster-scoped.
    """

    group: str
    plural: str
    namespace: str


@dataclass(frozen=True, slots=True)
class ObjectGroup:
    """The objects of one kind in one namespace.

    Attributes:
        rule: The kind rule.
        place: The kind and the namespace.
        row: The counts by term.
        windows: How many objects are due now, in each window of the forecast, and later.
        pile: The finished objects; None if there are none.
        kept: How many objects are kept, by reason.
        examples: The first objects of each reason.
    """

    rule: KindRule
    place: KindPlace
    row: DueRow
    windows: Sequence[int]
    pile: Pile | None
    kept: Mapping[str, int]
    examples: Mapping[str, Sequence[ObjectRef]]


def group_objects(objects: Iterable[BatchResult]) -> list[ObjectGroup]:
    """Count the objects of each kind and namespace."""
    members: defaultdict[tuple[str, str], list[BatchResult]] = defaultdict(list)
    for one in objects:
        members[one.rule.name, one.ref.namespace].append(one)
    return [_group(found) for found in members.values()]


def _group(members: Sequence[BatchResult]) -> ObjectGroup:
    rule, namespace = members[0].rule, members[0].ref.namespace
    kept, examples = Counter[str](), defaultdict[str, list[ObjectRef]](list)
    for one in members:
        fate = find_fate(one.decisions[0])
        if isinstance(fate, Ignore):
            reason = str(fate.reason)
            kept[reason] += 1
            if len(examples[reason]) < EXAMPLES_MAX:
                examples[reason].append(one.ref)
    (row,) = count_rows(members, By.KIND)
    piles = count_piles(members, By.KIND)
    windows = [bar.count for bar in forecast(members, STEP_HOURS)]
    place = KindPlace(rule.group, rule.plural, namespace)
    return ObjectGroup(rule, place, row, windows, piles[0] if piles else None, kept, examples)
