"""Look at an installation and say what is wrong with it, and what mends it. Reads only."""
