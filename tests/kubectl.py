"""kubectl of the development packages, so that manifests are built by the same kustomize on each machine."""

import subprocess
import sys
from pathlib import Path

KUBECTL = str(Path(sys.prefix) / "bin" / "kubectl")
"""The program: `make setup` installs it into the environment."""


def kustomize(folder: Path) -> str:
    """Return the objects of a kustomization as YAML; a refusal or a warning fails the test."""
    done = subprocess.run([KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"kustomize refuses {folder}: {done.stderr}"
    assert "deprecated" not in done.stderr.lower(), done.stderr
    return done.stdout
