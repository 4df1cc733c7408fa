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

splits = adult_splits(seed=0)
train, validation, test = splits
model = train_mlp(train.X, train.y, validation.X, validation.y, epochs=30, learning_rate=3e-4)

# %% [markdown]
# ## Three searches

# %%
rows, plots = {}, {}
for search in ("auto", "path", "grid"):
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
    plots[search] = fair.plot_frontier()

pd.DataFrame(rows).T.round(4)

# %% [markdown]
# Every edit that `auto` tried, on validation rows:

# %%
plots["auto"]

# %% [markdown]
# ## The rows to blame
# A positive score means that, to first order, dropping the row lowers the gap. Who are the hundred
# worst? The scores do not depend on the search.

# %%
worst = (-fair.influence_).argsort()[:100]
share = {"all rows": train.X.mean(0), "the worst 100": train.X[worst].mean(0)}
apart = pd.DataFrame(share, index=splits.feature_names)
order = (apart["the worst 100"] - apart["all rows"]).abs().sort_values(ascending=False).index
apart.loc[order[:8], ["all rows", "the worst 100"]].round(2)

# %%
rich = train.y.mean(), train.y[worst].mean()
print(f"earn more than 50,000 dollars: {rich[0]:.0%} of all, {rich[1]:.0%} of the worst")
fair.plot_influence()
