"""The committed pages of docs/reference equal the generated ones, and follow the rules of the language."""

import asyncio
import re

import pytest

from shared.adapters.config.kind_files import read_catalogue
from shared.adapters.config.policy_file import parse_policy
from shared.core.facts import Reason
from shared.core.namespaces import DEFAULTS, namespace_of
from shared.core.objects import ANNOTATION_DOMAIN
from shared.core.ttl.annotations import OF_NAMESPACES, OF_OBJECTS
from shared.core.ttl.ttl import TTL_ANNOTATIONS, annotated_ttl
from shared.core.unused.unused_reasons import UnusedReason
from shared.ports import EventReason, HandlingReason, Verdict
from shared.safeguards.reasons import Safeguard
from tests.reference.metrics import LABELS, collect, read_alerts
from tests.reference.pages import FOLDER, render, render_files
from tests.reference.policy import EXAMPLE
from tests.reference.texts import members

PAGES, OTHERS = render(), render_files()
WORDS = [line.partition("->")[0] for line in (FOLDER.parents[1] / ".codespell-dictionary.txt").read_text().splitlines()]
AVOIDED = re.compile(rf"(?<![-`])\b({'|'.join(WORDS)}|of its own)\b", re.IGNORECASE)


@pytest.mark.parametrize("name", PAGES)
def test_committed_page_equals_the_generated_page(name):
    committed = (FOLDER / name).read_text() if (FOLDER / name).exists() else ""

    assert committed == PAGES[name], f"docs/reference/{name} is stale: run make docs"


@pytest.mark.parametrize("name", OTHERS)
def test_committed_file_equals_the_generated_file(name):
    committed = (FOLDER / name).read_text() if (FOLDER / name).exists() else ""

    assert committed == OTHERS[name], f"docs/reference/{name} is stale: run make docs"


def test_every_committed_page_is_generated():
    committed = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()}

    assert committed == {*PAGES, *OTHERS}


@pytest.mark.parametrize("enum", [Reason, UnusedReason, Safeguard, HandlingReason, EventReason, Verdict])
def test_each_member_has_a_description(enum):
    expected = 1 if enum is Verdict else 2

    assert [member for member, texts in members(enum) if len(texts) != expected] == []


@pytest.mark.parametrize("name", PAGES)
def test_page_begins_with_a_title_and_a_short_paragraph(name):
    _, title, first, *_ = PAGES[name].split("\n\n")

    assert title.startswith("# ")
    assert len(re.findall(r"[.](?= |$)", first)) <= 3


@pytest.mark.parametrize("name", PAGES)
def test_page_has_none_of_the_avoided_words(name):
    assert [line for line in PAGES[name].splitlines() if AVOIDED.search(line)] == []


@pytest.mark.parametrize("name", PAGES)
def test_each_link_has_a_target(name):
    for place, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", PAGES[name]):
        assert (FOLDER / place).exists(), place
        if anchor:
            assert anchor in anchors(PAGES[place or name]), f"{place}#{anchor}"


@pytest.mark.parametrize("name", PAGES)
def test_each_row_of_a_table_has_as_many_cells_as_its_titles(name):
    blocks = [block.splitlines() for block in PAGES[name].split("\n\n") if block.startswith("| ")]
    counts = [{len(re.findall(r"(?<!\\)[|]", row)) for row in rows} for rows in blocks]

    assert [count for count in counts if len(count) != 1] == []


def anchors(text):
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_example_of_a_policy_is_accepted():
    assert len(parse_policy(EXAMPLE, read_catalogue(), name="policy.yaml").rules) == 2


def test_table_of_annotations_is_complete():
    assert set(TTL_ANNOTATIONS) <= set(OF_OBJECTS)
    assert set(DEFAULTS) <= set(OF_NAMESPACES)


@pytest.mark.parametrize("name", TTL_ANNOTATIONS)
def test_example_of_an_annotation_is_accepted(name):
    outcome = name.removeprefix("ttl-") if name.startswith("ttl-") else None

    assert annotated_ttl({name: OF_OBJECTS[name].example}, outcome) is not None


@pytest.mark.parametrize("name", OF_NAMESPACES)
def test_example_of_a_namespace_annotation_is_accepted(name):
    annotations = {f"{ANNOTATION_DOMAIN}/{name}": OF_NAMESPACES[name].example}

    assert namespace_of({"metadata": {"name": "ci", "annotations": annotations}}).problem == ""


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
