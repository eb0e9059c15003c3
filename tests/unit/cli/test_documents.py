"""A YAML file of objects: read one document at a time, strictly, and without a stack that overflows."""

import io
import re
import subprocess

import pytest

from shared.cli.input import documents
from shared.cli.input.documents import read_documents
from shared.core.values.jsontext import JSON_DEPTH_MAX
from shared.errors import TtlError
from tests.builders import ROOT

JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n"


def read(text):
    return list(read_documents(io.StringIO(text), "file"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (JOB, ["a"]),
        (f"---\n{JOB}---\n---\n# nothing\n--- # and again\n{JOB}...\n", ["a", "a"]),
        (f"%YAML 1.1\n---\n{JOB}", ["a"]),
        (f"# a comment first\n\n---\n{JOB}", ["a"]),
        ('{"kind": "JobList", "items": [{"metadata": {"name": "b"}}, {"metadata": {"name": "c"}}]}', ["b", "c"]),
        ("x: &x {name: a}\nmetadata: *x\n", ["a"]),
        ("x: &x {name: a}\nmetadata: {<<: *x, name: b}\n", ["b"]),
    ],
)
def test_each_document_is_an_object_or_a_list_of_them(text, names):
    assert [one["metadata"]["name"] for one in read(text)] == names


@pytest.mark.parametrize("text", ['{"a": 1, "b": {"c": 2, "c": 3}}', "b: {c: 2, c: 3}", "b:\n  ? [x]\n  : 1"])
def test_key_that_is_duplicate_or_a_list_is_rejected_in_json_and_yaml(text):
    with pytest.raises(
        TtlError, match=r"file, document 1: invalid YAML at line \d: .*('c' twice in one mapping|as a key, got a list)"
    ):
        read(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": "\\/", "b": 1e3,\t"c": "2026-01-02"}', {"a": "/", "b": 1000.0, "c": "2026-01-02"}),
        ("{a: NaN, b: no}", {"a": "NaN", "b": False}),
        ('{"a": NaN}', {"a": "NaN"}),
        ("a: !!str 5\nb: !!int '5'\nc: ! 5", {"a": "5", "b": 5, "c": "5"}),
        ("a: &a 5\nb: *a", {"a": 5, "b": 5}),
        ("b: {<<: [{x: 1, y: 1}, {x: 2, z: 2}], z: 3}", {"b": {"x": 1, "y": 1, "z": 3}}),
        ("b: {'<<': 1, a: }", {"b": {"<<": 1, "a": None}}),
    ],
)
def test_json_is_read_as_json_and_yaml_with_its_tags_aliases_and_merges(text, expected):
    assert read(text) == [expected]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: *nothing", "alias 'nothing'"),
        ("a: &x [*x]", "alias 'x'"),
        ("a: &x 1\nb: &x 2", "anchor 'x' twice"),
        ("a: {<<: 5}", "`<<` without a mapping"),
        ("a: !!python/name:os.system x", "could not determine a constructor"),
    ],
)
def test_invalid_yaml_is_rejected(text, problem):
    with pytest.raises(TtlError, match=f"file, document 1: invalid YAML at line [12]: .*{re.escape(problem)}"):
        read(text)


def test_json_that_is_too_deep_is_rejected():
    levels = JSON_DEPTH_MAX + 3
    with pytest.raises(TtlError, match=f"expected at most {JSON_DEPTH_MAX} levels in one object"):
        read(f'{{"a": {"[" * levels}{"]" * levels}}}')
    with pytest.raises(TtlError):
        read(f'{{"a": {"[" * 200_000}{"]" * 200_000}}}')


def test_times_are_text_and_numbers_are_numbers():
    assert read("a: 2026-01-02T03:04:05Z\nb: 3\nc: yes\nd: null\ne: 1.5\nf: '3'\n") == [
        {"a": "2026-01-02T03:04:05Z", "b": 3, "c": True, "d": None, "e": 1.5, "f": "3"}
    ]


