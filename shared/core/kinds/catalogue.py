"""Find the kind rules of a process by apiVersion and kind, or by the names that people use."""

from shared.core.kinds.rule import KindRule
from shared.core.values.objects import quote


class Catalogue:
    """The enabled kind rules, found by apiVersion and kind or by name."""

    def __init__(self, rules: tuple[KindRule, ...]) -> None:
        self.rules = rules
        self._by_kind = {(version, rule.kind): rule for rule in rules for version in rule.api_versions}
        self._of_kind: dict[tuple[str, str], tuple[KindRule, ...]] = {}
        for rule in rules:
            self._of_kind[rule.group, rule.kind] = (*self.of(rule.group, rule.kind), rule)

    def get(self, api_version: str, kind: str) -> KindRule | None:
        """The rule of a kind, or None if the kind is not enabled."""
        return self._by_kind.get((api_version, kind))

    def of(self, group: str, kind: str) -> tuple[KindRule, ...]:
        """The rules of a kind in all versions; only one of them fits a cluster."""
        return self._of_kind.get((group, kind), ())

    def label_of(self, group: str, kind: str) -> str:
        """A unique label of a kind: `Job`, or `Backup.velero.io` because several groups have Backups.

        A built-in kind, whose group has no dot, always keeps its plain name.
        """
        is_shared = len({rule.group for rule in self.rules if rule.kind == kind}) > 1
        return f"{kind}.{group}" if is_shared and "." in group else kind

    def find_by_name(self, word: str) -> tuple[KindRule, ...]:
        """The rules that a word names: those of one kind, or of several kinds that share the name.

        If a built-in kind shares the name, only the built-in kind is meant, as in kubectl. The group of a built-in kind
        has no dot.

        Raises:
            ValueError: The word names no known kind.
        """
        named = tuple(rule for rule in self.rules if rule.has_name(word))
        if not named:
            raise ValueError(f"unknown kind {quote(word)}: {self._suggest(word)}")
        return tuple(rule for rule in named if "." not in rule.group) or named

    def parse_names(self, words: tuple[str, ...]) -> "Catalogue":
        """The kinds that the words name; without words, all kinds that can finish.

        Raises:
            ValueError: A word names no known kind, several kinds, or a kind that never finishes.
        """
        named = [rule for word in words for rule in self.finishing(word)]
        return Catalogue(tuple(rule for rule in self.rules if not rule.never_finishes and (rule in named or not words)))

    def finishing(self, word: str) -> tuple[KindRule, ...]:
        """The rules of the one kind that a word names and that can finish.

        Raises:
            ValueError: The word names no known kind, several kinds, or a kind that never finishes.
        """
        meant = self.find_by_name(word)
        finishing = tuple(rule for rule in meant if not rule.never_finishes)
        if not finishing:
            raise ValueError(f"{word!r} never finishes: {meant[0].never_finishes}")
        names = list(dict.fromkeys(rule.name for rule in finishing))
        if len(names) > 1:
            raise ValueError(f"{word!r} is ambiguous: expected one of {', '.join(names)}")
        return finishing

    def _suggest(self, word: str) -> str:
        """The closest known names, and the command that lists all kinds; they are too many for one message."""
        from difflib import get_close_matches  # noqa: PLC0415 - only for a typo: a cold start does not load it

        first = reversed(self.rules)  # if several kinds share a name, the first is suggested
        names = {name: rule.name for rule in first for name in (rule.plural, rule.kind.lower(), rule.name)}
        close = dict.fromkeys(names[name] for name in get_close_matches(word.lower(), names))
        listed = "`ttl-after-finished kinds` lists them"
        return f"expected a kind, perhaps {' or '.join(close)}; {listed}" if close else f"expected a kind; {listed}"
