"""Names of the cases of `reference`, which pytest needs before it loads torch."""

CASES = ["logistic", "mlp", "mlp_weighted_l2", "softmax", "regression"]
