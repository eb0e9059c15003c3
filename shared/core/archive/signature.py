"""The signature of a document: an HMAC-SHA256, so that a writer to the store who has no key can forge none.

The digest in a key of an archive only says that a document is undamaged: each writer to the store can compute it.
The signature is the last field of the line about the archiving, and covers the bytes of the line before it, and the key
of the archive. The line has the times, the ids of the cluster and of the archive, the children and the logs; the key
has the cluster, the uid, the resource version and the digest of the object. The content of logs is not covered.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass, field

SIGNING_KEY_CHARACTERS_MIN = 32
"""Characters of a key: 32 random hexadecimal digits have 128 bits."""

_PURPOSE = b"ttl-after-finished archive document 1\n"
_SIGNATURE = re.compile(rb',"signature":"([0-9a-f]{64})"\}\Z')


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """The keys by which documents are signed and checked.

    Attributes:
        keys: The first one signs, and each of them is accepted. Without any, nothing is signed or checked.
    """

    keys: tuple[bytes, ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, text: str) -> "SigningKeys":
        """Parse keys that are separated by commas or white space.

        Raises:
            ValueError: There is none, or one is too short or no text. The message has no part of a key.
        """
        keys = tuple(text.replace(",", " ").split())
        if not keys:
            raise ValueError("expected keys, separated by commas")
        for place, key in enumerate(keys, start=1):
            if not _is_text(key):
                raise ValueError(f"expected keys in UTF-8, got other bytes in key {place} of {len(keys)}")
            if len(key) < SIGNING_KEY_CHARACTERS_MIN:
                raise ValueError(
                    f"expected keys of at least {SIGNING_KEY_CHARACTERS_MIN} random characters, separated by commas, "
                    f"got {len(key)} characters in key {place} of {len(keys)}"
                )
        return cls(tuple(key.encode() for key in keys))

    def __bool__(self) -> bool:
        """Return whether there is a key."""
        return bool(self.keys)

    def sign(self, path: str, line: bytes) -> bytes:
        """Return the line about the archiving with a signature by the first key; without keys, the line itself.

        Args:
            path: The key of the document in the archive.
            line: The line: a JSON object with at least one field.
        """
        if not self.keys:
            return line
        return line[:-1] + b',"signature":"' + _compute(self.keys[0], path, line).encode() + b'"}'

    def find_problem(self, path: str, line: bytes) -> str:
        """Return why the signature of a line does not count; empty if it does, or without keys."""
        if not self.keys:
            return ""
        unsigned, signature = split_signature(line)
        if any(hmac.compare_digest(_compute(key, path, unsigned), signature) for key in self.keys):
            return ""
        found = "its signature is of no key of TTL_ARCHIVE_KEYS" if signature else "it has no signature"
        return (
            f"{found}: another writer may have stored it, or it was stored with another key or without one; commands "
            "that run without TTL_ARCHIVE_KEYS read it unchecked"
        )


UNSIGNED = SigningKeys()
"""No keys: nothing is signed or checked."""


def has_signature(line: bytes) -> bool:
    """Return whether a line about the archiving ends with a signature, of whatever key."""
    return _SIGNATURE.search(line) is not None


def split_signature(line: bytes) -> tuple[bytes, str]:
    """Return the line as it was before it was signed, and its signature; empty if it has none."""
    found = _SIGNATURE.search(line)
    return (line[: found.start()] + b"}", found[1].decode()) if found else (line, "")


def _is_text(key: str) -> bool:
    """Return whether a value of the environment is UTF-8: Python keeps each other byte as a lone surrogate."""
    return not any("\ud800" <= character <= "\udfff" for character in key)


def _compute(key: bytes, path: str, line: bytes) -> str:
    return hmac.new(key, _PURPOSE + path.encode() + b"\n" + line, hashlib.sha256).hexdigest()
