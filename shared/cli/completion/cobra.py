"""`kubectl_complete-ttl`: kubectl runs this program to complete `kubectl ttl ...`, if it finds it on the PATH.

The answer is that of cobra, kubectl's library: a line for each candidate with its description after a tab, then a
directive: https://pkg.go.dev/github.com/spf13/cobra#ShellCompDirective.
"""

import sys

from click.shell_completion import ShellComplete

from shared.cli.main import main as program

FILES = 0
"""ShellCompDirectiveDefault: if there is no candidate, the shell completes files."""

NO_FILES = 4
"""ShellCompDirectiveNoFileComp: the shell completes no files."""


def complete(words: list[str]) -> str:
    """Return the answer for the words after `kubectl ttl`; the last one is incomplete, and may be empty."""
    *before, incomplete = words or [""]
    items = ShellComplete(program, {}, "kubectl-ttl", "").get_completions(before, incomplete)
    lines = [f"{one.value}\t{one.help}" if one.help else str(one.value) for one in items if one.type == "plain"]
    is_file = any(one.type != "plain" for one in items)
    return "\n".join([*lines, f":{FILES if is_file else NO_FILES}"])


def main() -> None:
    """Answer kubectl."""
    sys.stdout.write(f"{complete(sys.argv[1:])}\n")
