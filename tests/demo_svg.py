"""Record the terminal of `ttl-after-finished demo` as an SVG picture: `make demo-svg`.

The picture shows the real output of the program. The live view redraws itself, so the recording replays the control
sequences and keeps the lines that stay on the screen.
"""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMNS = 100
SHOWN_UNTIL = "Try next"
COMMAND = "[bold]$ make demo"

_CONTROL = re.compile(r"\x1b\[\??([0-9;]*)([A-HJKhl])|\r")
_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def record(program: str) -> str:
    """Run the demo as on a terminal, with colours, and return what it wrote."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    environment["KUBEBUILDER_ASSETS"] = ""
    return subprocess.run([program, "demo"], env=environment, check=True, capture_output=True).stdout.decode()


def replay(written: str) -> str:
    """Return the lines that stay on the screen: the cursor moves up, and a line is erased, as a terminal does it."""
    lines, row, at = [""], 0, 0
    for control in [*_CONTROL.finditer(written), None]:
        *whole, last = written[at : control.start() if control else len(written)].split("\n")
        for text in whole:
            lines[row] += text
            row += 1
            lines[row:row] = [""] if row == len(lines) else []
        lines[row] += last
        if control is None:
            break
        at = control.end()
        if control[2] == "A":
            row -= int(control[1] or 1)
        elif control[2] == "K":
            lines[row] = ""
    return "\n".join(line.rstrip() for line in lines)


def draw(screen: str) -> str:
    """Return the SVG picture of the lines; the reader's own monospace font is used, nothing is downloaded."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(COMMAND)
    console.print(Text.from_ansi(screen.partition(SHOWN_UNTIL)[0].rstrip()))
    svg = console.export_svg(title="ttl-after-finished demo", theme=MONOKAI, unique_id="demo")
    return _FONT.sub("", svg).replace("Fira Code, monospace", "monospace")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(replay(record(str(Path(sys.executable).with_name("ttl-after-finished"))))))
