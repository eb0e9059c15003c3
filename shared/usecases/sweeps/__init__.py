"""The parts of a sweep."""
