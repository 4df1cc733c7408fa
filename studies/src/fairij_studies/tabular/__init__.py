"""The paper's tabular study, the same for every table: methods, trade-offs, figures and claims."""
