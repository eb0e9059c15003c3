"""Configuration: environment variables, kind rule files, and the policy file."""
