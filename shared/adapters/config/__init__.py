"""Configuration of a process: environment variables, kind rule files and the policy file."""
