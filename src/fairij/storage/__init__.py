"""What is read from and written to disk."""
