"""The source of a TTL, and when an object is due by it; test_decide tests the precedence of sources."""

from datetime import UTC, datetime, timedelta

import pytest

from shared.core.kinds.rule import Outcome
from shared.core.ttl.ttl import InvalidTtlError, Ttl, find_ttl
from tests.builders import JOB, NOW, POD, ago, annotated, having, job, later, not_none, pod

HOUR = timedelta(hours=1)


class TestSource:
    @pytest.mark.parametrize(
        ("annotations", "outcome", "source"),
        [
            pytest.param({}, Outcome.SUCCEEDED, "spec.ttlSecondsAfterFinished", id="the field"),
            pytest.param({"ttl": "1h"}, Outcome.SUCCEEDED, "ttlafterfinished.dev/ttl", id="ttl"),
            pytest.param({"ttl": "never"}, Outcome.SUCCEEDED, "ttlafterfinished.dev/ttl", id="never"),
            pytest.param({"ttl": "1h"}, None, "ttlafterfinished.dev/ttl", id="ttl, outcome unknown"),
            pytest.param(
                {"ttl": "1h", "ttl_failed": "2h"}, Outcome.FAILED, "ttlafterfinished.dev/ttl-failed", id="ttl-failed"
            ),
            pytest.param(
                {"ttl": "1h", "ttl_succeeded": "2h"},
                Outcome.SUCCEEDED,
                "ttlafterfinished.dev/ttl-succeeded",
                id="ttl-succeeded",
            ),
            pytest.param(
                {"ttl": "1h", "ttl_succeeded": "2h", "ttl_failed": "3h"},
                None,
                "ttlafterfinished.dev/ttl",
                id="neither outcome's, outcome unknown",
            ),
            pytest.param(
                {"ttl": "1h", "expire_at": NOW}, Outcome.FAILED, "ttlafterfinished.dev/expire-at", id="expire-at"
            ),
        ],
    )
    def test_ttl_names_its_source(self, annotations, outcome, source):
        assert not_none(find_ttl(annotated(job(ttl=0), **annotations), JOB, outcome)).source == source

    @pytest.mark.parametrize("outcome", [None, *Outcome])
    def test_object_without_a_source_has_no_ttl(self, outcome):
        assert find_ttl(job(), JOB, outcome) is None
        assert find_ttl(having(pod(), "spec.ttlSecondsAfterFinished", 0), POD, outcome) is None

    def test_annotation_of_another_domain_sets_no_ttl(self):
        others = {"ttl": "0", "example.com/ttl": "0", "ttlafterfinished.dev.example.com/ttl": "0"}

        assert find_ttl(having(job(), "metadata.annotations", others), JOB, None) is None

    @pytest.mark.parametrize(
        ("seconds", "expected"),
        [(0, timedelta(0)), (1, timedelta(seconds=1)), (2**31 - 1, timedelta(seconds=2**31 - 1))],
        ids=["zero", "one", "the largest int32"],
    )
    def test_native_field_is_read_in_seconds(self, seconds, expected):
        assert find_ttl(job(ttl=seconds), JOB, None) == Ttl(
            "spec.ttlSecondsAfterFinished", after=expected, origin="native"
        )

    def test_native_field_of_more_than_a_century_is_rejected(self):
        century = 36_500 * 86_400

        assert not_none(find_ttl(job(ttl=century), JOB, None)).after == timedelta(days=36_500)
        with pytest.raises(InvalidTtlError, match=f"from 0 to {century}, got {century + 1}"):
            find_ttl(job(ttl=century + 1), JOB, None)

    @pytest.mark.parametrize("name", ["ttl", "ttl-succeeded", "ttl-failed", "expire-at"])
    @pytest.mark.parametrize("outcome", [None, *Outcome])
    def test_malformed_annotation_is_an_error_for_any_outcome(self, name, outcome):
        with pytest.raises(InvalidTtlError, match=f"^annotation ttlafterfinished.dev/{name}: expected .*'soon'"):
            find_ttl(annotated(job(ttl=0), **{name: "soon"}), JOB, outcome)


class TestDue:
    @pytest.mark.parametrize(
        ("ttl", "finished_at", "due_at"),
        [
            pytest.param(Ttl("", after=HOUR), NOW, NOW + HOUR, id="finish and ttl"),
            pytest.param(Ttl("", after=timedelta(0)), NOW, NOW, id="a ttl of zero"),
            pytest.param(Ttl("", after=HOUR), None, None, id="a ttl without a finish"),
            pytest.param(Ttl("", at=later(1)), NOW, later(1), id="an instant"),
            pytest.param(Ttl("", at=ago(1)), NOW, NOW, id="an instant before the finish"),
            pytest.param(Ttl("", at=ago(1)), None, ago(1), id="an instant without a finish"),
            pytest.param(Ttl(""), NOW, None, id="never"),
            pytest.param(
                Ttl("", after=HOUR),
                datetime.max.replace(tzinfo=UTC),
                datetime.max.replace(tzinfo=UTC),
                id="beyond the calendar",
            ),
        ],
    )
    def test_due_instant_follows_from_finish_and_ttl(self, ttl, finished_at, due_at):
        assert ttl.due_at(finished_at) == due_at

    def test_ttl_with_a_duration_or_an_instant_is_not_never(self):
        assert Ttl("").is_never
        assert not Ttl("", after=timedelta(0)).is_never
        assert not Ttl("", at=NOW).is_never
