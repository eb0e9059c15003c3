"""What the functions share, in layers: core, ports, use cases, adapters; cli and local on top."""

__version__ = "0.1.0"
