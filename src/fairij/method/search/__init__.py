"""Which edits to try."""
