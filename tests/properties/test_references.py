"""References on random objects: reading never fails, and more in an object never means fewer references."""

import copy

from hypothesis import given
from hypothesis import strategies as st

from shared.core.references.reference import ANY, ReferenceIndex, as_pattern, fits, read_selector
from tests.properties.strategies import any_text, json_values, paths_of, put
from tests.references import carrying, read, read_by, shipped_carriers

CARRIERS = [one for one in shipped_carriers().carriers if one.refers_to_none is None]
carriers = st.sampled_from(CARRIERS)
words = st.sampled_from(["secretName", "configMap", "secretRef", "name", "kind", "Secret", "used", "namespace", "x"])
documents = st.recursive(
    words | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=10,
)


@st.composite
def objects(draw):
    """An object of a known or an unknown kind, with any values in some of the fields of its rule."""
    carrier = draw(carriers)
    kind, namespace = carrier.kind, "ci" if carrier.scope == "Namespaced" else ""
    paths = [*(one.path for one in carrier.fields), *carrier.pod_specs, "spec.x.y"]
    parts = draw(st.lists(st.tuples(st.sampled_from(paths), documents | json_values), max_size=4))
    version = draw(st.sampled_from([carrier.api_versions[0], "example.com/v1"]))
    return carrying(version, kind, *parts, namespace=namespace)


def found(obj):
    return {(one.kind, one.namespace, one.name, bool(one.problem)) for one in read(obj)}


@given(json_values, st.none() | carriers)
def test_reading_accepts_any_json(obj, carrier):
    assert read_by(carrier, obj) == read_by(carrier, copy.deepcopy(obj))


@given(objects())
def test_reading_never_fails_and_changes_nothing(obj):
    before = copy.deepcopy(obj)

    read(obj)

    assert obj == before


@given(objects(), st.data())
def test_value_instead_of_any_part_of_an_object_never_fails(obj, data):
    place = data.draw(st.sampled_from(sorted(paths_of(obj), key=str)))
    put(obj, place, data.draw(json_values))

    read(obj)


@given(objects(), documents)
def test_another_field_never_removes_a_reference(obj, value):
    more = {**obj, "another": value}

    assert found(obj) <= found(more)


@given(json_values, json_values)
def test_selector_of_any_json_has_an_answer(selector, labels):
    assert read_selector(selector).may_select(labels) in (True, False)


@given(any_text)
def test_text_has_the_form_of_its_own_pattern(text):
    assert fits(as_pattern(text), text)


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8), st.text("ab", max_size=8))
def test_star_in_a_pattern_covers_any_text(pattern, text, inserted):
    for place in range(len(text) + 1):
        longer = text[:place] + inserted + text[place:]
        assert fits(f"{text[:place]}*{text[place:]}", longer)
    assert not fits(pattern, text) or fits(f"{pattern}*", text)


@given(st.lists(objects(), max_size=3), objects(), st.sampled_from(["used", "x"]))
def test_object_more_never_makes_an_object_less_used(others, one, name):
    index = ReferenceIndex(ref for obj in others for ref in read(obj))
    before = [len(index.find(kind, "ci", name)) for kind in ("Secret", "ConfigMap")]

    index.add(read(one))
    after = [len(index.find(kind, "ci", name)) for kind in ("Secret", "ConfigMap")]

    assert all(least <= now for least, now in zip(before, after, strict=True))


@given(objects())
def test_index_finds_each_exact_reference(obj):
    references = read(obj)
    index = ReferenceIndex(references)

    for one in references:
        if ANY not in one.namespace + one.name and one.selector is None:
            assert one in index.find(one.kind, one.namespace, one.name)


WORKLOADS = [
    ("apps/v1", "Deployment", "spec.template.spec.containers[*]"),
    ("argoproj.io/v1alpha1", "Rollout", "spec.template.spec.containers[*]"),
    ("tekton.dev/v1", "Task", "spec.steps[*]"),
    ("example.com/v1", "Gizmo", "spec.any"),
]
around = st.text(st.characters(codec="ascii"), max_size=20)


@given(st.sampled_from(WORKLOADS), st.sampled_from(["args", "command", "env"]), around, around, st.booleans())
def test_word_of_a_command_is_found_in_any_text_of_any_kind(workload, key, before, after, is_listed):
    version, kind, container = workload
    text = f"{before} used {after}"
    obj = carrying(version, kind, (f"{container}.{key}[*]", {"value": text} if is_listed else text))

    assert ("Secret", "ci", "used", False) in found(obj)


