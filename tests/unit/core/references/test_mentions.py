"""Mentions: a text in which a name stands as a word, and owners.

Mutants that these tests were tried with; each makes at least one test fail:
- mentions.py: words only between spaces; a path counts as words; no parts of a host; labels are searched; the copy of
  `kubectl apply` is searched; keys are not searched; the annotations of a Pod template are not searched; `valueFrom` of
  a known kind is a text; a mention counts in each namespace, or only in that of the object; an object mentions itself;
  each word of a command counts only in workloads, or only in its first level; the words below a secret key count only
  where the last key says so; the parts of paths and hosts do not count there
- words.py: the portions of a long text do not overlap
"""

import tracemalloc

import pytest

from shared.core.references.mentions import NAMESPACES_BESIDE_MAX, TEXTS_OF_ONE_MAX
from shared.core.references.reading import REFERENCES_OF_OBJECT_MAX
from shared.core.references.reference import BOTH, REFERENCES_OF_ONE_MAX, ReferenceIndex, name_targets
from shared.core.references.words import (
    GROWTH_CHARACTERS_MAX,
    PORTION_CHARACTERS,
    TEMPLATES_IN_TEMPLATE_MAX,
    expanded_texts,
)
from tests.builders import having
from tests.references import EXISTING, carrying, names, read, shipped_reader, text_of

SECRET, CONFIG_MAP = "Secret ci/used", "ConfigMap ci/used"
HERE = {SECRET, CONFIG_MAP}
THERE = {"Secret other/used", "ConfigMap other/used"}


