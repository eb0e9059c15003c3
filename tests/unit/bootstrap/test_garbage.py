"""The settings of garbage collection, in an interpreter of their own."""

import json
import subprocess
import sys

from tests.builders import ROOT

PROBE = """
import gc, json
from shared.bootstrap.garbage import collect_rarely
collect_rarely()
first = gc.get_freeze_count()
late = [[] for _ in range(1000)]
collect_rarely()
print(json.dumps([first, gc.get_freeze_count(), gc.get_threshold()]))
"""


def test_loaded_objects_are_excluded_once_and_collections_are_rarer():
    output = subprocess.run([sys.executable, "-c", PROBE], cwd=ROOT, check=True, capture_output=True).stdout
    first, second, threshold = json.loads(output)
    assert 1_000 < second <= first
    assert threshold[0] == 50_000
