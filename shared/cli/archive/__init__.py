"""`archive`: the commands about archived objects."""
