"""What `archive ls` prints, and its errors."""

import json
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shared.adapters.clock import SystemClock
from shared.cli.archive import source
from shared.cli.main import main
from shared.errors import ForbiddenError, TryLaterError
from tests.archives import FakeArchive
from tests.builders import having, job, pod

Ls = Callable[..., Result]
UNCHECKED = "note: which archive memory:/// is was not checked: no cluster is configured\n"
POLICY = "{archives: {main: {url: 'file:///archive'}}, rules: []}"


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> FakeArchive:
    archive = FakeArchive(page=2)
    monkeypatch.setattr(source, "open_destination", lambda *_: archive)
    return archive


@pytest.fixture
def ls(archive: FakeArchive, tmp_path: Path) -> Ls:
    """`archive ls` in namespace ci."""
    policy = tmp_path / "policy.yaml"

    def run(*words: str, text: str = POLICY, place: Sequence[str] = ("-n", "ci")) -> Result:
        policy.write_text(text)
        return CliRunner().invoke(main, ["archive", "ls", *words, *place, "--policy", str(policy)])

    return run


def test_ls_prints_the_documented_json(ls: Ls, archive: FakeArchive) -> None:
    stored = archive.add(job())
    result = ls("-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": "ci",
            "name": "build-42",
            "uid": "6f1f8a52-0c7e-4c53-9f0e-0d9a3c1b7e11",
            "resourceVersion": "1042",
            "archivedAt": "2026-03-14T15:09:26Z",
            "digest": stored.key.digest,
            "cluster": "prod.0a1b2c3d",
            "location": stored.location,
        }
    ]


def test_ls_prints_all_pages_as_one_list(ls: Ls, archive: FakeArchive) -> None:
    for number in range(5):
        archive.add(job(name=f"job-{number}"))
    assert [one["name"] for one in json.loads(ls("-o", "json").stdout)] == [f"job-{n}" for n in range(5)]
    assert archive.calls["read"] == 0


def test_ls_prints_an_empty_list(ls: Ls, archive: FakeArchive) -> None:
    empty = ls("-o", "json")
    assert (empty.exit_code, json.loads(empty.stdout), empty.stderr) == (0, [], f"{UNCHECKED}archive main is empty\n")
    archive.add(job(namespace="web"))
    other = ls("-o", "json")
    assert (other.exit_code, json.loads(other.stdout)) == (0, [])
    assert other.stderr == (
        f"{UNCHECKED}note: archive main: cluster prod.0a1b2c3d; the id of this cluster is unknown\n"
        "archive main has no object in namespace ci; to look in all namespaces, set -A\n"
    )


def test_ls_prints_names_as_kubectl_does(ls: Ls, archive: FakeArchive) -> None:
    archive.add(job())
    archive.add(pod())
    assert ls("-o", "name").stdout.splitlines() == ["job.batch/build-42", "pod/build-42-x7k2p"]


def test_ls_prints_a_table(ls: Ls, archive: FakeArchive) -> None:
    archive.add(job())
    archive.add(pod())
    archive.add(job(namespace="web"))
    assert ls().stdout.splitlines() == [
        "KIND  NAME            VERSION  ARCHIVED",
        "Job   build-42        1042     2026-03-14T15:09:26Z",
        "Pod   build-42-x7k2p  1042     2026-03-14T15:09:26Z",
    ]
    assert (
        ls("-A", place=()).stdout.splitlines()[-1] == "web        Job   build-42        1042     2026-03-14T15:09:26Z"
    )


def test_ls_fits_the_terminal(ls: Ls, archive: FakeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for number in range(3):
        archive.add(having(job(name=f"nightly-{'x' * 60}-{number}", namespace="n" * 60), "kind", "K" * 40))
    lines = ls("-A", place=()).stdout.splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80
    assert all("…" in line for line in lines[1:])


def test_ls_shortens_no_name_of_a_later_page_while_its_line_fits(
    ls: Ls, archive: FakeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = ["a", "b", "c", f"d{'x' * 40}", "e", f"f{'x' * 70}"]
    for name in names:
        archive.add(job(name=name))
    shown = [line.split()[1] for line in ls().stdout.splitlines()[1:]]
    assert shown[:-1] == names[:-1]
    assert "…" in shown[-1]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["job"], ["build-42", "build-43"]),
        (["jobs.batch"], ["build-42", "build-43"]),
        (["job/build-42"], ["build-42"]),
        (["job", "build-42"], ["build-42"]),
        (["pods"], ["build-42-x7k2p"]),
        (["render"], ["scene"]),
        (["Render.example.com"], ["scene"]),
        (["csr"], ["node-1"]),
    ],
)
def test_ls_selects_kinds_and_names(ls: Ls, archive: FakeArchive, words: list[str], names: list[str]) -> None:
    for obj in (job(), job(name="build-43"), pod()):
        archive.add(obj)
    archive.add(having(having(job(name="scene"), "kind", "Render"), "apiVersion", "example.com/v1"))
    request = having(job(name="node-1", namespace=""), "kind", "CertificateSigningRequest")
    archive.add(having(request, "apiVersion", "certificates.k8s.io/v1"))
    result = ls(*words, "-o", "json")
    assert result.exit_code == 0, result.output
    assert [one["name"] for one in json.loads(result.stdout)] == names


