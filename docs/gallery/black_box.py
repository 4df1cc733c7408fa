"""A black box in production.

A credit score comes from a service. Nobody can open the model behind it. fairij leaves it as it is,
and learns a small correction of its log-odds from the applicant's own columns. No group is needed
when a score is asked for. The correction is a file of a few numbers, and taking it away gives the
old scores back.
"""

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier, StackingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB

from fairij import BlackBox, FairIJ, audit


def people(rows, seed):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["female", "male"], rows)
    income = rng.normal(30 + 6 * (sex == "male"), 9, rows).round(1)
    debt = rng.gamma(2.0, 5.0, rows).round(1)
    years = rng.integers(0, 20, rows)
    worth = 0.1 * (income - 32) - 0.08 * (debt - 10) + 0.05 * (years - 8)
    repaid = (worth + rng.logistic(size=rows) > 0).astype(int)
    return pd.DataFrame({"income": income, "debt": debt, "years": years}), repaid, sex


X, y, _ = people(5000, seed=0)
X_val, y_val, sex_val = people(5000, seed=1)
X_test, y_test, sex_test = people(5000, seed=2)

# %% [markdown]
# ## The service
# All that is known of it is a function: rows in, chances out.

# %%
forest = RandomForestClassifier(60, max_depth=6, random_state=0)
parts = [("forest", forest), ("bayes", GaussianNB())]
hidden = StackingClassifier(parts, LogisticRegression(), cv=3).fit(X, y)


def service(rows):
    return hidden.predict_proba(rows)[:, 1]


# %% [markdown]
# ## The correction

# %%
fair = FairIJ(BlackBox(service), constraints="demographic_parity", verbose=False)
fair.fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=sex_val)

before, after = service(X_test), fair.predict_proba(X_test)[:, 1]
rows = {}
for name, chances in (("service", before), ("with the correction", after)):
    found = audit(y_test, (chances > 0.5).astype(int), sensitive_features=sex_test)
    rows[name] = {
        "gap": found["demographic_parity_difference"],
        "accuracy": found["accuracy"],
        "AUC": roc_auc_score(y_test, chances),
    }
pd.DataFrame(rows).T.round(3)

# %%
fair.plot_frontier()

# %% [markdown]
# ## Put it next to the service
# The correction is saved without the model, and without pickle.

# %%
saved = fair.estimator_.save("correction")
loaded = BlackBox.load("correction", service)
same = np.allclose(loaded.predict_proba(X_test)[:, 1], after)
print(f"{saved.stat().st_size:,} bytes; the same chances: {same}")
