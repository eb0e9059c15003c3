"""The manifest with which krew installs `kubectl ttl`: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest."""

import re
from typing import Any

import yaml

HOME = "https://github.com/ttl-after-finished/ttl-after-finished"
PLATFORMS = (("linux", "amd64"), ("linux", "arm64"), ("darwin", "amd64"), ("darwin", "arm64"))
"""The platforms of `make binary` in the release workflow, in the words of Go, which krew uses."""

_LINE = re.compile(r"([0-9a-f]{64}) [ *](\S+)")


def archive_of(system: str, machine: str) -> str:
    """The name of the file that `make binary` makes on a platform."""
    return f"kubectl-ttl_{system}_{machine}.tar.gz"


def krew_manifest(tag: str, sums: str) -> str:
    """The manifest of a release.

    Args:
        tag: The tag, such as `v0.1.0`.
        sums: The output of `sha256sum` about the archives.

    Raises:
        ValueError: The archive of a platform has no sum.
    """
    found = {name: digest for digest, name in _LINE.findall(sums)}
    missing = [name for name in (archive_of(*one) for one in PLATFORMS) if name not in found]
    if missing:
        raise ValueError(f"expected a SHA-256 sum of each archive, got none of {', '.join(missing)}")
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "ttl"},
        "spec": {
            "version": tag,
            "homepage": HOME,
            "shortDescription": "Delete finished objects of any kind after a TTL",
            "description": (
                "Shows which finished Pods, Jobs, TrainJobs, PipelineRuns, Workflows and other objects are due, why\n"
                "others stay, and what was deleted. `kubectl ttl run` deletes them from this machine.\n"
            ),
            "caveats": (
                "For completion by TAB, with kubectl's own completion loaded, and ~/.local/bin on your PATH:\n"
                '  ln -s "${KREW_ROOT:-$HOME/.krew}/bin/kubectl-ttl" ~/.local/bin/kubectl_complete-ttl\n'
            ),
            "platforms": [_platform(tag, system, machine, found) for system, machine in PLATFORMS],
        },
    }
    return yaml.safe_dump(manifest, sort_keys=False)


def _platform(tag: str, system: str, machine: str, sums: dict[str, str]) -> dict[str, Any]:
    name = archive_of(system, machine)
    return {
        "selector": {"matchLabels": {"os": system, "arch": machine}},
        "uri": f"{HOME}/releases/download/{tag}/{name}",
        "sha256": sums[name],
        "bin": "kubectl-ttl/kubectl-ttl",
    }
