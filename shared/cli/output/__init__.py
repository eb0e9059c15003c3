"""How commands write for people: messages on standard error, lines and tables that fit a terminal."""
