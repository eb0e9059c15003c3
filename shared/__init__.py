"""What the functions and the commands share. ARCHITECTURE.md says what each package means and who may import it."""

__version__ = "0.1.0"