@given(around, around, st.sampled_from(["secret", "configMap", "x-secret-ref"]))
def test_part_of_a_text_below_a_key_about_secrets_is_found(before, after, key):
    one = carrying("example.com/v1", "Gizmo", (f'spec["{key}"].at[*].text', f"{before}/used.{after}"))

    assert {name for _, place, name, _ in found(one) if place == "ci"} >= {"used"}


@given(st.text("q. /\n", max_size=60), st.integers(0, 2_000))
def test_long_text_has_the_words_of_a_short_one(text, place):
    """Reading it in portions never makes less used."""
    padding = "z " * 10_000
    short = found(carrying("example.com/v1", "Gizmo", ("spec.text", f"{text} used-cacert, x: used")))
    long = f"{padding[: 18_000 + place]}\n{text} used-cacert, x: used\n{padding}"

    assert short <= found(carrying("example.com/v1", "Gizmo", ("spec.text", long)))


SOURCE = {"configMapKeyRef": {"name": "absent", "key": "x"}}
READ_FROM = {"NAMESPACE": ["ci", "other", "ci,other", "ALL"], "LABEL_VALUE": ["", "web", "db"]}
READ_FROM |= {"RESOURCE": ["configmap", "secret", "both"], "LABEL": ["app", "tier"]}
environments = st.fixed_dictionaries({}, optional={name: st.sampled_from(ones) for name, ones in READ_FROM.items()})


def is_selected(variables, namespace, kind, labels):
    """What a k8s-sidecar in the namespace ci reads."""
    place, key = variables.get("NAMESPACE", "ci"), variables.get("LABEL")
    value, resource = variables.get("LABEL_VALUE"), variables.get("RESOURCE", "configmap")
    is_place = place == "ALL" or namespace in place.split(",")
    is_kind = resource in ("both", kind.lower())
    return is_place and is_kind and key in labels and (not value or labels[key] == value)


@given(
    environments,
    st.sets(st.sampled_from([*READ_FROM])),
    st.booleans(),
    st.sampled_from(["ci", "other"]),
    st.sampled_from(["Secret", "ConfigMap"]),
    st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["web", "db"])),
)
def test_object_that_a_sidecar_reads_is_never_unused(variables, hidden, is_one_source, namespace, kind, labels):
    """Also if some of its variables are hidden: their values are in other objects."""
    given_here = {name: one for name, one in variables.items() if name not in hidden}
    env = [{"name": name, "value": one} for name, one in given_here.items()]
    env += [] if is_one_source else [{"name": name, "valueFrom": SOURCE} for name in variables.keys() & hidden]
    from_one = [{"configMapRef": {"name": "absent"}}] if is_one_source and variables.keys() & hidden else []
    container = {"name": "sc", "image": "kiwigrid/k8s-sidecar:1", "env": env, "envFrom": from_one}
    index = ReferenceIndex(read(carrying("v1", "Pod", ("spec.containers[*]", container))))

    kept = index.find(kind, namespace, "any", labels)
    assert kept or not is_selected(variables, namespace, kind, labels)
    assert hidden or bool(kept) == is_selected(variables, namespace, kind, labels)


patterns = st.sampled_from(["${x}/use${y}", "use${y}", "other/use${y}", "${x}", "c${x}/web-${y}", "ci/used", "used"])


@given(st.lists(patterns, max_size=4), st.sampled_from(CARRIERS))
def test_object_of_another_namespace_shows_no_use_by_a_template(texts, carrier):
    """It may make the answer unknown there; only an exact name shows a use, so no template removes marks elsewhere."""
    if carrier.scope == "Cluster":
        return
    annotations = {f"x/{place}": text for place, text in enumerate(texts)}
    parts = [("metadata.annotations", annotations), ("spec.secretName", texts), ("spec.configMapRef.name", texts[:1])]
    index = ReferenceIndex(read(carrying(carrier.api_versions[0], carrier.kind, *parts)))

    for name in ("used", "used-cacert", "web-cacert", "x"):
        for one in index.find("Secret", "other", name):
            assert one.problem or one.name == name
