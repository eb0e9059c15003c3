"""Run pytest as a process of its own, and read which tests failed."""

import json
import subprocess
import sys
from pathlib import Path


def run_pytest(cache: Path, *words: str) -> int:
    """Run pytest; return its exit code.

    Args:
        cache: The folder in which pytest notes the tests that failed.
        words: The words after `pytest`.
    """
    notes = cache / "v" / "cache" / "lastfailed"
    notes.unlink(missing_ok=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *words], check=False).returncode


def failed_tests(cache: Path) -> set[str]:
    """Return the ids of the tests that failed, or whose fixtures did, in the last run; of a broken file its path."""
    notes = cache / "v" / "cache" / "lastfailed"
    return set(json.loads(notes.read_text())) if notes.exists() else set()
