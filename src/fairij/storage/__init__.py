"""Files that are read and written: edits, tables, models."""
