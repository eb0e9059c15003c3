from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from shared.core.values.objects import (
    ObjectRef,
    format_instant,
    get_annotations,
    get_controller,
    get_in,
    get_text,
    list_mappings,
    parse_instant,
    quote,
    ref_of,
)
from tests.builders import NOW, job, not_none, owned_by

OBJ: dict[str, Any] = {
    "a": {"b": {"c": 1}, "null": None, "text": "x", "empty": "", "list": [{"i": 1}, None, "x", 7, [], {"i": 2}]}
}

# Values that a field can have in place of a map.
NO_MAPS = {"null": None, "text": "x", "a number": 7, "true": True, "a list": [{"a": 1}], "nan": float("nan")}


class TestFields:
    @pytest.mark.parametrize(
        ("path", "value"),
        [("a.b.c", 1), ("a.b", {"c": 1}), ("a.null", None), ("a.x", None), ("x", None), ("a.b.c.d", None), ("", None)],
    )
    def test_get_in_returns_the_value_or_none(self, path, value):
        assert get_in(OBJ, path) == value

    @pytest.mark.parametrize("obj", NO_MAPS.values(), ids=NO_MAPS)
    def test_value_that_is_no_map_has_no_fields(self, obj):
        assert get_in(obj, "a") is None
        assert get_in({"a": obj}, "a.b") is None
        assert get_text(obj, "a") == ""
        assert list(list_mappings(obj, "a")) == []
        assert get_annotations({"metadata": obj}) == {}
        assert get_controller({"metadata": obj}) is None
        assert ref_of(obj) == ObjectRef("", "", "", "", "")

    @pytest.mark.parametrize(("path", "text"), [("a.text", "x"), ("a.empty", ""), ("a.null", ""), ("a.b.c", "")])
    def test_get_text_returns_the_text_or_an_empty_one(self, path, text):
        assert get_text(OBJ, path) == text

    def test_list_mappings_skips_other_elements(self):
        assert list(list_mappings(OBJ, "a.list")) == [{"i": 1}, {"i": 2}]
        assert list(list_mappings(OBJ, "a.b")) == []
        assert list(list_mappings(OBJ, "a.text")) == []


class TestIdentity:
    def test_ref_of_an_object_has_its_identity(self):
        assert ref_of(job(uid="1")) == ObjectRef("batch/v1", "Job", "ci", "build-42", "1")

    def test_ref_of_an_incomplete_object_has_empty_parts(self):
        assert ref_of({"kind": "Job", "metadata": {"name": 7}}) == ObjectRef("", "Job", "", "", "")

    def test_ref_as_text_is_kind_namespace_and_name(self):
        assert str(ObjectRef("batch/v1", "Job", "ci", "build-42", "1")) == "Job ci/build-42"
        assert str(ObjectRef("ops.crossplane.io/v1alpha1", "Operation", "", "backup", "1")) == "Operation backup"

    def test_controller_is_an_owner_in_the_same_namespace(self):
        assert get_controller(owned_by(job(), "CronJob")) == ObjectRef(
            "batch/v1", "CronJob", "ci", "owner", "owner-uid"
        )

    def test_owner_without_the_controller_flag_is_no_controller(self):
        assert get_controller(job()) is None
        assert get_controller(owned_by(job(), "CronJob", controller=False)) is None

    def test_controller_is_found_among_other_owners(self):
        obj = owned_by(job(), "CronJob")
        others = [None, {}, {"kind": "Tenant", "name": "t", "uid": "t"}, {"kind": "X", "controller": "true"}]
        obj["metadata"]["ownerReferences"][:0] = others

        assert not_none(get_controller(obj)).kind == "CronJob"


class TestAnnotations:
    def test_annotations_of_the_domain_are_returned_without_it(self):
        annotations = {
            "ttlafterfinished.dev/ttl": "1h",
            "ttlafterfinished.dev/": "",
            "ttlafterfinished.dev": "x",
            "ttlafterfinished.dev.evil.org/ttl": "0",
            "x-ttlafterfinished.dev/ttl": "0",
            "ttl": "0",
        }

        assert get_annotations({"metadata": {"annotations": annotations}}) == {"ttl": "1h", "": ""}

    @pytest.mark.parametrize("annotations", NO_MAPS.values(), ids=NO_MAPS)
    def test_annotations_that_are_no_map_count_as_none(self, annotations):
        assert get_annotations({"metadata": {"annotations": annotations}}) == {}


