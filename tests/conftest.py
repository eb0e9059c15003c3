"""For all tests: output as into a pipe."""

import os

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it in its workers; a command under test would wrap its lines
