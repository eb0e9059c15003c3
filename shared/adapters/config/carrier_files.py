"""Carrier rules on disk: the shipped YAML files in `shared/references/`, and those in the operator's folder."""

from pathlib import Path

import shared
from shared.adapters.config.yaml_file import FileError, read_model
from shared.core.references.carrier import Carrier, Carriers

CARRIERS = Path(shared.__file__ or "").parent / "references"


def read_carriers(folder: Path | None = None, *, shipped: Path = CARRIERS) -> Carriers:
    """Read all carrier rules, ordered by file name; an operator's rule replaces a shipped one of the same kind.

    Args:
        folder: The operator's folder with `*.yaml` and `*.yml`, for instance a mounted ConfigMap.
        shipped: The folder of the shipped rules.

    Raises:
        FileError: A file does not match the schema of `Carrier`, two files of one folder have a rule for the same kind
            and version, or the folder does not exist.
    """
    shipped_rules = _read_carrier_folder(shipped)
    if folder is None:
        return Carriers(tuple(shipped_rules))
    if not folder.is_dir():
        raise FileError(f"{folder}: expected a directory of carrier rules, but it does not exist or is not a directory")
    own = _read_carrier_folder(folder)
    kept = [one for one in shipped_rules if not any(_overlap(one, other) for other in own)]
    return Carriers((*kept, *own))


def _overlap(one: Carrier, other: Carrier) -> bool:
    return one.kind == other.kind and bool({*one.api_versions} & {*other.api_versions})


def _read_carrier_folder(folder: Path) -> list[Carrier]:
    carriers: list[Carrier] = []
    of_kind: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".yaml", ".yml") or path.name.startswith("."):
            continue
        carrier = read_model(path, Carrier)
        for version in carrier.api_versions:
            twin = of_kind.setdefault((version, carrier.kind), path)
            if twin is not path:
                expected = f"expected one rule for {carrier.kind} of {version}"
                raise FileError(f"{path.name}: {expected}, but {twin.name} has one too")
        carriers.append(carrier)
    return carriers
