"""Check a tag, or print its release notes: `make release-check TAG=v0.1.0`, `make release-notes TAG=v0.1.0`."""

import sys

from tests.release.release import find_notes, find_problems

match sys.argv[1:]:
    case ["check", tag]:
        sys.exit("\n".join(find_problems(tag)) or None)
    case ["notes", tag]:
        print(find_notes(tag) or sys.exit(f"CHANGELOG.md: expected a section of {tag}"))
    case _:
        sys.exit("expected: check TAG, or notes TAG, such as v0.1.0")
