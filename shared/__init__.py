"""What the functions share, in layers: core, ports, use cases, adapters; cli and local on top."""