def deep(levels, kind):
    if kind == "flow":
        return f"a: {'[' * levels}{']' * levels}"
    if kind == "compact":
        return f"a:\n{'- ' * levels}x"
    return "\n".join(f"{' ' * level}a:" for level in range(levels))


@pytest.mark.parametrize("levels", [JSON_DEPTH_MAX + 3, 20_000])
@pytest.mark.parametrize("kind", ["flow", "compact", "block"])
def test_document_that_is_too_deep_is_rejected_before_the_stack_overflows(levels, kind):
    levels = min(levels, 3_000) if kind == "block" else levels  # its indentation alone is megabytes
    with pytest.raises(TtlError, match=f"^file, document 2 at line 4: expected at most {JSON_DEPTH_MAX} levels"):
        read(f"{JOB}---\n{deep(levels, kind)}\n")


@pytest.mark.parametrize("kind", ["flow", "compact", "block"])
def test_document_of_many_levels_is_read(kind):
    assert len(read(f"{deep(JSON_DEPTH_MAX - 1, kind)}\n")) == 1


def test_aliases_with_billions_of_values_are_rejected():
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    with pytest.raises(TtlError, match=r"^file, document 1 at line 1: expected at most .* values, with each alias"):
        read(f"a0: &a0 [x]\n{levels}")


def test_alias_of_itself_is_rejected():
    with pytest.raises(TtlError, match=r"^file, document 1: invalid YAML at line 1: "):
        read("a: &a [*a]\n")


@pytest.mark.parametrize("text", ["a: 1\na: 2\n", "x: {b: 1, b: 2}\n"])
def test_duplicate_key_is_rejected(text):
    with pytest.raises(TtlError, match=r"^file, document 2: invalid YAML at line \d+: '[ab]' twice in one mapping"):
        read(f"{JOB}---\n{text}")


@pytest.mark.parametrize("text", ["a: [b", "? [a]\n: b", "- a", "a: !!python/object:os.system x", "a: \x00"])
def test_document_that_is_no_object_is_rejected(text):
    with pytest.raises(TtlError, match=r"^file") as error:
        read(text)
    assert "\n" not in str(error.value)


def test_document_that_is_too_large_is_rejected_while_it_is_read(monkeypatch):
    monkeypatch.setattr(documents, "DOCUMENT_MAX", 1_000)
    endless = (f"k{number}: v\n" for number in iter(int, 1))
    with pytest.raises(TtlError, match=r"^file: expected at most 1000 characters in one document, got more"):
        list(read_documents(endless, "file"))


def test_documents_are_yielded_while_the_file_is_read():
    stream = iter([*JOB.splitlines(keepends=True), "---\n"])
    assert next(read_documents(stream, "file"))["kind"] == "Job"


def test_make_help_lists_every_target_that_is_described():
    text = (ROOT / "Makefile").read_text()
    described = set(re.findall(r"^([^\s:]+):.*## ", text, re.MULTILINE))
    # Below another make, as in `make test`, make would also print the directories that it enters and leaves.
    command = ["make", "--no-print-directory", "help"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert {line.split()[1] for line in printed.splitlines()} == described
    assert "e2e" in described


def test_invalid_yaml_names_the_line_of_the_file_and_what_was_expected():
    with pytest.raises(TtlError, match=r"^file, document 2: invalid YAML at line 5: did not find expected ',"):
        read("a: 1\n---\nb: 2\nc: [d\n")
    with pytest.raises(TtlError, match=r"^file, document 1: invalid YAML at line 2: expected a value of !!int"):
        read("a: 1\nb: !!int x\n")
    with pytest.raises(TtlError, match=r"^file, document 1 at line 1: expected a Kubernetes object, got a list$"):
        read("- a\n")
    with pytest.raises(TtlError, match=r"^file, document 1 at line 1: expected a Kubernetes object, got a text$"):
        read("07401b.f395accd246ae52d\n")
