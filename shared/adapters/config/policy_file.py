"""The policy file: read at start and reread when its content changes. An invalid file keeps the last valid policy.

A mounted ConfigMap is replaced as a whole behind a symbolic link. So a change is detected by content, not by its time.
"""

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from shared.adapters.config.yaml_file import FileError, parse_model, read_text
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import Policy

POLICY_POLL_SECONDS = 1.0
"""Minimum time between two reads of the file, however often the policy is requested."""

DIGEST_DIGITS = 12
"""Digits of a policy's SHA-256 that are kept: enough to distinguish policies, and to compare with `sha256sum`."""

_log = logging.getLogger("ttl")


def read_policy(path: Path, kinds: Catalogue) -> Policy:
    """Read a policy file.

    Raises:
        FileError: The file cannot be read, is not a valid policy, or names an unknown kind.
    """
    return parse_policy(read_text(path), kinds, name=path.name)


def parse_policy(text: str, kinds: Catalogue, *, name: str) -> Policy:
    """Parse the text of a policy; `name` is the file name in errors.

    Raises:
        FileError: The text is not a valid policy, or names an unknown kind.
    """
    policy = parse_model(text, Policy, name=name, refine=lambda policy: policy.of_kinds(kinds))
    return policy.with_digest(hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS])


class PolicyFile:
    """The policy in force: the last valid content of the file.

    Args:
        path: The file.
        kinds: All known kinds.
        report: Called once with the error of each invalid content.
        clock: A monotonic clock, in seconds.

    Attributes:
        problem: The error of the file's present content; empty if that content is in force.

    Raises:
        FileError: The file is invalid at start: an unreadable policy must not remove the protection it sets.
    """

    def __init__(
        self,
        path: Path,
        kinds: Catalogue,
        report: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._kinds, self._report, self._clock = path, kinds, report, clock
        self._seen = read_text(path)
        self._policy = parse_policy(self._seen, kinds, name=path.name)
        self._read_at = clock()
        self.problem = ""

    def policy(self) -> Policy:
        """Return the policy in force; reread the file if the last read is older than `POLICY_POLL_SECONDS`."""
        if self._clock() - self._read_at >= POLICY_POLL_SECONDS:
            self._reread()
        return self._policy

    @property
    def is_good(self) -> bool:
        """Whether the content at the last read is the policy in force."""
        return not self.problem

    def _reread(self) -> None:
        self._read_at = self._clock()
        try:
            text = read_text(self._path)
            if text == self._seen:
                return
            self._seen = text
            self._policy = parse_policy(text, self._kinds, name=self._path.name)
        except FileError as error:
            if str(error) == self.problem:  # already reported: an unreadable file is read again each time
                return
            self.problem = str(error)
            self._report(self.problem)
            return
        self.problem = ""
        _log.info("policy loaded", extra={"fields": {"file": str(self._path), "rules": len(self._policy.rules)}})
