"""What a reader sees first: the README, and what it says of the commands."""

import pytest
from click.testing import CliRunner

from shared.cli.main import main
from tests.builders import ROOT, read_yaml

README = (ROOT / "README.md").read_text()


def test_first_command_is_at_line_ten_or_earlier():
    assert any(line.startswith("    make ") for line in README.splitlines()[:10])


def test_picture_is_that_of_the_demo():
    picture = (ROOT / "docs/demo.svg").read_text()
    assert "](docs/demo.svg)" in README
    assert "job/build-1" in picture
    assert "deleted" in picture
    assert "url(http" not in picture, "a browser would download it: run `make demo-svg`"


def test_readme_builds_the_image_that_the_manifests_name():
    (image,) = read_yaml(ROOT / "knative/components/release/kustomization.yaml")[0]["images"]
    name = f"{image['name']}:{image['newTag']}"
    assert f"    docker build -t {name} .\n    kind load docker-image {name}\n" in README


@pytest.mark.parametrize("page", ["README.md", "docs/explanation/kinds.md"])
def test_pages_count_the_kinds_as_the_command_does(page):
    counted = CliRunner(env={"TTL_KINDS_DIR": None}).invoke(main, ["kinds"]).output.splitlines()[-1]
    assert counted.partition(". ")[0] in (ROOT / page).read_text(), "correct the number"
