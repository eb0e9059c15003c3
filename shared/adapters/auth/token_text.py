"""What a bearer token looks like."""


def is_token(text: str) -> bool:
    """Return whether a text can follow `Bearer` in a header."""
    return text.isascii() and text.isprintable() and text != "" and " " not in text
