"""Timer engines: store delayed CloudEvents and publish each when it is due."""