def unknown(*parts, namespace="ci"):
    return carrying("example.com/v1", "Gizmo", *parts, namespace=namespace)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec.anything", "used", HERE),
        ("spec.certificateRefs[*].name", "used", HERE),
        ("spec.configuration.name", "used", HERE),
        ("spec.credentials", "used:password", HERE),
        ("spec.list", ["x", "used"], HERE | {"Secret ci/x", "ConfigMap ci/x"}),
        ("spec.used", "x", HERE | {"Secret ci/x", "ConfigMap ci/x"}),
        ("spec.text", "--from=used,other-thing", HERE),
        ("spec.text", '{"name":"used"}', HERE),
        ("spec.text", "ci/used", HERE),
        ("spec.text", "other/used", HERE | THERE),
        ("spec.text", "kubernetes://used", HERE),
        ("spec.text", "the bundle is used to verify; used by all", set()),
        ("spec.text", "Note: it is used, and more", set()),
        ("spec.text", "image:\n  tls:\n    name: used\n", HERE),
        ("spec.text", "- used\n- ci\n", HERE),
        ("spec.text", "x, used", HERE | {"Secret ci/x", "ConfigMap ci/x"}),
        ("spec.text", "get --secret=used now, please", HERE),
        ("spec.text", 'q: {"name": "used", "key": "q q"}', HERE),
        ("spec.text", "renew web-cacert now", {"Secret ci/web-cacert", "ConfigMap ci/web-cacert"}),
        ("spec.secretNames", "x used", {"Secret ci/x", SECRET}),
        ("spec.secret", "used.password", {SECRET}),
        ("spec.secret", "k8s://ci/used/password", {SECRET}),
        ("spec.secretStore.vault[*].path", "kv/data/used/password", HERE),
        ("spec.secretStore.vault.hint", "the used one", HERE),
        ("spec.host", "k8s://ci/used/password", set()),
        ("spec.envVars[*].value", "the used one", HERE),
        ("spec.extraArgs", {"mode": "the used one"}, HERE),
        ("spec.java-options", "-server used -verbose", HERE),
        ("spec.params[*].value", "the used one", HERE),
        ("spec.description", "the used one", set()),
        ("spec.text", "unused", set()),
        ("spec.text", "used-more", set()),
        ("spec.text", "Used", set()),
        ("spec.text", "/etc/used", set()),
        ("spec.text", "used.example.com", set()),
        ("spec.text", "/etc/web-cacert/x", {"Secret ci/web-cacert", "ConfigMap ci/web-cacert"}),
        ("spec.text", "web-cacert.data.key", {"Secret ci/web-cacert", "ConfigMap ci/web-cacert"}),
        ("spec.text", "prefix_used__ConfigMap", HERE),
        ("spec.secretName", "used", {SECRET}),
        ("spec.valuesSecretRef", {"name": "used"}, {SECRET}),
        ("spec.secrets", {"database": "used"}, HERE | {"Secret ci/database"}),
        ("spec.secretStore", {"trustBundle": "used"}, HERE),
        ('metadata.annotations["x/secret-sync-settings"]', "used", HERE),
        ("spec.text", "q\\nused\\u003c, q\\tweb-cacert", HERE | {"Secret ci/web-cacert", "ConfigMap ci/web-cacert"}),
        ("spec.text", "ci%2Fused", HERE),
        ("spec.text", "$(NAMESPACE)/used", HERE),
        ("spec.text", "/api/v1/namespaces/other/configmaps/used", HERE | THERE),
        ("spec.text", "existingSecret: used # rotated", HERE),
        ("spec.text", "-Dsecret=used -Dq=y", HERE),
        ("spec.configMaps", [{"name": "used"}], {CONFIG_MAP}),
        ("spec.ref", {"kind": "Secret", "name": "used"}, {SECRET}),
        ("spec.ref", {"kind": "ConfigMap", "name": "used", "namespace": "other"}, {CONFIG_MAP, "ConfigMap other/used"}),
        ("spec.ref", {"kind": "Vault", "name": "used"}, HERE),
        ("spec.ref", {"secretName": "used", "credentialsNamespace": "other"}, {SECRET, "Secret other/used"}),
        ("status.inventory[*].id", "ci_used__ConfigMap", HERE),
        ("data.token", "used", HERE),
        ("spec.labels.app", "used", set()),
        ("spec.selector.matchLabels.app", "used", set()),
        ("metadata.labels.app", "used", set()),
        ("metadata.ownerReferences[*].name", "used", set()),
        ("metadata.managedFields[*].fieldsV1.used", "used", set()),
        (
            'metadata.annotations["nginx.ingress.kubernetes.io/auth-secret"]',
            "other/used",
            {SECRET, "Secret other/used"},
        ),
        ('metadata.annotations["nginx.ingress.kubernetes.io/custom-headers"]', "ci/used", HERE),
        (
            'metadata.annotations["alb.ingress.kubernetes.io/auth-idp-oidc"]',
            '{"issuer":"https://example.com","secretName":"used"}',
            HERE,
        ),
        ('metadata.annotations["example.com/x"]', 7, set()),
        ('metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]', '{"secretName":"used"}', set()),
        ('metadata.annotations["meta.helm.sh/release-name"]', "used", set()),
    ],
    ids=lambda value: None if isinstance(value, set) else ascii(value),
)
def test_name_that_stands_as_a_word_is_a_reference(path, value, expected):
    assert names(unknown((path, value))) == expected


def test_mention_in_a_cluster_scoped_object_counts_in_every_namespace():
    places = ("ci", "claims", "other")

    assert names(unknown(("spec.secretName", "used"), namespace="")) == {f"Secret {place}/used" for place in places}


def doubtful(obj):
    return {text_of(one) for one in read(obj) if one.problem}


ARGS = "spec.template.spec.containers[*].args"


@pytest.mark.parametrize(
    "parts",
    [
        [("spec.credentials.name", "used"), ("spec.target.where", "other")],
        [("spec.credentials", "used"), ("spec.target.namespace", "other")],
        [("spec.script", "kubectl -n other get secret used")],
        [("spec.args", ["--secret=used", "--secret-namespace=other"])],
        [("spec.text", '{"secretName": "used", "namespace": "other"}')],
        [('metadata.annotations["example.com/a"]', "used"), ('metadata.annotations["example.com/b"]', "other")],
        [
            ('metadata.annotations["example.com/a"]', "used"),
            ('metadata.annotations["meta.helm.sh/release-namespace"]', "other"),
            ("spec.place", "other"),
        ],
    ],
    ids=str,
)
def test_name_and_namespace_at_different_places_are_no_use_there_and_no_proof_of_disuse(parts):
    assert names(unknown(*parts)) & THERE == set()
    assert doubtful(unknown(*parts)) == THERE
    in_cluster = names(unknown(*parts, namespace=""))
    assert in_cluster >= THERE
    assert doubtful(unknown(*parts, namespace="")) == set()


