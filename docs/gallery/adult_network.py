"""A network on Adult.

UCI Adult: who earns more than 50,000 dollars? Sex is not among the features, and yet the network
calls far more men than women rich. Three searches for an edit, with the same budget: two points of
accuracy on validation rows. All are judged on the official test set. This is one seed;
[the studies](../reproducing.md) have several.
"""

import pandas as pd

from fairij import AccuracyBudget, FairIJ, audit
from fairij.datasets import adult_splits
from fairij.models.torch.training import train_mlp

train, validation, test = adult_splits(seed=0)
model = train_mlp(train.X, train.y, validation.X, validation.y, epochs=30, learning_rate=3e-4)

rows = {}
for search in ("grid", "reweight", "path"):
    fair = FairIJ(model, search=search, selection=AccuracyBudget(0.02), verbose=False)
    fair.fit(
        train.X,
        train.y,
        X_val=validation.X,
        y_val=validation.y,
        sensitive_features_val=validation.s,
    )
    before = audit(test.y, fair.editable().outputs(test.X) > 0, sensitive_features=test.s)
    after = audit(test.y, fair.predict(test.X), sensitive_features=test.s)
    for name, found in (("as trained", before), (search, after)):
        rows[name] = {
            "accuracy": found["accuracy"],
            "demographic parity gap": found["demographic_parity_difference"],
            "equal opportunity gap": found["equal_opportunity_difference"],
        }
    fair.plot_frontier().save(f"candidates-of-{search}.svg")

print(pd.DataFrame(rows).T.to_string(float_format="{:.4f}".format))
