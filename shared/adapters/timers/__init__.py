"""Timer engines: each holds delayed CloudEvents and fires them when they are due."""
