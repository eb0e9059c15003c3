"""How long a finished object stays by its own annotations and fields, and how a command edits them."""
