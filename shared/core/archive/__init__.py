"""The archive, without I/O: what is stored about an object, under which key, and whether an object has to be stored."""
