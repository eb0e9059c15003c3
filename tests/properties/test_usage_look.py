"""A pass over random clusters: what it cannot read, and what is added, never makes an object more unused."""

import asyncio
from dataclasses import dataclass, field, replace
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from shared.core.references.carrier import TYPED, Carriers
from shared.core.references.reference import BOTH
from shared.core.values.objects import ObjectRef, get_text
from shared.errors import ForbiddenError, TryLaterError, TtlError
from shared.evaluation.usage_reader import UsageFound, UsageReader
from shared.ports import ListableKind, ListableKinds, Page, Target, TargetPage, Unreadable
from tests.builders import NOW
from tests.properties.test_references import CARRIERS, objects
from tests.references import EXISTING, NAMES, carrying, shipped_carriers
from tests.usage import config_map, secret

SPACES = ("ci", "claims", "other")
TARGETS = [
    maker(name, namespace=space, uid=name) for maker in (config_map, secret) for space in SPACES for name in NAMES
]
ALWAYS = (("v1", "Pod"), ("v1", "Secret"), ("v1", "ConfigMap"), ("example.com/v1", "Gizmo"))
PLURALS = {one.kind: one.plural for one in shipped_carriers().carriers}
HIDDEN = [one for one in shipped_carriers().carriers if one.refers_to_none is not None]
OTHERS = [one for one in NAMES if one != "carrier"]
"""All names but that of an object that `carrying` makes: without a rule, its own name is no reference."""
PLAIN = [
    (carrier, one)
    for carrier in CARRIERS
    if all(one.default_name is None for one in carrier.fields)
    for one in carrier.fields
    if one.prefix is None and one.as_ == "{name}" and one.form == "name" and not one.any_namespace
]
"""Fields whose text is the name of an object in the same namespace: no rule is needed to find it as a word.

No field of their kinds has a name by default: without the rule, such a name stands nowhere.
"""


@dataclass
class Cluster:
    """Kinds with one object a page; some LISTs fail at a page."""

    kinds: dict[tuple[str, str], list[dict]]
    unlistable: frozenset[tuple[str, str]] = frozenset()
    problem: str = ""
    fails: dict[tuple[str, str], tuple[str, int, TtlError]] = field(default_factory=dict)
    torn: frozenset[tuple[str, str]] = frozenset()
    unreadable: dict[tuple[str, str], list[Unreadable]] = field(default_factory=dict)

    async def list_kinds(self):
        kinds = {key: _kind(*key) for key in self.kinds}
        served = [one for key, one in kinds.items() if key not in self.unlistable]
        return ListableKinds((*served,), NOW, self.problem, tuple(kinds[one] for one in self.unlistable))

    async def list_objects(self, kind, *, namespace="", continue_token=""):
        key = kind.api_version, kind.kind
        place = int(continue_token or 0)
        where, page, error = self.fails.get(key, ("", -1, None))
        if error is not None and where in ("", namespace) and place >= page:
            raise error
        mine = [one for one in self.kinds[key] if namespace in ("", get_text(one, "metadata.namespace"))]
        version = f"{7 + place}" if key in self.torn else "7"
        token = str(place + 1) if place + 1 < max(len(mine), 2) else ""
        return Page(mine[place : place + 1], NOW, token, version, self.unreadable.get(key, ()) if place == 0 else ())

    async def list_targets(self, kind, *, namespace="", continue_token=""):
        listed = await self.list_objects(_kind("v1", str(kind)), namespace=namespace, continue_token=continue_token)
        targets = [Target(one, NOW) for one in listed.items]
        return TargetPage(targets, NOW, listed.continue_token, listed.resource_version, listed.unreadable)


def _kind(version, kind):
    return ListableKind((version,), PLURALS.get(kind, f"{kind.lower()}s"), kind, is_namespaced=True)


def cluster_of(objs, **options):
    kinds: dict[tuple[str, str], list[dict]] = {key: [] for key in ALWAYS}
    for one in objs:
        kinds.setdefault((one["apiVersion"], one["kind"]), []).append(one)
    return Cluster(kinds, **options)


