"""The command line: one module for each command, and packages for the parts that several commands share."""
