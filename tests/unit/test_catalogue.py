"""The kind rules on disk: what cannot be read names the file, the field and what was expected."""

import pytest
import yaml

from shared.adapters.catalogue import KINDS, KindRuleError, read_catalogue

JOB = yaml.safe_load((KINDS / "job.yaml").read_text())


def write(folder, name, document):
    (folder / name).write_text(document if isinstance(document, str) else yaml.safe_dump(document))


def test_the_shipped_rules_are_one_per_kind_and_named_by_their_files():
    catalogue = read_catalogue()

    assert len(catalogue.rules) == len(list(KINDS.glob("*.yaml")))
    for rule in catalogue.rules:
        assert catalogue.get(rule.api_version, rule.kind) is rule


def test_a_folder_of_ones_own(tmp_path):
    write(tmp_path, "job.yaml", JOB)
    write(tmp_path, "notes.txt", "no rule")

    assert [rule.kind for rule in read_catalogue(tmp_path).rules] == ["Job"]


def test_no_rules_at_all(tmp_path):
    assert read_catalogue(tmp_path).rules == ()


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("a: [", "expected YAML"),
        ("", "the document"),
        ("- a", "the document"),
        ("text", "the document"),
        ({}, "apiVersion"),
        ({**JOB, "kind": "job"}, "kind"),
        ({**JOB, "plural": "Jobs/x"}, "plural"),
        ({**JOB, "apiVersion": "batch/one"}, "apiVersion"),
        ({**JOB, "finishedAt": []}, "finishedAt"),
        ({**JOB, "finished": {}}, "finished"),
        ({**JOB, "propagation": "Sideways"}, "propagation"),
        ({**JOB, "ttlSecondsFeild": "spec.x"}, "ttlSecondsFeild"),
    ],
    ids=str,
)
def test_a_file_that_is_no_rule(tmp_path, document, words):
    write(tmp_path, "gizmo.yaml", document)

    with pytest.raises(KindRuleError) as error:
        read_catalogue(tmp_path)

    assert str(error.value).startswith("gizmo.yaml: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "gizmo.yaml").write_bytes(b"kind: \xff\xfe")

    with pytest.raises(KindRuleError, match=r"gizmo\.yaml: "):
        read_catalogue(tmp_path)


def test_a_second_rule_for_a_kind(tmp_path):
    write(tmp_path, "a.yaml", JOB)
    write(tmp_path, "b.yaml", JOB)

    with pytest.raises(KindRuleError, match=r"b\.yaml: a second rule for Job of batch/v1"):
        read_catalogue(tmp_path)