def test_workload_that_names_a_secret_and_another_namespace_may_use_it():
    script = ["sh", "-c", "kubectl -n other get secret used -o yaml"]
    env = [{"name": "SECRET", "value": "used"}, {"name": "SECRET_NAMESPACE", "value": "other"}]
    for path, value in ((ARGS, script), ("spec.template.spec.containers[*].env", env)):
        obj = carrying("apps/v1", "Deployment", (path, value))
        assert (names(obj) & THERE, doubtful(obj)) == (set(), THERE), path


@pytest.mark.parametrize(
    "parts",
    [
        [("spec.text", "other/used")],
        [("spec.text", "other/used.password")],
        [("spec.text", "see https://kubernetes/api/v1/namespaces/other/configmaps/used?watch=1")],
        [("spec.text", "k8s://other/secrets/used/password")],
        [("spec.text", "k8s:%2F%2Fother/used")],
        [('metadata.annotations["example.com/x"]', "q, other/used")],
        [("spec.ref.name", "used"), ("spec.ref.namespace", "other")],
        [("spec.secretName", "used"), ("spec.secretNamespace", "other")],
        [("spec.auth.basic.user", "used"), ("spec.targetNamespace", "other")],
        [("spec.args", ["--secret=$(PLACE)/used"]), ("spec.env", [{"name": "PLACE", "value": "other"}])],
    ],
    ids=str,
)
def test_name_with_its_namespace_is_a_reference_to_it(parts):
    assert names(unknown(*parts)) & THERE
    assert doubtful(unknown(*parts)) == set()


def test_namespaces_beside_a_text_beyond_the_most_make_the_answer_unknown():
    beside = {f"a{number}Namespace": f"ns-{number}" for number in range(NAMESPACES_BESIDE_MAX)}
    obj = unknown(("spec", {**beside, "zNamespace": "other", "secretName": "used"}))

    assert doubtful(obj) == {"Secret other/used"}


def test_many_doubtful_mentions_hide_no_mention_without_doubt():
    doubts = [ref for number in range(REFERENCES_OF_ONE_MAX) for ref in read(of_team(number, "web-cacert other"))]
    index = ReferenceIndex([*doubts, *read(of_team(0, "other/web-cacert"))])

    found = index.find("Secret", "other", "web-cacert")

    assert (len(found), bool(found[0].problem)) == (REFERENCES_OF_ONE_MAX, False)


def of_team(number, text):
    obj = unknown(("spec.text", text))
    return {**obj, "metadata": {"name": f"gizmo-{number}", "namespace": "ci"}}


def test_owner_is_used_because_the_garbage_collector_would_delete_the_object():
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "used", "uid": "u"}
    other = owner | {"apiVersion": "example.com/v1"}

    assert names(carrying("apps/v1", "Deployment", ("metadata.ownerReferences[*]", owner))) == {CONFIG_MAP}
    assert names(carrying("apps/v1", "Deployment", ("metadata.ownerReferences[*]", other))) == set()


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text", ["\n" * 200_000 + "q r", "q.bq.b" * 50_000, "q r:" * 100_000, "$(" * 100_000, " " * 200_000 + "q r"]
)
def test_huge_text_is_read_in_linear_time(text):
    assert names(unknown(("spec.text", text))) == set()


