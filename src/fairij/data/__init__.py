"""What users give: rows, labels, groups and settings, checked once."""
