"""What docs/reference says holds in the code; tests/docs checks that its pages are as the code is."""

import asyncio
from typing import Any

import pytest

from shared.adapters.config.kind_files import read_catalogue
from shared.adapters.config.policy_file import parse_policy
from shared.core.decision.namespaces import DEFAULTS, namespace_of
from shared.core.ttl.annotations import OF_NAMESPACES, OF_OBJECTS
from shared.core.ttl.ttl import TTL_ANNOTATIONS, annotated_ttl
from shared.core.values.objects import ANNOTATION_DOMAIN
from shared.ports import EventReason, HandlingReason
from tests.reference.metrics import LABELS, collect, read_alerts
from tests.reference.pages import FOLDER
from tests.reference.policy import EXAMPLE


def test_example_of_a_policy_is_accepted():
    assert len(parse_policy(EXAMPLE, read_catalogue(), name="policy.yaml").rules) == 2


def test_table_of_annotations_is_complete():
    assert set(TTL_ANNOTATIONS) <= set(OF_OBJECTS)
    assert set(DEFAULTS) <= set(OF_NAMESPACES)


def test_example_of_each_annotation_is_accepted():
    for name in TTL_ANNOTATIONS:
        outcome: Any = name.removeprefix("ttl-") if name.startswith("ttl-") else None
        assert annotated_ttl({name: OF_OBJECTS[name].example}, outcome) is not None, name

    for name, one in OF_NAMESPACES.items():
        annotations = {f"{ANNOTATION_DOMAIN}/{name}": one.example}
        assert namespace_of({"metadata": {"name": "ci", "annotations": annotations}}).problem == "", name


def test_each_alert_has_a_summary_and_a_command():
    for alert in read_alerts():
        assert alert["annotations"]["summary"]
        assert alert["annotations"]["runbook"].startswith("kubectl ttl ")


@pytest.mark.parametrize("enum", [EventReason, HandlingReason])
def test_each_reason_is_used_in_the_code(enum):
    code = "".join(path.read_text() for path in (FOLDER.parents[1] / "shared").rglob("*.py"))

    assert [member for member in enum if f"{enum.__name__}.{member.name}" not in code] == []


def test_each_label_of_a_metric_is_described_and_each_description_is_used():
    used = {label for _, _, labels, _ in asyncio.run(collect()) for label in labels}

    assert used == set(LABELS)
