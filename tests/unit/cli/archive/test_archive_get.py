"""What `archive get` prints, and its errors."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from shared.cli.archive import source
from shared.cli.archive.documents import as_yaml
from shared.cli.main import main
from shared.core.archive.layout import ArchiveKey
from shared.core.values.objects import format_instant
from shared.errors import DamagedDocumentError
from tests.archives import CLUSTER, FakeArchive
from tests.builders import NOW, ago, having, job, pod

Get = Callable[..., Result]


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> FakeArchive:
    archive = FakeArchive()
    monkeypatch.setattr(source, "open_destination", lambda *_: archive)
    return archive


@pytest.fixture
def get(archive: FakeArchive, tmp_path: Path) -> Get:
    """`archive get` in namespace ci."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("{archives: {main: {url: 'file:///archive'}}}")

    def run(*words: str) -> Result:
        return CliRunner().invoke(main, ["archive", "get", *words, "-n", "ci", "--policy", str(policy)])

    return run


def version(text: str, **changes: Any) -> dict[str, Any]:
    return having(job(**changes), "metadata.resourceVersion", text)


def test_get_prints_the_object_as_it_was_stored(get: Get, archive: FakeArchive) -> None:
    obj = having(job(complete=ago(60)), "metadata.managedFields", [{"manager": "kubectl"}])
    archive.add(
        obj, cluster_id=CLUSTER.id, outcome="succeeded", finished_at=ago(60), due_at=NOW, ttl_from="policy rule ci"
    )
    result = get("job/build-42")
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.stdout) == obj
    assert result.stderr == (
        "note: which archive memory:/// is was not checked: no cluster is configured\n"
        "note: archive main: cluster prod.0a1b2c3d; the id of this cluster is unknown\n"
        "Job ci/build-42: resource version 1042, archived 2026-03-14T15:09:26Z, "
        "cluster prod (id 0a1b2c3d-0000-4000-8000-00000000000e), succeeded 2026-03-14T15:08:26Z, "
        "due 2026-03-14T15:09:26Z by policy rule ci\n"
    )
    assert json.loads(get("job/build-42", "-o", "json").stdout) == obj


def test_get_names_the_time_of_the_store_as_ls_does(get: Get, archive: FakeArchive) -> None:
    key = archive.add(job(), at=ago(60)).key.path
    archive.documents[key] = archive.documents[key][0], NOW
    assert f"archived {format_instant(NOW)}" in get("job/build-42").stderr


def test_get_prints_the_newest_of_several_objects_and_names_the_others(get: Get, archive: FakeArchive) -> None:
    archive.add(job(uid="first"), at=ago(60))
    archive.add(job(uid="second"))
    result = get("job/build-42")
    assert yaml.safe_load(result.stdout)["metadata"]["uid"] == "second"
    assert "note: 2 objects of this name are archived; this is the newest, uid second; for" in result.stderr
    assert yaml.safe_load(get("job/build-42", "--uid", "first").stdout)["metadata"]["uid"] == "first"


def test_get_chooses_a_version(get: Get, archive: FakeArchive) -> None:
    archive.add(version("10"), at=NOW - timedelta(days=2))
    archive.add(version("20"), at=NOW)

    def shown(*words: str) -> str:
        text: str = yaml.safe_load(get("job/build-42", *words).stdout)["metadata"]["resourceVersion"]
        return text

    assert shown() == "20"
    assert shown("--resource-version", "10") == "10"
    assert shown("--at", format_instant(NOW - timedelta(days=1))) == "10"


def owned_by(uid: str) -> dict[str, Any]:
    """A Pod with one owner reference."""
    thing = pod()
    thing["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "build-42", "uid": uid, "controller": True}
    ]
    return thing


def test_get_prints_children(get: Get, archive: FakeArchive) -> None:
    child = archive.add(owned_by(job()["metadata"]["uid"]))
    archive.add(job(), children=(child.key.path,))
    assert [one["kind"] for one in yaml.safe_load_all(get("job/build-42", "--children").stdout)] == ["Job", "Pod"]
    listed = json.loads(get("job/build-42", "--children", "-o", "json").stdout)
    assert (listed["kind"], [one["kind"] for one in listed["items"]]) == ("List", ["Job", "Pod"])


