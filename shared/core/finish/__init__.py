"""Whether and when an object finished, and why an object has not finished."""