def test_ls_since_counts_days(ls: Ls, archive: FakeArchive) -> None:
    now = SystemClock().now()
    archive.add(job(name="today"), at=now)
    archive.add(job(name="old"), at=now - timedelta(days=9))
    assert [one["name"] for one in json.loads(ls("--since", "2d", "-o", "json").stdout)] == ["today"]


def test_ls_prints_the_pages_that_it_read_before_a_failure(ls: Ls, archive: FakeArchive) -> None:
    archive.add(job())
    archive.failure = TryLaterError("archive main: the store does not answer")
    result = ls()
    assert (result.exit_code, result.stderr) == (1, f"{UNCHECKED}Error: archive main: the store does not answer\n")


def test_ls_without_access_is_an_error(ls: Ls, archive: FakeArchive) -> None:
    archive.failure = ForbiddenError("archive main: 403")
    result = ls()
    assert (result.exit_code, result.stderr) == (1, f"{UNCHECKED}Error: archive main: 403\n")


@pytest.mark.parametrize(
    ("words", "text", "problem"),
    [
        ((), "{rules: []}", "has no archives"),
        (("--archive", "other"), POLICY, "unknown archive 'other'; expected one of main"),
        ((), "{archives: {a: {url: 'file:///a'}, b: {url: 'file:///b'}}}", "several archives.*--archive: a, b"),
        ((), "{archives: {t: {native: tekton-results}}}", "archive t is stored by Tekton Results"),
        (("--archive", "w"), "{archives: {w: {webhook: 'https://a'}}}", "archive w is stored by its webhook"),
        (("jbo",), POLICY, "unknown kind 'jbo': expected a kind, perhaps"),
        (("--cluster", "test"), POLICY, "has no cluster 'test'; expected one of prod.0a1b2c3d"),
    ],
)
def test_ls_explains_what_is_wrong(
    ls: Ls, archive: FakeArchive, words: tuple[str, ...], text: str, problem: str
) -> None:
    archive.add(job())
    result = ls(*words, text=text)
    assert result.exit_code == 1
    assert re.search(problem, result.stderr), result.stderr


def test_ls_needs_a_cluster_if_the_archive_has_several(ls: Ls, archive: FakeArchive) -> None:
    archive.add(job())
    archive.add(job(name="other"), cluster="test.00000001")
    archive.add(job(name="third"), cluster="test.00000002")
    several = "several clusters: choose one with --cluster: prod.0a1b2c3d, test.00000001, test.00000002"
    assert several in ls().stderr
    assert "choose one with --cluster: test.00000001, test.00000002" in ls("--cluster", "test").stderr
    for word, name in (("test.00000001", "other"), ("prod", "build-42")):
        assert [one["name"] for one in json.loads(ls("--cluster", word, "-o", "json").stdout)] == [name]


def test_ls_names_documents_without_the_id_of_a_cluster(ls: Ls, archive: FakeArchive) -> None:
    """A version before ids stored them, under the name of the cluster alone."""
    archive.add(job(name="old"), cluster="default")
    result = ls("-o", "json")
    assert [one["name"] for one in json.loads(result.stdout)] == ["old"]
    assert "cluster default; a version before ids stored its documents, so it is unknown" in result.stderr

    archive.add(job(name="new"), cluster="default.0a1b2c3d")

    result = ls("-o", "json", "--cluster", "default.0a1b2c3d")
    assert [one["name"] for one in json.loads(result.stdout)] == ["new"]
    assert "without the id of a cluster" in result.stderr
    assert "--cluster selects them: default\n" in result.stderr
    assert [one["name"] for one in json.loads(ls("-o", "json", "--cluster", "default").stdout)] == ["old"]


@pytest.mark.parametrize("words", [("--since", "soon"), ("-A",), ("job/a/b",), ("job", "a", "b"), ("-o", "text")])
def test_ls_rejects_wrong_words(ls: Ls, words: tuple[str, ...]) -> None:
    assert ls(*words).exit_code == 2


def test_ls_without_a_policy_needs_one() -> None:
    result = CliRunner().invoke(main, ["archive", "ls", "--policy", "none"])
    assert (result.exit_code, "has no archives" in result.stderr) == (1, True)
