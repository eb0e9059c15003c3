"""`archive verify`, `prune` and `lifecycle`, on an archive in a folder."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from shared.adapters.archive.codec import compress
from shared.adapters.archive.open_archive import open_archive
from shared.cli.archive import source
from shared.cli.main import main
from shared.core.archive.document import OBJECT_BYTES_MAX, Document, Record, canonical, digest_of
from shared.core.archive.layout import parse_key
from shared.core.values.jsontext import JSON_VALUES_MAX
from shared.core.values.objects import format_instant
from shared.errors import TryLaterError
from tests.archives import FakeArchive, key_of
from tests.builders import NOW, having, job

Run = Callable[..., Result]
DAY = timedelta(days=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def store(folder: Path) -> Callable[..., Path]:
    """Store an object; return its file."""
    archive = open_archive("main", f"file://{folder}")

    def put(obj: dict[str, Any]) -> Path:
        document = Document(Record(archived_at=NOW), canonical(obj))
        key = key_of(obj, document.digest, cluster="default", day=NOW.date())
        asyncio.run(archive.put(key, document))
        return folder / key.path

    return put


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Run:
    policy = tmp_path / "policy.yaml"

    def run(*words: str, **destination: Any) -> Result:
        main_archive = {"url": f"file://{folder}"} | destination
        policy.write_text(yaml.safe_dump({"archives": {"main": main_archive}}))
        return CliRunner().invoke(main, ["archive", *words, "--policy", str(policy)])

    return run


def test_verify_counts_documents(run: Run, store: Callable[..., Path]) -> None:
    store(job())
    store(job(name="other", namespace="web"))
    assert run("verify", "-n", "ci").stdout == "1 document verified, 0 damaged\n"
    assert json.loads(run("verify", "-A", "-o", "json").stdout) == {"verified": 2, "damaged": []}


def test_verify_fails_if_a_document_is_damaged(run: Run, store: Callable[..., Path]) -> None:
    store(job(name="whole"))
    path = store(job())
    path.write_bytes(path.read_bytes()[:-9])
    result = run("verify", "-n", "ci")
    assert result.exit_code == 1
    damaged, summary = result.stdout.splitlines()
    assert path.name in damaged
    assert summary == "2 documents verified, 1 damaged"
    (reported,) = json.loads(run("verify", "job", "-n", "ci", "-o", "json").stdout)["damaged"]
    assert (reported["name"], "damaged" in reported["problem"]) == ("build-42", True)


@pytest.mark.parametrize(("field", "value"), [("spec.template.spec.hostPID", True), ("apiVersion", "batch/v2")])
def test_verify_counts_and_names_both_documents_of_one_version(
    run: Run, store: Callable[..., Path], field: str, value: Any
) -> None:
    """One of them may be forged: the right digest of another object is no proof."""
    store(job(name="whole"))
    ours, forged = store(job()), store(having(job(), field, value))
    assert "differ" in run("get", "job/build-42", "-n", "ci").stderr
    result = run("verify", "-n", "ci")
    assert result.exit_code == 1
    *problems, summary = result.stdout.splitlines()
    assert summary == "3 documents verified, 2 damaged"
    assert len(problems) == 2
    assert all(ours.name in one and forged.name in one for one in problems)
    reported = json.loads(run("verify", "-n", "ci", "-o", "json").stdout)["damaged"]
    assert {one["digest"] for one in reported} == {path.name.split(".")[2] for path in (ours, forged)}
    forged.write_bytes(b"damaged")
    assert run("verify", "-n", "ci").stdout.splitlines()[-1] == "3 documents verified, 1 damaged"


def test_get_and_verify_use_the_signed_document_beside_a_forged_one(
    run: Run, store: Callable[..., Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged_job = having(job(), "spec.template.spec.hostPID", value=True)
    forged = store(forged_job)
    monkeypatch.setenv("TTL_ARCHIVE_KEYS", "k" * 32)
    document = Document(Record(archived_at=NOW), canonical(job()))
    key = key_of(job(), document.digest, cluster="default", day=NOW.date())
    stored_at = format_instant(asyncio.run(open_archive("main", f"file://{folder}").put(key, document)).stored_at)

    verified, got = run("verify", "-n", "ci"), run("get", "job/build-42", "-n", "ci")

    assert verified.exit_code == 1
    assert verified.stdout.splitlines()[-1] == "2 documents verified, 1 damaged"
    assert f"{forged.name} is damaged: it has no signature" in verified.stdout
    assert (got.exit_code, yaml.safe_load(got.stdout)) == (0, job()), got.stderr

    monkeypatch.delenv("TTL_ARCHIVE_KEYS")
    newer = store(having(forged_job, "metadata.resourceVersion", "99999"))
    monkeypatch.setenv("TTL_ARCHIVE_KEYS", "k" * 32)
    refused = run("get", "job/build-42", "-n", "ci")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"{newer.name} is damaged: it has no signature" in refused.stderr
    assert "only copy" not in refused.stderr
    words = ("--uid", "6f1f8a52-0c7e-4c53-9f0e-0d9a3c1b7e11", "--resource-version", "1042")
    assert f"the newest undamaged version was archived {stored_at}: set {' '.join(words)}" in refused.stderr
    assert yaml.safe_load(run("get", "job/build-42", "-n", "ci", *words).stdout) == job()

    monkeypatch.setenv("TTL_ARCHIVE_KEYS", "secret")
    result = run("get", "job/build-42", "-n", "ci")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "TTL_ARCHIVE_KEYS: expected keys of at least 32 random characters" in result.stderr
    assert "secret" not in result.stderr


def test_get_prints_one_of_two_signed_documents_of_one_version_and_names_both(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTL_ARCHIVE_KEYS", "k" * 32)
    archive = open_archive("main", f"file://{folder}")
    locations = {}
    for obj in (job(), having(job(), "apiVersion", "batch/v2")):
        document = Document(Record(archived_at=NOW), canonical(obj))
        key = key_of(obj, document.digest, cluster="default", day=NOW.date())
        locations[obj["apiVersion"]] = asyncio.run(archive.put(key, document)).location

    got = run("get", "job/build-42", "-n", "ci")

    assert got.exit_code == 0, got.stderr
    assert f"; this is {locations[yaml.safe_load(got.stdout)['apiVersion']]}\n" in got.stderr
    assert "note: 2 documents of Job ci/build-42" in got.stderr
    assert "differ" in got.stderr
    assert "another writer" not in got.stderr
    assert run("verify", "-n", "ci").exit_code == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (lambda: b"[" * 400 + b"]" * 400, "nested too deeply: expected at most 150 levels"),
        (lambda: b'{"x":[%s0]}' % (b"0," * JSON_VALUES_MAX), f"expected JSON of at most {JSON_VALUES_MAX} values"),
        (lambda: b" " * (OBJECT_BYTES_MAX + 1), f"expected at most {OBJECT_BYTES_MAX}"),
    ],
    ids=["deep", "many-values", "large"],
)
def test_document_beyond_a_limit_is_damaged(run: Run, folder: Path, text: Callable[[], bytes], problem: str) -> None:
    """The digest in its key is right, so that only the limits find it."""
    obj = text()
    key = key_of(job(), digest_of(obj), cluster="default", day=NOW.date())
    path = folder / key.path
    path.parent.mkdir(parents=True)
    path.write_bytes(compress(Record(archived_at=NOW).model_dump_json(by_alias=True).encode() + b"\n" + obj))
    result = run("verify", "-n", "ci")
    assert (result.exit_code, "1 document verified, 1 damaged" in result.stdout) == (1, True)
    assert problem in " ".join(result.stdout.split())
    got = run("get", "job/build-42", "-n", "ci")
    assert got.exit_code == 1
    assert problem in " ".join(got.output.split())
    assert "Traceback" not in got.output
    assert path.exists()


@pytest.fixture
def dated(monkeypatch: pytest.MonkeyPatch) -> FakeArchive:
    """An archive with objects of several ages, whose clock shows NOW."""
    archive = FakeArchive()
    for name, days in (("old", 9), ("new", 0), ("newer", 1)):
        archive.add(job(name=name), at=NOW - days * DAY)
    monkeypatch.setattr(source, "open_destination", lambda *_: archive)
    return archive


def names(archive: FakeArchive) -> set[str]:
    return {parse_key(path).name for path in archive.documents}


def test_prune_deletes_what_is_older_than_keep(run: Run, dated: FakeArchive) -> None:
    tried = run("prune", "--dry-run", keep="7d")
    assert tried.exit_code == 0, tried.output
    assert tried.stdout.startswith("1 file (")
    assert tried.stdout.endswith("older than 7d; dry run: nothing is deleted\n")
    refused = run("prune", "--unchecked", keep="7d")
    assert (refused.exit_code, "set --yes" in refused.stderr) == (1, True)
    assert len(dated.documents) == 3
    done = run("prune", "--yes", "--unchecked", keep="7d")
    assert done.exit_code == 0, done.output
    assert names(dated) == {"new", "newer"}


def test_prune_of_an_archive_that_cannot_be_checked_needs_a_word(run: Run, dated: FakeArchive) -> None:
    refused = run("prune", "--yes", keep="7d")
    assert refused.exit_code == 1
    assert "was not checked: no cluster is configured; nothing was deleted: set --unchecked" in refused.stderr
    assert len(dated.documents) == 3


def test_prune_deletes_most_of_an_archive_only_if_asked(run: Run, dated: FakeArchive) -> None:
    refused = run("prune", "--yes", "--unchecked", "--keep", "12h")
    assert (refused.exit_code, "set --all" in refused.stderr, len(dated.documents)) == (1, True, 3)
    tried = run("prune", "--dry-run", "--keep", "12h")
    assert tried.stdout.startswith("2 files (")
    assert (tried.exit_code, "needs --all" in tried.stderr) == (1, True)
    assert run("prune", "--yes", "--unchecked", "--all", "--keep", "12h").exit_code == 0
    assert names(dated) == {"new"}


def test_prune_needs_no_cluster_and_deletes_of_all(run: Run, dated: FakeArchive) -> None:
    dated.add(job(name="old"), at=NOW - 9 * DAY, cluster="staging")
    done = run("prune", "--yes", "--unchecked", keep="7d")
    assert done.exit_code == 0, done.output
    assert names(dated) == {"new", "newer"}


def test_verify_names_the_namespace_in_which_it_found_no_document(run: Run, store: Callable[..., Path]) -> None:
    store(job(namespace="ci"))

    for words, what in (((), "object"), (("job",), "such object"), (("job/build-42",), "such object of this name")):
        result = run("verify", *words)
        assert (result.exit_code, result.stdout) == (0, "")
        message = f"archive main has no {what} in namespace default; to look in all namespaces, set -A"
        assert result.stderr.splitlines()[-1] == message
    of_no_namespace = run("verify", "certificatesigningrequests")
    assert of_no_namespace.stderr.splitlines()[-1] == "archive main has no such object"
    everywhere = run("verify", "-A", "--since", "1d")
    assert everywhere.stderr.splitlines()[-1] == "archive main has no object that finished since then"
    assert run("verify", "-A").stdout == "1 document verified, 0 damaged\n"


def test_prune_says_that_an_archive_is_empty(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "open_destination", lambda *_: FakeArchive())
    result = run("prune", "--yes", keep="7d")
    assert (result.exit_code, "archive main is empty" in result.stderr) == (0, True)


def test_prune_deletes_nothing_if_the_archive_cannot_be_listed(run: Run, dated: FakeArchive) -> None:
    dated.failure = TryLaterError("away")
    assert run("prune", "--yes", "--unchecked", keep="7d").exit_code == 1
    assert len(dated.documents) == 3


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("prune",), 1, "archive main has no `keep`, so its documents are kept for ever"),
        (("prune", "--keep", "0"), 2, "expected more than 0"),
        (("prune", "--keep", "soon"), 2, "expected seconds"),
        (("lifecycle", "--keep", "7d"), 1, "a folder has no lifecycle rules: run `archive prune` regularly"),
        (("verify", "jbo"), 1, "unknown kind 'jbo'"),
    ],
)
def test_retention_commands_explain_what_is_wrong(
    run: Run, store: Callable[..., Path], words: tuple[str, ...], code: int, problem: str
) -> None:
    store(job())
    result = run(*words)
    assert (result.exit_code, problem in result.stderr) == (code, True), result.stderr


def test_lifecycle_prints_the_rule_and_its_command(run: Run) -> None:
    result = run("lifecycle", url="s3://bucket/prefix?region=eu-central-1", keep="90d")
    assert result.exit_code == 0, result.output
    (rule,) = json.loads(result.stdout)["Rules"]
    assert (rule["Filter"], rule["Expiration"]) == ({"Prefix": "prefix/v1/"}, {"Days": 90})
    assert "aws s3api put-bucket-lifecycle-configuration --bucket bucket" in result.stderr
    assert "--region eu-central-1" in result.stderr
    assert "in place of all rules of bucket bucket:" in result.stderr
    assert run("lifecycle", "-o", "xml", url="s3://bucket", keep="90d").stdout.startswith("<?xml")


def test_lifecycle_names_the_storage_account_whose_rules_the_command_replaces(run: Run) -> None:
    result = run("lifecycle", url="az://container/prefix?account=me", keep="90d")
    assert result.exit_code == 0, result.output
    assert "in place of all rules of storage account me, for all its containers:" in result.stderr
