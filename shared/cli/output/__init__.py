"""How commands write: the standard streams, messages on standard error, lines and tables that fit a terminal."""
