"""How a command runs as a process: event loop, signals, standard streams and connection to the cluster."""
