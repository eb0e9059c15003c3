"""Build the plugin of examples/headlamp-plugin with Headlamp's tool, as its README does."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.builders import ROOT

MODULES = "HEADLAMP_MODULES"
PLUGIN = ROOT / "examples" / "headlamp-plugin"


def build_plugin(folder: Path) -> Path:
    """Check the types of a copy of the plugin and build it; returns its folder. Skips the test without Node.js."""
    modules = os.environ.get(MODULES)
    if not modules or shutil.which("npx") is None:
        pytest.skip(f"needs Node.js, and in ${MODULES} a node_modules of examples/headlamp-plugin: run `make headlamp`")
    plugin = folder / "plugin"
    shutil.copytree(PLUGIN, plugin, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (folder / "node_modules").symlink_to(Path(modules).resolve())
    (plugin / "node_modules").symlink_to(folder / "node_modules")
    run_node(plugin, "headlamp-plugin", "tsc")
    run_node(plugin, "headlamp-plugin", "build")
    return plugin


def run_node(folder: Path, *words: str) -> None:
    """Run a program of the modules in a folder."""
    done = subprocess.run(["npx", "--no-install", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
