"""Two policies compared: which objects each one deletes, and when."""
