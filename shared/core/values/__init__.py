"""Plain values, and what is done with them: objects as JSON, texts, times and pauses."""
