"""`unused` in a policy rule: what it accepts, and what it rejects."""

import json
from datetime import timedelta

import pytest

from shared.adapters.config.policy_file import parse_policy
from shared.adapters.config.yaml_file import FileError
from shared.core.archive.archiving import Archiving
from shared.core.archive.gate import find_unused_archiving
from shared.core.decision.namespaces import namespace_of
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.usage import CONFIG_MAPS, SECRETS, USAGE_KINDS
from tests.builders import kind_rule, namespace, shipped_kinds
from tests.usage import unused_policy

NEVER = {"unused": {"ttl": "1d", "neverUsed": True}}
NARROW = "unused.neverUsed: expected match.namespaces.names without a glob, or match.labels with a value"
HAS_NAME = {"key": "app.kubernetes.io/name", "operator": "Exists"}
NOT_WEB = {"key": "app", "operator": "NotIn", "values": ["web"]}


def problem_of(**fields):
    with pytest.raises(FileError) as caught:
        unused_policy(**fields)
    return str(caught.value)


def test_rule_has_a_ttl_and_deletes_by_default():
    (rule,) = unused_policy().rules

    assert rule.unused is not None
    assert rule.unused.ttl == timedelta(days=1)
    assert not rule.unused.audit
    assert rule.match.kinds == ("configmaps", "secrets")


@pytest.mark.parametrize("word", ["secrets", "Secret", "secret", "configmaps", "ConfigMap", "cm"])
def test_kind_is_named_by_any_of_its_names(word):
    (rule,) = unused_policy(match={"kinds": [word]}).rules

    assert rule.match.kinds in (("configmaps",), ("secrets",))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"match": {"kinds": ["*"]}}, "match.kinds.0: expected secrets or configmaps beside unused, got '*'"),
        ({"match": {"kinds": ["jobs"]}}, "match.kinds.0: expected secrets or configmaps beside unused, got 'jobs'"),
        ({"match": {"kinds": ["secrets"], "age": "1d"}}, "expected no age and no owners in match"),
        ({"match": {"kinds": ["secrets"], "owners": []}}, "expected no age and no owners in match"),
        ({"ttl": "1d"}, "unused: expected only match, when, archive and audit beside it, got ttl"),
        (
            {"keepLast": 3, "minAge": "1d"},
            "unused: expected only match, when, archive and audit beside it, got keepLast, minAge",
        ),
        ({"unused": {}}, "unused.ttl"),
        ({"unused": {"ttl": "0s"}}, "expected a duration of more than 0"),
        ({"unused": {"ttl": "never"}}, "expected seconds"),
        ({"unused": {"ttl": "1d", "audit": "yes"}}, "unused.audit"),
        ({"unused": {"ttl": "1d", "dryRun": True}}, "unused.dryRun"),
        ({"unused": None}, "expected a value for unused"),
        (NEVER | {"match": {"kinds": ["cm"]}}, NARROW),
        (NEVER | {"match": {"kinds": ["cm"], "namespaces": {"names": ["ci", "c*"]}}}, NARROW),
        (NEVER | {"match": {"kinds": ["cm"], "namespaces": {"except": ["ci"]}}}, NARROW),
        (NEVER | {"match": {"kinds": ["cm"], "labels": {"matchExpressions": [NOT_WEB, HAS_NAME]}}}, NARROW),
        ({"unused": {"ttl": "1d", "neverUsed": "yes"}}, "unused.neverUsed"),
    ],
    ids=lambda value: None if isinstance(value, str) else ascii(value),
)
def test_malformed_rule_is_rejected(fields, problem):
    assert problem in problem_of(**fields)


@pytest.mark.parametrize(
    "narrow",
    [
        {"namespaces": {"names": ["ci", "web"]}},
        {"labels": {"matchLabels": {"app": "web"}}},
        {"labels": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}, NOT_WEB]}},
    ],
)
def test_rule_that_names_namespaces_or_labels_may_take_objects_that_were_never_used(narrow):
    (rule,) = unused_policy(match={"kinds": ["cm"]} | narrow, **NEVER).rules

    assert rule.unused is not None
    assert rule.unused.never_used


def test_rule_for_unused_objects_does_not_match_other_kinds():
    policy = unused_policy()

    assert policy.candidates(kind_rule("job")) == ()
    assert [one.rule.name for one in policy.candidates(CONFIG_MAPS)] == ["rotated"]
    assert [one.rule.name for one in policy.candidates(SECRETS)] == ["rotated"]


def test_rule_with_a_ttl_cannot_name_a_secret():
    with pytest.raises(FileError, match="unknown kind 'secrets'"):
        parse_policy(
            "rules: [{name: a, match: {kinds: [secrets]}, ttl: 1d}]",
            shipped_kinds(),
            name="policy.yaml",
        )


def test_kinds_are_no_shipped_kinds():
    shipped = {(rule.group, rule.kind) for rule in shipped_kinds().rules}

    assert not shipped & {(rule.group, rule.kind) for rule in USAGE_KINDS.rules}


def test_rule_needs_something_to_do():
    with pytest.raises(ValueError, match="archive and unused"):
        PolicyRule.model_validate({"name": "a", "match": {"kinds": ["secrets"]}})


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("false", False), (None, None)])
def test_namespace_opts_in_by_an_annotation(value, expected):
    annotations = {} if value is None else {"unused": value}

    assert namespace_of(namespace("ci", **annotations)).unused is expected


def test_malformed_annotation_of_a_namespace_is_a_problem():
    problem = namespace_of(namespace("ci", unused="yes")).problem

    assert problem == 'namespace ci: annotation ttlafterfinished.dev/unused: expected "true" or "false", got \'yes\''


ARCHIVES = {"main": {"url": "file:///archive"}, "all": {"url": "file:///all", "secrets": True}}
ARCHIVES |= {"tekton": {"native": "tekton-results"}}


def archived_policy(kinds, **archive):
    rule = {"name": "rotated", "match": {"kinds": kinds}, "unused": {"ttl": "1d"}, "archive": archive}
    return parse_policy(json.dumps({"archives": ARCHIVES, "rules": [rule]}), shipped_kinds(), name="policy.yaml")


@pytest.mark.parametrize(
    ("kinds", "to"), [(["configmaps"], "main"), (["secrets"], "all"), (["configmaps", "secrets"], "all")]
)
def test_archive_beside_unused_is_accepted(kinds, to):
    (rule,) = archived_policy(kinds, to=to, grace="1h").rules

    assert find_unused_archiving(rule) == Archiving(
        to, "policy rule rotated", "rotated", timedelta(hours=1), children=False
    )


@pytest.mark.parametrize(
    ("kinds", "archive", "problem"),
    [
        (["secrets"], {"to": "main"}, "archive.to: expected an archive with secrets: true beside unused of Secrets"),
        (["configmaps", "secrets"], {"to": "main"}, "archive.to: expected an archive with secrets: true"),
        (["configmaps"], {"to": "other"}, "archive.to: expected one of the archives"),
        (["configmaps"], {"to": "tekton"}, "archive.to: expected only kinds of tekton.dev"),
        (["configmaps"], {"to": "main", "logs": True}, "archive.logs: expected only to and grace beside unused"),
        (["configmaps"], {"to": "main", "children": True}, "archive.children: expected only to and grace"),
    ],
    ids=ascii,
)
def test_archive_that_cannot_store_unused_objects_is_rejected(kinds, archive, problem):
    with pytest.raises(FileError) as caught:
        archived_policy(kinds, **archive)

    assert problem in str(caught.value)
