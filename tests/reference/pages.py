"""The pages of docs/reference, by file name, and each other file that `make docs` writes."""

from pathlib import Path

from shared.cli.completion.index import INDEX
from tests.reference import (
    annotations,
    asyncapi,
    cli,
    completion,
    events,
    kinds,
    manpage,
    metrics,
    outputs,
    policy,
    reasons,
    references,
    schemas,
    settings,
)
from tests.reference.texts import fill

_ROOT = Path(__file__).parents[2]
FOLDER = _ROOT / "docs" / "reference"
POLICY_SCHEMA = _ROOT / "knative" / "components" / "policy" / "policy.schema.json"

_MODULES = (annotations, policy, kinds, references, cli, settings, metrics, events, reasons)


def render():
    """The text of each page."""
    pages = {f"{module.__name__.rpartition('.')[2]}.md": module.render() for module in _MODULES}
    return {"README.md": fill("README"), **pages}


def render_files():
    """The text of each other file, by its path in the folder."""
    return {"asyncapi.yaml": asyncapi.render(), **schemas.render(), **outputs.render()}


def render_all():
    """The text of each file that `make docs` writes, by its path."""
    return {
        **{FOLDER / name: text for name, text in (render() | render_files()).items()},
        **{manpage.FOLDER / name: text for name, text in manpage.render().items()},
        INDEX: completion.render(),
        POLICY_SCHEMA: policy.schema(),
    }
