"""`explain -f` of a large file: how long it takes, and how much memory.

    .venv/bin/python -m tests.benchmarks.explain [DOCUMENTS]

The documents are finished Jobs of 18 lines. Processor time is what to compare: other programs on the machine lengthen
the rest. It includes start-up, the reading, every decision, and the text of every answer, which goes to /dev/null.
For scale it prints what PyYAML's CSafeLoader alone takes for the same file.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from tests.builders import COMMAND

DOCUMENTS = 20_000

_JOB = """\
---
apiVersion: batch/v1
kind: Job
metadata:
  name: job-{number}
  namespace: ci
  uid: uid-{number}
  creationTimestamp: "2026-03-02T08:15:04Z"
spec:
  ttlSecondsAfterFinished: 3600
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: main, image: "example.com/work:1"}}]
status:
  startTime: "2026-03-02T08:15:04Z"
  conditions:
  - {{type: Complete, status: "True", lastTransitionTime: "2026-03-02T08:16:04Z"}}
"""


def main(count: int) -> None:
    """Explain so many documents once, in a process of its own, and print what that took."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.yaml"
        with file.open("w") as stream:
            stream.writelines(_JOB.format(number=number) for number in range(count))
        program = [*COMMAND, "explain", "-f", str(file)]
        started = time.perf_counter()
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        alone = _read_alone(file)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = used.ru_utime + used.ru_stime
    print(f"{count} documents: {seconds:.1f} s, {processor:.1f} s of processor, {used.ru_maxrss / 1024:.0f} MiB")
    print(f"CSafeLoader alone: {alone:.1f} s of processor")


def _read_alone(file: Path) -> float:
    """Seconds of processor that PyYAML's own loader takes."""
    started = time.process_time()
    with file.open() as stream:
        for _ in yaml.load_all(stream, Loader=yaml.CSafeLoader):
            pass
    return time.process_time() - started


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENTS)
