"""Check a tag, or print its release notes or its krew manifest.

`make release-check TAG=v0.1.0`, `make release-notes TAG=v0.1.0`, and `sha256sum *.tar.gz | make krew TAG=v0.1.0`.
"""

import sys

from tests.release.krew import krew_manifest
from tests.release.release import find_notes, find_problems

match sys.argv[1:]:
    case ["check", tag]:
        sys.exit("\n".join(find_problems(tag)) or None)
    case ["notes", tag]:
        print(find_notes(tag) or sys.exit(f"CHANGELOG.md: expected a section of {tag}"))
    case ["krew", tag]:
        try:
            print(krew_manifest(tag, sys.stdin.read()), end="")
        except ValueError as error:
            sys.exit(str(error))
    case _:
        sys.exit("expected: check TAG, notes TAG, or krew TAG, such as v0.1.0")
