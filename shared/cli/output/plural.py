"""Numbers of things, as the commands print them."""


def plural(count: int, one: str, several: str = "") -> str:
    """`1 child`, `2 children`."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"
