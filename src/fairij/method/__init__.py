"""The method: from a fairness gradient to scores, candidate edits and a choice."""