def test_object_does_not_refer_to_itself():
    obj = carrying("v1", "ConfigMap", ('metadata.annotations["example.com/source"]', "carrier"))

    assert names(obj) == {"Secret ci/carrier"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ('spec.template.metadata.annotations["vault.hashicorp.com/agent-inject"]', "used"),
        ('metadata.annotations["reloader.stakater.com/auto"]', "used"),
        ("spec.template.spec.containers[*].args", ["--config=ci/used"]),
        ("spec.template.spec.containers[*].command", ["reload", "used"]),
        ("spec.template.spec.containers[*].command", ["sh", "-c", "kubectl get secret used -o yaml"]),
        ("spec.template.spec.containers[*].args", ["--configmap=$(POD_NAMESPACE)/used"]),
        ("spec.template.spec.containers[*].env", [{"name": "TARGET", "value": "used"}]),
        ("spec.template.spec.containers[*].lifecycle.preStop.exec.command", ["get", "used"]),
        ("spec.template.spec.volumes[*].csi.volumeAttributes.secretName", "used"),
        ("spec.template.spec.volumes[*].flexVolume.options.who", "used"),
    ],
)
def test_texts_of_a_known_workload_are_searched(path, value):
    assert SECRET in names(carrying("apps/v1", "Deployment", (path, value)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.template.spec.serviceAccountName", "used"),
        ("spec.template.spec.containers[*].name", "used"),
        ("spec.template.metadata.labels.app", "used"),
        ("spec.selector.matchLabels.app", "used"),
        ("spec.fieldOfTheNextVersion.secretName", "used"),
    ],
)
def test_other_fields_of_a_completely_known_kind_are_no_mentions(path, value):
    assert names(carrying("apps/v1", "Deployment", (path, value))) == set()


def test_variable_from_a_secret_does_not_use_the_config_map_of_the_same_name():
    env = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "used", "key": "token"}}}

    assert names(carrying("apps/v1", "Deployment", ("spec.template.spec.containers[*].env[*]", env))) == {SECRET}


def test_incompletely_known_kind_and_unknown_version_are_searched():
    assert names(carrying("cert-manager.io/v1", "Certificate", ("spec.next.secretName", "used"))) == {SECRET}
    assert names(carrying("apps/v9", "Deployment", ("spec.template.spec.imagePullSecrets[*].name", "used"))) == {SECRET}


KINDS = [
    ("apps/v1", "Deployment", "spec.template.spec.containers[*]"),
    ("argoproj.io/v1alpha1", "Rollout", "spec.template.spec.containers[*]"),
    ("serving.knative.dev/v1", "Service", "spec.template.spec.containers[*]"),
    ("argoproj.io/v1alpha1", "Workflow", "spec.templates[*].container"),
    ("tekton.dev/v1", "Task", "spec.steps[*]"),
    ("example.com/v1", "Gizmo", "spec.runner"),
]
VALUES = [
    ("args", ["sh", "-c", "kubectl get secret used"]),
    ("command", ["sh", "-c", "kubectl get secret used -o yaml | base64 -d"]),
    ("args", ["cat /run/x/used/password"]),
    ("args", ["--from=used.password"]),
    ("env", [{"name": "TARGETS", "value": "first used last"}]),
    ("env", [{"name": "TARGET", "value": "k8s://ci/used/password"}]),
]


@pytest.mark.parametrize(("api_version", "kind", "container"), KINDS, ids=[kind for _, kind, _ in KINDS])
@pytest.mark.parametrize(("field", "value"), VALUES, ids=lambda value: ascii(value)[:50])
def test_each_word_of_a_command_or_a_variable_counts_in_each_kind(api_version, kind, container, field, value):
    assert SECRET in names(carrying(api_version, kind, (f"{container}.{field}", value)))


@pytest.mark.parametrize(
    ("api_version", "kind", "path"),
    [
        ("tekton.dev/v1", "Task", "spec.steps[*].script"),
        ("argoproj.io/v1alpha1", "Workflow", "spec.templates[*].script.source"),
        ("argoproj.io/v1alpha1", "Workflow", "spec.arguments.parameters[*].value"),
        ("example.com/v1", "Gizmo", "spec.script"),
    ],
)
def test_each_word_of_a_script_counts(api_version, kind, path):
    assert SECRET in names(carrying(api_version, kind, (path, "set -e\nkubectl get secret used | wc\n")))


TEAM = {"name": "TEAM", "value": "web"}
FROM_ELSEWHERE = {"name": "TEAM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['team']"}}}
OVER = {"name": "TEAM", "value": "w" * (GROWTH_CHARACTERS_MAX + 1)}