def unused_in(cluster, namespaces=(), *, held=False, carriers=None):
    """The Secrets and ConfigMaps that a pass shows to be unused; none if the API server is away."""
    reader = UsageReader(cluster, carriers or shipped_carriers())

    async def look() -> UsageFound:
        if not held:
            return await reader.look(EXISTING, namespaces=namespaces)
        return await reader.look(EXISTING, namespaces=namespaces, held=await reader.hold_targets())

    try:
        found = asyncio.run(look())
    except TtlError:
        return set()
    return {
        (obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"])
        for obj in TARGETS
        if found.observe(obj).is_unused
    }


@st.composite
def plain(draw):
    """An object that names objects in fields whose text is the whole name."""
    carrier, one = draw(st.sampled_from(PLAIN))
    name = draw(st.sampled_from(OTHERS))
    value = {"kind": draw(st.sampled_from(BOTH)), one.name: name} if one.to == TYPED else name
    namespace = "ci" if carrier.scope == "Namespaced" else ""
    return carrying(carrier.api_versions[0], carrier.kind, (one.path, value), namespace=namespace)


@st.composite
def gizmos(draw):
    """An object of an unknown kind, or the metadata of a Secret or a ConfigMap, that may name an object."""
    version, kind = draw(st.sampled_from([("example.com/v1", "Gizmo"), ("v1", "Secret"), ("v1", "ConfigMap")]))
    note = draw(st.sampled_from([*OTHERS, "ci/used", "nothing"]))
    path = draw(st.sampled_from(['metadata.annotations["replicator.v1.mittwald.de/replicate-from"]', "spec.x"]))
    space = draw(st.sampled_from(SPACES))
    return carrying(version, kind, (path, note), namespace=space)


some = st.lists(objects() | plain() | gizmos(), max_size=4)
places = st.sampled_from([(), ("ci",), ("ci", "claims")])
errors = st.sampled_from([ForbiddenError("no right"), TryLaterError("no answer")])


@given(some, objects() | plain() | gizmos(), places, st.booleans())
def test_further_object_never_makes_an_object_more_unused(objs, more, namespaces, held):
    before = unused_in(cluster_of(objs), namespaces, held=held)

    assert unused_in(cluster_of([*objs, more]), namespaces, held=held) <= before


@given(some, places, st.data(), errors, st.booleans())
def test_list_that_fails_at_any_page_never_makes_an_object_more_unused(objs, namespaces, data, error, held):
    cluster = cluster_of(objs)
    before = unused_in(cluster, namespaces, held=held)
    key = data.draw(st.sampled_from(sorted(cluster.kinds)))
    where, page = data.draw(st.sampled_from(["", "ci"])), data.draw(st.integers(0, 1))

    after = unused_in(replace(cluster, fails={key: (where, page, error)}), namespaces, held=held)

    assert after <= before
    if not where:
        assert after == set() or not shipped_carriers().is_searched(*key)


@given(some, places, st.data())
def test_kind_that_becomes_unlistable_leaves_nothing_unused(objs, namespaces, data):
    cluster = cluster_of(objs)
    key = data.draw(st.sampled_from(sorted(cluster.kinds)))

    assert unused_in(replace(cluster, unlistable=frozenset([key])), namespaces) == set()


@given(some, places)
def test_discovery_that_is_not_complete_leaves_nothing_unused(objs, namespaces):
    assert unused_in(cluster_of(objs, problem="metrics.k8s.io/v1beta1 did not answer"), namespaces) == set()


@given(some, places, st.data(), st.booleans())
def test_list_of_several_states_leaves_nothing_unused(objs, namespaces, data, held):
    cluster = cluster_of(objs)
    key = data.draw(st.sampled_from(sorted(cluster.kinds)))

    assert unused_in(replace(cluster, torn=frozenset([key])), namespaces, held=held) == set()


@given(some, places, st.data())
def test_object_that_becomes_unreadable_never_makes_an_object_more_unused(objs, namespaces, data):
    before = unused_in(cluster_of(objs), namespaces)
    if not objs:
        return
    place = data.draw(st.integers(0, len(objs) - 1))
    lost = objs[place]
    ref = ObjectRef(lost["apiVersion"], lost["kind"], get_text(lost, "metadata.namespace"), "carrier", "")
    cluster = cluster_of([*objs[:place], *objs[place + 1 :]])
    key = lost["apiVersion"], lost["kind"]
    cluster.kinds.setdefault(key, [])

    after = unused_in(replace(cluster, unreadable={key: [Unreadable(ref, "too large")]}), namespaces)

    assert after <= before


@given(st.lists(plain() | gizmos(), min_size=1, max_size=4), st.data())
def test_kind_without_its_carrier_rule_never_makes_an_object_more_unused(objs, data):
    """The names in it still stand there as words.

    What a rule adds to the text is lost: another namespace, and a name by `as`, `prefix`, `defaultName` or `selector`.
    """
    before = unused_in(cluster_of(objs))
    kinds = sorted({(one["apiVersion"], one["kind"]) for one in objs})
    version, kind = data.draw(st.sampled_from(kinds))
    left = (one for one in shipped_carriers().carriers if one.kind != kind or version not in one.api_versions)

    assert unused_in(cluster_of(objs), carriers=Carriers((*left,))) <= before


@given(some, st.sampled_from(HIDDEN), st.sampled_from(OTHERS))
def test_kind_without_its_rule_that_it_refers_to_none_never_makes_an_object_more_unused(objs, rule, name):
    event = carrying(rule.api_versions[0], rule.kind, ("spec.x", name))
    left = (one for one in shipped_carriers().carriers if one is not rule)
    before = unused_in(cluster_of([*objs, event]))

    after = unused_in(cluster_of([*objs, event]), carriers=Carriers((*left,)))

    assert after <= before
    assert ("Secret", "ci", name) not in after


def test_random_clusters_have_used_and_unused_objects():
    used = carrying("v1", "Pod", ("spec.volumes[*].secret.secretName", "used"))
    assert ("Secret", "ci", "used") not in unused_in(cluster_of([used]))
    assert len(unused_in(cluster_of([used]))) == len(TARGETS) - 1
    assert len(TARGETS) == len([*chain(*EXISTING.by_name.values())]) == len(BOTH) * len(SPACES) * len(NAMES)
