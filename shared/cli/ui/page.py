"""The page: one HTML file with its style and its script, and the Content-Security-Policy that allows only these."""

import base64
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

_FILE = Path(__file__).with_name("page.html")
_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class UiPage:
    """The page.

    Attributes:
        html: Its text.
        policy: Its Content-Security-Policy: the style and the script of the file by their hashes, and requests to this
            server. Nothing else is loaded, and no text becomes HTML.
    """

    html: str
    policy: str

    @classmethod
    def load(cls) -> "UiPage":
        """Read the page."""
        html = _FILE.read_text(encoding="utf-8")
        hashes = {name: _hash(text) for name, text in _INLINE.findall(html)}
        policy = (
            f"default-src 'none'; style-src {hashes['style']}; script-src {hashes['script']}; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            "require-trusted-types-for 'script'; trusted-types 'none'"
        )
        return cls(html, policy)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"