@pytest.mark.parametrize(("api_version", "kind", "container"), KINDS, ids=[kind for _, kind, _ in KINDS])
@pytest.mark.parametrize(
    "text", ["--secret=$(TEAM)-cacert", "get secret $TEAM-cacert now", "/secrets/${TEAM}-cacert/x"]
)
@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ([TEAM], "web-cacert"),
        ([{"name": "PART", "value": "web"}, {"name": "TEAM", "value": "$(PART)"}], "web-cacert"),
        ([FROM_ELSEWHERE, TEAM], "web-cacert"),
        ([TEAM, {"name": "FULL", "value": "$(TEAM)-cacert"}, {"name": "TEAM", "value": "q"}], "web-cacert"),
        ([FROM_ELSEWHERE], "*-cacert"),
        ([TEAM, FROM_ELSEWHERE], "*-cacert"),
        ([OVER], "*-cacert"),
        ([{"name": "TEAMS", "value": "web"}], "*-cacert"),
        ([], "*-cacert"),
    ],
    ids=[
        "literal",
        "of another",
        "the last counts",
        "in another before it changes",
        "from elsewhere",
        "the last is unknown",
        "too long",
        "of none",
        "none",
    ],
)
def test_variable_in_a_text_has_its_value_or_any(api_version, kind, container, text, env, expected):
    found = names(carrying(api_version, kind, (container, {"env": env, "args": ["sh", text]})))

    assert f"Secret ci/{expected}" in found


@pytest.mark.parametrize(
    ("kind", "place", "field"),
    [
        ("tekton.dev/v1 Task", "spec.steps[*]", "script"),
        ("argoproj.io/v1alpha1 Workflow", "spec.templates[*].script", "source"),
    ],
    ids=["Task", "Workflow"],
)
def test_variable_in_a_script_has_its_value(kind, place, field):
    script = "set -e\nkubectl get secret $TEAM-cacert\n"
    assert "Secret ci/web-cacert" in names(carrying(*kind.split(), (place, {"env": [TEAM], field: script})))


@pytest.mark.parametrize("place", ["lifecycle.postStart", "lifecycle.preStop", "livenessProbe", "startupProbe"])
def test_variable_in_a_command_of_a_probe_or_of_the_lifecycle_has_its_value(place):
    command = ["sh", "-c", "kubectl get secret $TEAM-$CA"]
    container = having({"env": [TEAM, {"name": "CA", "value": "cacert"}]}, f"{place}.exec.command", command)
    found = names(carrying("apps/v1", "Deployment", ("spec.template.spec.containers[*]", container)))
    assert "Secret ci/web-cacert" in found


@pytest.mark.parametrize("team", [[TEAM], [FROM_ELSEWHERE], []], ids=["literal", "from elsewhere", "none"])
@pytest.mark.parametrize(
    "text",
    [
        'kubectl get secret "$TEAM"-cacert',
        'kubectl get secret "${TEAM}"-cacert -o yaml',
        "kubectl get secret ${TEAM}'-cacert'",
        'cat "/secrets/$TEAM"-"cacert"/x',
        "--from=$(TEAM)-cacert.password",
        "--from=x.$(TEAM)-cacert.tls.crt",
        '{"run": "get secret \\"$TEAM\\"-cacert"}',
        "P=`kubectl get secret ${TEAM}-cacert`",
        "P=`kubectl get secret\n$TEAM-cacert`",
        "P=$(kubectl get secret ${TEAM}-cacert)",
        "node -e 'get(`${TEAM}-cacert`)'",
        "S=${X:-$TEAM-cacert}",
        '{"run": "x\\n${TEAM}-cacert"}',
        "get secret ${TEAM}-ca\\\ncert",
        "get secret ${TEAM}-$'cacert'",
    ],
)
def test_name_that_a_shell_puts_together_is_found(text, team):
    container = {"env": team, "args": ["sh", "-c", text]}
    found = read(carrying("apps/v1", "Deployment", ("spec.template.spec.containers[*]", container)))

    expected = "web-cacert" if team == [TEAM] else "*-cacert"
    assert {one.kind for one in found if (one.namespace, one.name) == ("ci", expected)} == {*BOTH}