@pytest.mark.parametrize("thing", [pod(), owned_by("another")], ids=["no owner", "another owner"])
def test_get_rejects_a_child_of_another_object(get: Get, archive: FakeArchive, thing: dict[str, Any]) -> None:
    child = archive.add(thing, parent=job()["metadata"]["uid"])
    archive.add(job(), children=(child.key.path,))
    result = get("job/build-42", "--children")
    assert (result.exit_code, result.stdout, "is not a child of" in result.stderr) == (1, "", True)


def test_get_rejects_a_document_of_another_object(get: Get, archive: FakeArchive) -> None:
    stored = archive.add(job())
    document, at = archive.documents.pop(stored.key.path)
    archive.documents[replace(stored.key, name="other").path] = document, at
    result = get("job/other")
    assert (result.exit_code, "its object has name 'build-42', expected 'other'" in result.stderr) == (1, True)


def test_get_prints_logs(get: Get, archive: FakeArchive) -> None:
    archive.logs |= {"v1/a.log.zst": b"one\n", "v1/b.log.zst": b"two\xff\n"}
    archive.add(pod(), logs=("v1/a.log.zst", "v1/b.log.zst"))
    result = get("pod/build-42-x7k2p", "--logs")
    assert result.exit_code == 0, result.output
    assert result.stdout_bytes == b"==> v1/a.log.zst <==\none\n==> v1/b.log.zst <==\ntwo\xff\n"


def test_get_without_logs_is_an_error(get: Get, archive: FakeArchive) -> None:
    archive.add(pod())
    result = get("pod/build-42-x7k2p", "--logs")
    assert (result.exit_code, "no logs were archived" in result.stderr) == (1, True)


def test_get_names_the_containers_whose_logs_are_missing(get: Get, archive: FakeArchive) -> None:
    problems = {"ok-jf9xx/main": "refused: pods/log is forbidden"}
    archive.add(pod(), log_problems=problems, with_logs=True)
    result = get("pod/build-42-x7k2p", "--logs")
    assert result.exit_code == 1
    assert "no log of ok-jf9xx/main: refused: pods/log is forbidden\n" in result.stderr
    assert "logs: true" not in result.stderr


def test_get_of_a_damaged_document_says_where_it_is(get: Get, archive: FakeArchive) -> None:
    archive.add(job())

    async def read(_key: ArchiveKey) -> None:
        raise DamagedDocumentError("archive main: file:///x is damaged: its digest is 1, expected 2")

    archive.read = read  # type: ignore[method-assign,assignment]
    result = get("job/build-42")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "file:///x is damaged" in result.stderr


def test_get_prints_the_good_document_beside_a_damaged_one_of_the_same_version(get: Get, archive: FakeArchive) -> None:
    """Two documents of one version differ in their digest, or in their day."""
    good = archive.add(job(), at=ago(60))
    damaged = replace(good.key, digest="0" * 64)
    archive.documents[damaged.path] = archive.documents[good.key.path][0], NOW

    result = get("job/build-42")

    assert (result.exit_code, yaml.safe_load(result.stdout)) == (0, job()), result.stderr
    assert f"note: memory:///{damaged.path} is damaged" in result.stderr
    assert f"document of the same version: {good.location}\n" in result.stderr
    del archive.documents[good.key.path]
    assert (get("job/build-42").exit_code, get("job/build-42").stdout) == (1, "")


FORGED = having(job(), "spec.template.spec", {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]})


@pytest.mark.parametrize("at", [NOW, NOW - timedelta(days=2)])
def test_get_prints_none_of_two_documents_of_one_version_unless_one_is_named(
    get: Get, archive: FakeArchive, at: datetime
) -> None:
    """A writer to the archive can store another document beside that of `archive`, with any day in its key."""
    ours = archive.add(job(), at=ago(60))
    forged = archive.add(FORGED, at=at)

    result = get("job/build-42")

    assert (result.exit_code, result.stdout) == (1, "")
    assert ours.location in result.stderr
    assert forged.location in result.stderr
    assert yaml.safe_load(get("job/build-42", "--digest", ours.key.digest).stdout) == job()
    assert yaml.safe_load(get("job/build-42", "--digest", forged.key.digest).stdout) == FORGED
    assert "digest 0000" in get("job/build-42", "--digest", "0" * 64).stderr
    assert get("job/build-42", "--digest", "0" * 63).exit_code == 2


