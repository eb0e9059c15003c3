"""Load the files of all functions in one process."""

from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import functions
from shared.adapters.events.answers import Respond
from shared.bootstrap.process import Process
from shared.bootstrap.start import loading_for

NAMES = ("schedule", "timers", "expire", "enforce", "archive", "sweep", "usage")


def load_functions(process: Process) -> Mapping[str, Respond]:
    """Load the functions for a process, by the names of their Knative Services.

    Each file is executed for each process: a module that is imported once would belong to the first process.
    """
    folder = Path(functions.__file__ or "").parent
    with loading_for(process):
        for name in NAMES:
            _execute(name, folder / f"{name}.py")
    return process.functions


def _execute(name: str, file: Path) -> None:
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file}: expected a Python file", name=name, path=str(file))
    spec.loader.exec_module(module_from_spec(spec))
