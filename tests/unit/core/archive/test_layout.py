"""Keys: every part comes from the object, and each key is parsed as what it was made of."""

from dataclasses import replace
from datetime import date

import pytest

from shared.core.archive.layout import ArchiveKey, is_log, log_path, parse_key, prefix_of, unquote_part

KEY = ArchiveKey("prod", "ci", "batch/v1", "Job", date(2026, 3, 14), "nightly", "uid-1", "42", "a" * 64)
PATH = f"v1/prod/ci/Job.v1.batch/2026-03-14/nightly/uid-1.42.{'a' * 64}.json.zst"


def test_key_has_the_documented_path():
    assert KEY.path == PATH
    assert parse_key(PATH) == KEY
    assert replace(KEY, namespace="", api_version="v1", kind="Node").path.startswith("v1/prod/_/Node.v1/2026-03-14/")
    assert prefix_of("prod", "ci") == "v1/prod/ci/"


@pytest.mark.parametrize("text", ["a/b", "..", ".", "~", "%2F", "a.b", "ü", "a b", "a:b", "\\", "#?&", "\n"])
@pytest.mark.parametrize("field", ["cluster", "namespace", "name", "uid", "resource_version"])
def test_odd_text_is_quoted_and_parsed_again(field, text):
    key = replace(KEY, **{field: text})
    assert parse_key(key.path) == key
    assert key.path.isascii()
    assert key.path.count("/") == PATH.count("/")
    assert not {".", ".."} & {*key.path.split("/")}
    assert unquote_part(replace(KEY, name=text).path.split("/")[5]) == text


@pytest.mark.parametrize(
    "path",
    [
        "",
        "v2" + PATH[2:],
        PATH.removesuffix(".zst"),
        PATH.replace("2026-03-14", "today"),
        PATH.replace("Job.v1.batch", "Job"),
        PATH + "/x",
        "x/" + PATH,
        PATH.replace("a" * 64, "a" * 63),
        PATH.replace("uid-1.", ""),
    ],
)
def test_other_path_is_no_key(path):
    with pytest.raises(ValueError, match=r"expected v1/CLUSTER|Invalid isoformat"):
        parse_key(path)


def test_log_is_beside_the_document_of_its_pod():
    path = log_path(KEY, "main")
    assert path == PATH.removesuffix(".json.zst") + ".main.log.zst"
    assert is_log(path)
    assert not is_log(PATH)
    assert not is_log("v1/other.log.zst")
    assert not is_log(path.replace(".main.log", "..log"))
