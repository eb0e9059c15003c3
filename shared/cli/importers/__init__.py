"""Read the configuration of other cleaners, one module for each, and write it as a policy."""