@pytest.mark.parametrize(
    "text",
    [
        "${TEAM:-$(hostname)}-cacert",
        "$(cat $(echo ${TEAM}))-cacert",
        "get secret `cat team`-cacert",
        "P=$(kubectl get secret $(cat team)-cacert)",
        "get secret `cat\nteam`-cacert",
        "get secret {red,blue}-cacert",
        "get secret {red,b{lue,rown}}-cacert.key",
        "get secret {1..3}-cacert",
        "get secret ${TEAM}-{cacert,key}",
    ],
)
def test_output_of_a_command_may_be_any_text(text):
    found = read(carrying("apps/v1", "Deployment", ("spec.template.spec.containers[*].args", ["sh", "-c", text])))

    assert {one.kind for one in found if (one.name, one.problem) == ("*-cacert", "")} == {*BOTH}


@pytest.mark.parametrize(
    "container",
    [
        {"args": ["$(cat " * (TEMPLATES_IN_TEMPLATE_MAX + 1) + ")" * (TEMPLATES_IN_TEMPLATE_MAX + 1)]},
        {
            "args": ["$(A)-$(B)"],
            "env": [{"name": "A", "value": "w" * (GROWTH_CHARACTERS_MAX + 1)}, {"name": "B", "value": "cacert"}],
        },
    ],
    ids=["deep", "long"],
)
def test_text_that_is_not_read_to_its_end_may_have_any_name(container):
    found = read(carrying("apps/v1", "Deployment", ("spec.template.spec.containers[*]", container)))

    assert {(one.kind, one.namespace) for one in found if one.problem and one.name == "*"} == {
        (one, "ci") for one in BOTH
    }


@pytest.mark.parametrize("text", ["get secret web-ca\\\ncert", "get secret web-$'cacert'", 'get secret $"web-cacert"'])
def test_name_in_parts_of_a_script_is_found(text):
    assert "Secret ci/web-cacert" in names(
        carrying("apps/v1", "Deployment", ("spec.template.spec.containers[*].args", ["sh", "-c", text]))
    )


def test_key_after_a_name_with_a_template_may_have_dots():
    text = "get $(T)-db.v2.tls.crt"
    found = read(carrying("apps/v1", "Deployment", ("spec.template.spec.containers[*].args", ["sh", "-c", text])))

    assert {"*-db", "*-db.v2", "*-db.v2.tls", "*-db.v2.tls.crt"} <= {one.name for one in found}


def test_name_with_a_template_and_many_parts_with_dots_may_be_any_that_begins_so():
    text = "${H}.eu.prod.k8s.example.com.crt"
    found = read(carrying("apps/v1", "Deployment", ("spec.template.spec.containers[*].args", ["sh", "-c", text])))

    assert "*.eu.prod.k8s*" in {one.name for one in found}


@pytest.mark.parametrize("before", ["x" * 700 + ".", "x" * 700 + ".y.", "x." * 400])
def test_name_in_a_long_word_is_found(before):
    for name in ("web-cacert", "used"):
        found = read(
            carrying("apps/v1", "Deployment", ("spec.template.spec.containers[*].args", [f"{before}{name}.q"]))
        )
        assert {text_of(one) for one in found} >= {f"Secret ci/{name}", f"ConfigMap ci/{name}"}, name


def test_variables_that_multiply_are_bounded():
    env = [{"name": "V0", "value": "x" * 1_000}]
    env += [{"name": f"V{n + 1}", "value": f"$(V{n})" * 20 + "-web-cacert"} for n in range(100)]
    container = {"env": env, "args": ["$(V100)" * 1_000, "$(V0)-used"]}

    tracemalloc.start()
    found = expanded_texts(container, "ci")
    assert tracemalloc.get_traced_memory()[1] < 20 * GROWTH_CHARACTERS_MAX
    tracemalloc.stop()
    assert sum(len(one) for field in found.values() for one in map(str, field)) < 3 * GROWTH_CHARACTERS_MAX
    assert "Secret ci/*-used" in names(
        carrying("apps/v1", "Deployment", ("spec.template.spec.containers[*]", container))
    )


@pytest.mark.parametrize("count", [2, 4, 5, 6, 40, 41, 126])
@pytest.mark.parametrize(
    "text", ["{}", "{}.key", "before.{}", "--from={}.key now", "x.y/{}.key", "\\n{}.key", "$(A).{}.key"]
)
def test_name_of_any_number_of_parts_is_found(count, text):
    name = ".".join(f"{number % 10}" for number in range(count))
    existing = name_targets([(BOTH[0], "ci", name), (BOTH[0], "ci", "1.2.9")])
    obj = carrying("apps/v1", "Deployment", ("spec.template.spec.containers[*].args", [text.format(name)]))

    assert f"Secret ci/{name}" in {f"{one.kind} {one.namespace}/{one.name}" for one in read(obj, existing)}


