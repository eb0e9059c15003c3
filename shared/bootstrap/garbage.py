"""Collect garbage rarely: the objects of a running process live either as long as a request or as long as the process.

With CPython's defaults, parsing one page of a LIST starts hundreds of collections, and the modules are traversed again
and again. They take half of the parsing time.
"""

import gc
from functools import cache

COLLECT_EVERY = 50_000
"""The number of new containers (dicts, lists) that starts a collection of the young ones; CPython: 700 to 2,000."""

_GENERATIONS = (COLLECT_EVERY, 20, 100)


@cache
def collect_rarely() -> None:
    """Exclude all objects that exist now from collections, and start collections more rarely; only the first call acts.

    Call it when everything is loaded. Source: https://docs.python.org/3/library/gc.html#gc.freeze
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GENERATIONS)
