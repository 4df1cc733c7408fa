"""Several groups, and where they meet.

Made-up applications with two sensitive attributes. Each attribute by itself shows about half of the
gap that there is between the groups where they meet. This notebook looks there, and edits the model
for all four combinations at once.
"""

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from fairij import FairIJ, audit


def people(rows, seed):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["female", "male"], rows)
    origin = rng.choice(["abroad", "here"], rows)
    apart = (sex == "female") & (origin == "abroad")
    skill = rng.normal(size=rows)
    years = rng.gamma(2.0, 3.0, rows).round(1)
    part_time = (rng.random(rows) < np.where(apart, 0.7, 0.2)).astype(int)
    score = skill + 0.15 * years - 1.2 * part_time
    hired = (score + rng.logistic(size=rows) > 0.6).astype(int)
    X = pd.DataFrame({"skill": skill, "years": years, "part_time": part_time})
    return X, hired, pd.DataFrame({"sex": sex, "origin": origin})


X, y, _ = people(6000, seed=0)
X_val, y_val, groups_val = people(5000, seed=1)
X_test, y_test, groups_test = people(5000, seed=2)
model = HistGradientBoostingClassifier(max_iter=60, early_stopping=False, random_state=0).fit(X, y)

# %% [markdown]
# ## One attribute at a time

# %%
shown = ["demographic_parity_difference", "equal_opportunity_difference"]
predicted = model.predict(X_test)
for name in groups_test:
    found = audit(y_test, predicted, sensitive_features=groups_test[name])
    print(name, found.metrics["value"][shown].round(3).to_dict())

# %% [markdown]
# ## Where they meet
# Two columns make one group for each combination.

# %%
found = audit(y_test, predicted, sensitive_features=groups_test)
found.by_group[["count", "selection_rate", "true_positive_rate"]].round(3)

# %% [markdown]
# ## An edit for all combinations
# The gap is now the distance between the highest and the lowest of the four.

# %%
fair = FairIJ(model, constraints="demographic_parity", verbose=False)
fair.fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=groups_val)
after = audit(y_test, fair.predict(X_test), sensitive_features=groups_test)
both = {"before": found.by_group["selection_rate"], "after": after.by_group["selection_rate"]}
pd.DataFrame(both).round(3)

# %%
print("gap     ", round(found[shown[0]], 3), "to", round(after[shown[0]], 3))
print("accuracy", round(found["accuracy"], 3), "to", round(after["accuracy"], 3))

# %%
fair.plot_group_rates()
