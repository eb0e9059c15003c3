"""The options that several commands share, and the values that they stand for."""
