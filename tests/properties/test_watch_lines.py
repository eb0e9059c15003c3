"""Lines of a watch: what is read of any object equals the reading of the standard library."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.adapters.kubernetes.cluster import parse_watch_line
from shared.core.values.objects import ref_of
from tests.builders import JOB

TEXT = st.text(alphabet='"\\{}[],:aé\U0001f600\n\ud800<', max_size=6)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)
METADATA = st.fixed_dictionaries(
    {"uid": TEXT, "name": TEXT},
    optional={"namespace": TEXT | st.none(), "resourceVersion": TEXT | st.none(), "labels": ANY},
)
OBJECTS = st.fixed_dictionaries(
    {"metadata": METADATA},
    optional={"apiVersion": st.sampled_from(["batch/v1", "v1"]), "kind": st.just("Job"), "status": ANY, "spec": ANY},
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "OTHER"]), OBJECTS, st.booleans(), st.booleans())
def test_a_line_is_read_as_by_the_standard_library(kind, obj, is_ascii, is_object_first):
    line = {"object": obj, "type": kind} if is_object_first else {"type": kind, "object": obj}
    text = json.dumps(line, ensure_ascii=is_ascii).encode(errors="replace")
    change = parse_watch_line(text, JOB)

    read: dict[str, Any] = {**json.loads(text)["object"], "apiVersion": "batch/v1", "kind": "Job"}
    assert change.type == kind
    assert ref_of(change.obj) == ref_of(read)
    assert (change.obj["metadata"].get("resourceVersion") or "") == (read["metadata"].get("resourceVersion") or "")
    if kind != "DELETED":
        assert repr(change.obj) == repr(read)
    if change.raw:
        assert kind in {"ADDED", "MODIFIED"}
        assert repr(json.loads(change.raw)) == repr(change.obj)