@pytest.mark.parametrize("at", [NOW, NOW - timedelta(days=2)])
def test_get_prints_no_child_of_which_another_document_of_the_same_version_exists(
    get: Get, archive: FakeArchive, at: datetime
) -> None:
    """A writer to the archive can also change the record of the owner, so that it names the forged child."""
    child = owned_by(job()["metadata"]["uid"])
    forged = archive.add(having(child, "spec.hostPID", True), at=at)
    archive.add(job(), children=(forged.key.path,))
    assert get("job/build-42", "--children").exit_code == 0

    ours = archive.add(child, at=ago(60))
    result = get("job/build-42", "--children")
    assert (result.exit_code, result.stdout) == (1, "")
    assert ours.location in result.stderr
    assert forged.location in result.stderr
    assert get("job/build-42").exit_code == 0

    archive.documents[ours.key.path] = archive.documents[forged.key.path]  # damaged: it has another digest
    assert get("job/build-42", "--children").exit_code == 0


def test_get_prints_a_document_that_is_stored_under_two_days(get: Get, archive: FakeArchive) -> None:
    archive.add(job(), at=ago(60))
    archive.add(job(), at=NOW - timedelta(days=2))
    assert yaml.safe_load(get("job/build-42").stdout) == job()


def test_get_prints_no_other_version_instead_of_a_damaged_one(get: Get, archive: FakeArchive) -> None:
    newest = archive.add(version("20"))
    archive.add(version("10"), at=ago(60))
    archive.documents[newest.key.path] = archive.documents.pop(archive.add(job(name="other")).key.path)

    result = get("job/build-42")

    assert (result.exit_code, result.stdout, "is damaged" in result.stderr) == (1, "", True)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("job/absent",), "job ci/absent is not in the archive"),
        (("jbo/absent",), "unknown kind 'jbo'"),
        (("job/build-42", "--at", "2020-01-01T00:00:00Z"), "no version was archived at or before 2020-01-01T00:00:00Z"),
        (("job/build-42", "--uid", "x"), "none is stored with uid x; stored: uid 6f1f8a52"),
    ],
)
def test_get_explains_what_is_absent(get: Get, archive: FakeArchive, words: tuple[str, ...], problem: str) -> None:
    archive.add(job())
    result = get(*words)
    assert (result.exit_code, problem in result.stderr) == (1, True), result.stderr


def test_get_from_an_empty_archive_is_an_error(get: Get) -> None:
    assert "archive main is empty" in get("job/build-42").stderr


@pytest.mark.parametrize("words", [("job",), ("job", "a", "b"), ("job/a", "--at", "yesterday"), ("job/a", "--uid", "")])
def test_get_rejects_wrong_words(get: Get, words: tuple[str, ...]) -> None:
    assert get(*words).exit_code == 2


@pytest.mark.parametrize(
    "text", ["0o17", "0b11", "1e3", "1_000", "yes", "null", "~", "12:30", "0x1F", "a: b", "# c", "x\ny\n", " x", "é"]
)
def test_yaml_keeps_texts_as_texts(text: str) -> None:
    assert yaml.safe_load(as_yaml({"a": text})) == {"a": text}
    line = as_yaml({"a": text}).removeprefix("a: ").rstrip("\n")
    is_plain = line == text
    assert not is_plain or text == "é"


def test_notes_and_errors_are_wrapped_to_the_terminal(
    get: Get, archive: FakeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.add(job(uid="first"), at=ago(60))
    archive.add(job(uid="second"))
    monkeypatch.setenv("COLUMNS", "60")
    for words in (("job/build-42",), ("job/build-42", "--uid", "x"), ("job/build-42", "--logs")):
        lines = get(*words).stderr.splitlines()
        assert len(lines) > 1
        assert max(map(len, lines)) <= 60
