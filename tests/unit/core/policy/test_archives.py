"""The archives of a policy, and the `archive` of its rules: what they accept, and what they reject."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from shared.adapters.config.policy_file import parse_policy
from shared.adapters.config.yaml_file import FileError, describe_problem
from shared.core.policy.archives import ArchiveDestination, RuleArchive
from shared.core.policy.policy import Policy
from tests.builders import shipped_kinds


def problem_of(model, **fields):
    with pytest.raises(ValidationError) as caught:
        model.model_validate(fields)
    return str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "file:///var/lib/ttl/archive",
        "s3://bucket",
        "s3://bucket/a/prefix?endpoint=http://127.0.0.1:7070&region=eu-1",
        "gs://bucket/prefix",
        "az://container/prefix?account=name",
    ],
)
def test_url_of_each_store_is_read(url):
    assert ArchiveDestination(url=url).url == url


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "expected file:///PATH"),
        ("/var/lib/ttl", "expected file:///PATH"),
        ("file://host/path", "expected file:///PATH"),
        ("file:///", "expected file:///PATH"),
        ("file:///a/../b", "without . and .."),
        ("s3:bucket", "expected the name of a bucket"),
        ("ftp://bucket", "expected file:///PATH"),
        ("https://bucket", "expected file:///PATH"),
        ("s3://key:secret@bucket", "without a user and a password"),
        ("s3://bucket?secret_access_key=x", "expected one of the options addressing, endpoint, region"),
        ("s3://bucket?region=a&region=b", "at most once"),
        ("file:///a?region=a", "at most once: none"),
        ("s3://bucket#part", "without #"),
        ("s3://bucket/a b", "expected file:///PATH"),
        ("s3://[bucket", "expected file:///PATH"),
        ("s3://bucket:port/a", "expected the name of a bucket"),
    ],
)
def test_url_that_names_no_store_is_rejected(url, problem):
    assert problem in problem_of(ArchiveDestination, url=url)


@pytest.mark.parametrize(
    "fields",
    [
        {"webhook": "https://user:w0rd@host/x"},
        {"webhook": "ftp://host/w0rd?token=w0rd"},
        {"url": "s3://user:w0rd@bucket/x"},
        {"url": "s3://bucket/x?endpoint=https://user:w0rd@host"},
        {"url": "s3://bucket/x?token=w0rd"},
        {"url": "s3://bucket/x?sum=w0rd"},
        {"url": "s3://bucket/x y?key=w0rd"},
    ],
)
def test_error_about_a_url_has_no_credential(fields):
    with pytest.raises(ValidationError) as caught:
        ArchiveDestination.model_validate(fields)
    (error,) = caught.value.errors()
    text = describe_problem(error)
    assert "expected" in text
    assert "w0rd" not in text


@pytest.mark.parametrize("url", ["", "ftp://host", "https://", "https://user:word@host", "host"])
def test_webhook_that_is_no_http_url_is_rejected(url):
    assert "expected a" in problem_of(ArchiveDestination, webhook=url)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "expected exactly one of url, webhook and native, got none"),
        ({"url": "s3://abc", "webhook": "https://b"}, "got url and webhook"),
        ({"native": "kubearchive"}, "tekton-results"),
        ({"webhook": "https://b", "keep": "1d"}, "keep: expected a url"),
        ({"url": "s3://abc", "keep": 0}, "expected a duration of more than 0"),
        ({"url": "s3://abc", "keep": "soon"}, "expected seconds"),
        ({"url": "file:///a", "encryption": {"sse": "AES256"}}, "encryption: expected an s3 url"),
        ({"url": "s3://abc", "encryption": {"sse": "AES256", "kmsKeyId": "k"}}, "kmsKeyId: expected sse: aws:kms"),
        ({"native": "tekton-results", "secrets": True}, "secrets: expected a url or a webhook"),
        ({"url": "s3://abc", "secrets": "yes"}, "secrets"),
        ({"url": None}, "expected a value for url"),
    ],
)
def test_archive_that_contradicts_itself_is_rejected(fields, problem):
    assert problem in problem_of(ArchiveDestination, **fields)


def test_archive_of_a_rule_has_no_grace_and_takes_children_by_default():
    assert RuleArchive(to="main") == RuleArchive(to="main", grace=timedelta(0), logs=False, children=True)


@pytest.mark.parametrize("name", ["true", "false", "Main", "a/b", "", "-a", "a" * 64])
def test_archive_name_that_an_annotation_could_not_have_is_rejected(name):
    assert "archives" in problem_of(Policy, archives={name: {"url": "s3://abc"}})
    assert "to" in problem_of(RuleArchive, to=name)


POLICY = """\
archives:
  main: {url: "s3://bucket", keep: 1d}
  tekton: {native: tekton-results}
rules:
  - name: one
    match: {kinds: [KINDS]}
    archive: ARCHIVE
"""


def parse(archive, kinds="jobs", text=POLICY):
    return parse_policy(text.replace("KINDS", kinds).replace("ARCHIVE", archive), shipped_kinds(), name="policy.yaml")


def test_rule_with_an_archive_alone_is_read():
    rule = parse("{to: main, grace: 2h, logs: true}").rules[0]

    assert rule.archive == RuleArchive(to="main", grace=timedelta(hours=2), logs=True)


@pytest.mark.parametrize(
    ("archive", "kinds", "problem"),
    [
        ("{to: other}", "jobs", "7: rules.0.archive.to: expected one of the archives main, tekton, got 'other'"),
        ("{to: main, grace: 1d}", "jobs", "expected less than keep of the archive main, which is 1d, got 1d"),
        ("{to: tekton}", "taskruns.tekton.dev, jobs", "expected only kinds of tekton.dev"),
        ("{to: tekton}", '"*"', "expected only kinds of tekton.dev"),
        ("{grace: 1h}", "jobs", "7: rules.0.archive.to: expected a value, got none"),
        ("{to: main, grace: -1}", "jobs", "rules.0.archive.grace: expected"),
        ("{to: main, ttl: 1h}", "jobs", "there is no such field"),
    ],
)
def test_rule_whose_archive_does_not_fit_is_rejected_with_its_line(archive, kinds, problem):
    with pytest.raises(FileError, match=r"policy\.yaml:7: ") as caught:
        parse(archive, kinds)
    assert problem in str(caught.value)


def test_rule_for_tekton_kinds_may_use_tekton_results():
    assert parse("{to: tekton}", '"*.tekton.dev"').rules[0].archive is not None


def test_rule_with_an_archive_and_no_archives_says_so():
    with pytest.raises(FileError, match="expected an archive, and `archives` has none"):
        parse("{to: main}", text=POLICY[POLICY.index("rules") :])


def test_rule_with_an_archive_and_an_age_is_rejected():
    with pytest.raises(FileError, match="archive: expected no age in match"):
        parse("{to: main}", text=POLICY.replace("[KINDS]", "[jobs], age: 7d"))


def test_policy_archives_only_the_kinds_that_a_rule_matches():
    policy, kinds = parse("{to: main}"), shipped_kinds()

    archived = [rule.name for rule in kinds.rules if policy.archives_kind(rule)]

    assert archived == ["jobs.batch"]
