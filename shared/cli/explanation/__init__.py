"""The output of `explain`: for an object of a cluster, and for the objects of a file while it is read."""