class TestInstants:
    @pytest.mark.parametrize(
        ("text", "instant"),
        [
            ("2026-03-14T15:09:26Z", NOW),
            ("2026-03-14T15:09:26+00:00", NOW),
            ("2026-03-14T15:09:26-00:00", NOW),
            ("2026-03-14T16:39:26+01:30", NOW),
            ("2026-03-14T01:09:26-14:00", NOW),
            ("2026-03-14T15:09:26.5Z", NOW + timedelta(milliseconds=500)),
            ("2026-03-14T15:09:26.123456Z", NOW + timedelta(microseconds=123_456)),
            ("2026-03-14T15:09:26.123456789Z", NOW + timedelta(microseconds=123_456)),
            ("0001-01-01T00:00:00Z", datetime.min.replace(tzinfo=UTC)),
            ("9999-12-31T23:59:59.999999Z", datetime.max.replace(tzinfo=UTC)),
            ("2024-02-29T00:00:00Z", datetime(2024, 2, 29, tzinfo=UTC)),
        ],
    )
    def test_valid_instant_is_read(self, text, instant):
        assert parse_instant(text) == instant
        assert parse_instant(text).tzinfo is UTC

    @pytest.mark.parametrize(
        "value",
        [
            "",
            "T",
            "Tuesday",
            "2026-03-14",
            "2026-03-14 15:09:26Z",
            "2026-03-14T15:09:26",
            "2026-03-14T15:09:26Z ",
            "2026-03-14T15:09:26Z\n",
            "2026-03-14T15:09:26 UTC",
            "2026-03-14T15:09:26+25:00",
            "2026-13-01T00:00:00Z",
            "2025-02-29T00:00:00Z",
            "2026-03-14T15:60:00Z",
            "2026-03-14T23:59:60Z",
            "10000-01-01T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "-2026-03-14T15:09:26Z",
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "202\u0666-03-14T15:09:26Z",
            "\ud800T\ud800",
            "2026-03-14T\x00",
            None,
            True,
            1773500966,
            10**5000,
            float("nan"),
            float("inf"),
            b"2026-03-14T15:09:26Z",
            "2026-03-14T24:00:00Z",
            "2026-03-14T15:09:26+00:99",
            NOW,
            [],
            {},
        ],
        ids=lambda value: ascii(value) if isinstance(value, str) else type(value).__name__,
    )
    def test_malformed_instant_is_rejected(self, value):
        with pytest.raises(ValueError, match=r"^expected an RFC 3339 time"):
            parse_instant(value)

    @pytest.mark.parametrize(
        ("instant", "text"),
        [
            (NOW, "2026-03-14T15:09:26Z"),
            (NOW + timedelta(microseconds=5), "2026-03-14T15:09:26.000005Z"),
            (datetime(2026, 3, 14, 16, 9, 26, tzinfo=timezone(timedelta(hours=1))), "2026-03-14T15:09:26Z"),
            (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
        ],
        ids=["seconds", "a fraction", "another zone", "the year 1"],
    )
    def test_instant_is_written_in_utc(self, instant, text):
        assert format_instant(instant) == text


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


class TestQuotes:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("soon", "'soon'"),
            ("a\nb\ud800", r"'a\nb\ud800'"),
            ("x" * 64, f"'{'x' * 64}'"),
            ("x" * 65, f"'{'x' * 64}...'"),
            (None, "null"),
            (True, "true"),
            (-1, "-1"),
            (2**64 - 1, "18446744073709551615"),
            (2**64, "a value of type int"),
            (10**5000, "a value of type int"),
            (1.5, "1.5"),
            (float("nan"), "nan"),
            ([], "a list"),
            (nested(100_000), "a list"),
            ({"a": 1}, "a mapping"),
        ],
        ids=lambda value: value[:20] if isinstance(value, str) else type(value).__name__,
    )
    def test_quote_of_any_value_is_short(self, value, text):
        assert quote(value) == text
