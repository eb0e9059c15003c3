"""Tokens: the identity of this process at a server, and which callers a function accepts."""
