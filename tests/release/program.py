"""The start of the binary of `make binary`: `kubectl ttl`, or its completion if kubectl runs it by that name."""

import sys
from pathlib import Path

from shared.cli.completion.cobra import main as complete
from shared.cli.main import main as work

if __name__ == "__main__":
    (complete if Path(sys.argv[0]).name == "kubectl_complete-ttl" else work)()
