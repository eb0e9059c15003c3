"""What kind rules mean, in words and for example objects."""
