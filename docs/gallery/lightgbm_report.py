"""LightGBM and its report page.

Made-up loans with a known bias: the job gives the sex away, the postcode the origin, and income
depends on both. The model sees neither sex nor origin, and yet they matter; groups are their four
combinations. A part of the validation rows is held out, so that the gap can be checked on rows that
played no part. The report page is what you would hand to an auditor.
"""

import lightgbm
import numpy as np
import pandas as pd

from fairij import FairIJ, LowestGap
from fairij.report import write_report


def loans(rows, seed):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["female", "male"], rows)
    origin = rng.choice(["abroad", "here"], rows, p=[0.3, 0.7])
    leaning = np.where(sex == "male", "driver", "nurse")
    job = np.where(rng.random(rows) < 0.6, leaning, rng.choice(["cook", "clerk"], rows))
    postcode = np.where(rng.random(rows) < 0.5, np.where(origin == "here", "101", "103"), "102")
    income = rng.normal(30 + 6 * (sex == "male") + 3 * (origin == "here"), 9, rows).round(1)
    debt = rng.gamma(2.0, 5.0, rows).round(1)
    worth = 0.12 * (income - 32) - 0.08 * (debt - 10) + 0.6 * (job == "driver")
    repaid = (worth + rng.logistic(size=rows) > 0).astype(int)
    features = pd.DataFrame({"income": income, "debt": debt, "job": job, "postcode": postcode})
    features = features.astype({"job": "category", "postcode": "category"})
    return features, repaid, pd.DataFrame({"sex": sex, "origin": origin})


X, y, groups = loans(8000, seed=0)
X_val, y_val, groups_val = loans(6000, seed=1)
X_test, y_test, groups_test = loans(6000, seed=2)
model = lightgbm.LGBMClassifier(n_estimators=100, num_leaves=15, n_jobs=1, verbose=-1).fit(X, y)

# %% [markdown]
# ## The edit

# %%
fair = FairIJ(
    model,
    constraints="demographic_parity",
    search="grid",  # which drops rows, so that they can be named
    damping=(1e-2, 1e-1),
    selection=LowestGap(slack=0.01),
    holdout_fraction=0.3,
    verbose=False,
)
fair.fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=groups_val)

# %%
shown = ["accuracy", "demographic_parity_difference", "equal_opportunity_difference"]
before, after = fair.holdout_before_.metrics, fair.holdout_after_.metrics
table = pd.concat([before.loc[shown], after.loc[shown]], axis=1, keys=["before", "after"])
print("On the validation rows that were held out:")
print(table.to_string(float_format="{:.3f}".format))

# %%
print(f"{len(fair.dropped_)} of {len(X)} training rows are dropped. The five worst:")
print(X.assign(repaid=y, **groups).iloc[fair.dropped_[:5]].to_string())

# %%
fair.plot_frontier()

# %% [markdown]
# ## The page that an auditor opens

# %%
write_report(
    fair,
    "report.html",
    X=X,
    y=y,
    sensitive_features=groups,
    X_test=X_test,
    y_test=y_test,
    sensitive_features_test=groups_test,
    title="Loans",
)
