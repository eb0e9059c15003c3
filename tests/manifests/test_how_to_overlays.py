"""Each overlay that a how-to shows builds with the files that its reader has."""

import shutil

import yaml

from tests.kubectl import kustomize
from tests.manifests.test_manifests import KNATIVE
from tests.snippets import PAGES, read_blocks, write_files

BUILT = {"Namespace", "Deployment", "ClusterRole", "ValidatingAdmissionPolicy"}
"""What each of them has at least."""


def test_each_overlay_of_a_how_to_builds(tmp_path):
    blocks = [block for page in PAGES for block in read_blocks(page) if block.file.endswith("kustomization.yaml")]
    assert blocks
    for block in blocks:
        folder = tmp_path / block.place
        shutil.copytree(KNATIVE, folder / "knative")
        write_files(read_blocks(block.page), folder)
        built = yaml.load_all(kustomize((folder / block.file).parent), Loader=yaml.CSafeLoader)
        assert {obj["kind"] for obj in built} >= BUILT, block.place
