"""The paper's tabular study: methods, trade-offs, figures and claims, the same for every table."""