def test_words_of_many_parts_are_read_in_linear_time():
    """Of names and texts that are made to take long."""
    name = ".".join("a" * 126)
    existing = name_targets([(BOTH[0], "ci", name), (BOTH[0], "ci", "a.b"), (BOTH[0], "ci", "c.d")])
    for text in (".".join("a" * 100_000), "a" * 100_000 + ".a.a.a.a.a", "a-" * 50_000 + "....", "." * 100_000):
        found = read(carrying("apps/v1", "Deployment", ("spec.template.spec.containers[*].args", [text])), existing)
        assert {one.name for one in found} == ({name} if text.startswith("a.") else set())


def test_word_at_any_place_of_a_long_text_is_found():
    for place in range(PORTION_CHARACTERS - 1_010, PORTION_CHARACTERS + 10, 101):
        text = "q " * (place // 2) + "q" * (place % 2) + " see /secrets/used now" + " q" * PORTION_CHARACTERS
        assert SECRET in names(unknown(("spec.text", text))), place


@pytest.mark.parametrize("place", ["$(PLACE)/", "other/", "$A/", "q/r/", ""])
def test_template_in_a_text_never_reaches_another_namespace(place):
    """A user who may annotate an object would else keep those of all others."""
    text, expected = f"--from={place}tls-$(NUMBER)", {"Secret ci/tls-*", "ConfigMap ci/tls-*"}

    assert names(carrying("apps/v1", "Deployment", ("spec.template.spec.containers[*].args", [text]))) == expected
    assert names(unknown(("spec.args", [text]))) == expected
    assert names(unknown(('metadata.annotations["example.com/x"]', text))) == expected


def test_template_in_a_cluster_scoped_object_concerns_the_namespace_that_it_names():
    obj = carrying("example.com/v1", "Gizmo", ("spec.args", ["other/tls-$(NUMBER)", "$(A)/zz-$(B)"]), namespace="")

    assert names(obj) == {f"{kind} {name}" for kind in BOTH for name in ("other/tls-*", "*/zz-*")}


def test_template_in_a_namespace_without_objects_is_not_held():
    args = ("spec.args", [f"absent-{number}/tls-${{y}}" for number in range(500)])
    assert not read(carrying("example.com/v1", "Gizmo", args, namespace=""))


def test_mentions_of_one_name_by_alternating_kinds_are_bounded():
    keys = ({"secretName": "used"}, {"configMapName": "used"})

    found = read(unknown(("spec.list", [keys[number % 2] for number in range(10_000)])))

    assert len(found) == 2 * TEXTS_OF_ONE_MAX


def test_object_that_names_everything_is_held_once_for_each_target():
    """50 names and 100 namespaces in the annotations of one ConfigMap."""
    places, many = [f"ns-{number}" for number in range(100)], [f"name-{number}" for number in range(50)]
    existing = name_targets((kind, place, name) for kind in BOTH for place in places for name in many)
    annotations = {f"example.com/{copy}": " ".join(many + places) for copy in "abc"}
    obj = carrying("v1", "ConfigMap", ("metadata.annotations", annotations))

    tracemalloc.start()
    found = read(obj, existing)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert {(one.kind, one.namespace, one.name) for one in found} == {
        (kind, place, name) for kind in BOTH for place in places for name in many
    }
    assert len(found) <= len(places) * len(many) * 2 + REFERENCES_OF_OBJECT_MAX
    assert size < 4_000_000


def test_long_work_on_one_object_is_divided():
    text = " ".join(f"{number:x}.example/x" for number in range(60_000))
    refs = [{"x": {"y": number}} for number in range(20_000)]

    steps = list(shipped_reader().read_each(unknown(("spec.text", text), ("spec.refs", refs)), EXISTING))

    assert steps.count(None) > len(text) / PORTION_CHARACTERS + 40_000 / 1_000
