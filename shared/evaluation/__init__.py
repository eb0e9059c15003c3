"""What `decide` must know beside the object: namespaces, owners, ranks, and which kinds a cluster serves."""
