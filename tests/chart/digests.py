"""What the committed chart was made from, as digests: a stale chart is found without the minute that making it takes.

The whole comparison is tests/chart/test_chart_files.py.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from tests.chart.files import CHART, render_from_code
from tests.manifests.test_manifests import KNATIVE

FILE = Path(__file__).parent / "digests.json"
_GENERATOR = Path(__file__).parent


def write() -> None:
    """Record what the chart is made from, and the chart."""
    FILE.write_text(json.dumps(find(), indent=2) + "\n")


def find_problems() -> list[str]:
    """What has changed since `make chart`."""
    recorded = json.loads(FILE.read_text()) if FILE.exists() else {}
    changed = {name for name, digest in find().items() if digest != recorded.get(name)}
    stale = {name for name, text in render_from_code().items() if (CHART / name).read_text() != text}
    return [
        *(f"{name}/: its files are not those of the last `make chart`: run `make chart`" for name in sorted(changed)),
        *(f"knative/chart/{name}: it is stale: run `make chart`" for name in sorted(stale)),
    ]


def find() -> dict[str, str]:
    """The digests of the kustomizations, the generator and the chart."""
    kustomizations = (path for path in KNATIVE.rglob("*") if CHART not in path.parents and path.suffix != ".md")
    others = {FILE, Path(__file__)}
    generator = (path for path in _GENERATOR.iterdir() if path not in others and not path.name.startswith("test_"))
    return {
        "knative": _digest(KNATIVE, kustomizations),
        "tests/chart": _digest(_GENERATOR, generator),
        "knative/chart": _digest(CHART, CHART.rglob("*")),
    }


def _digest(folder: Path, paths: Iterable[Path]) -> str:
    """The digest of files with their names."""
    digest = hashlib.sha256()
    for path in sorted(path for path in paths if path.is_file() and path.suffix != ".pyc"):
        for part in (str(path.relative_to(folder)).encode(), path.read_bytes()):
            digest.update(b"%d:%b" % (len(part), part))
    return digest.hexdigest()
