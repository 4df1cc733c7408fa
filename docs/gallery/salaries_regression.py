"""Salaries: a regression.

Made-up salaries in three regions. In the east people are paid less than their years and grades say,
and the model, which does not see the region, has learnt that from their employers. What is asked
for is `mean_prediction`: the mean of what is predicted shall be the same in all regions.
The model is a pipeline of scikit-learn, and so is what comes back.
"""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fairij import FairIJ
from fairij.fairness import audit_regression


def people(rows, seed):
    rng = np.random.default_rng(seed)
    region = rng.choice(["north", "south", "east"], rows)
    years = rng.integers(0, 31, rows)
    grade = rng.integers(1, 6, rows)
    known = rng.random(rows) < 0.8
    employer = np.where(known, np.char.add("firm of the ", region), "elsewhere")
    salary = 20 + 0.6 * years + 3 * grade - 4 * (region == "east") + rng.normal(0, 3, rows)
    X = pd.DataFrame({"years": years, "grade": grade, "employer": employer})
    return X, salary.round(1), region


X, y, _ = people(3000, seed=0)
X_val, y_val, region_val = people(2000, seed=1)
X_test, y_test, region_test = people(2000, seed=2)

# %%
columns = make_column_transformer(
    (StandardScaler(), ["years", "grade"]), (OneHotEncoder(), ["employer"])
)
model = make_pipeline(columns, Ridge(alpha=1.0)).fit(X, y)
fair = FairIJ(model, constraints="mean_prediction", verbose=False)
fair.fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=region_val)

# %%
print(type(fair.estimator_).__name__, "of", [step for step, _ in fair.estimator_.steps])
for name, predictor in (("before", model), ("after", fair.estimator_)):
    found = audit_regression(y_test, predictor.predict(X_test), sensitive_features=region_test)
    print(f"\n{name}, on test rows\n{found.metrics.to_string(float_format='{:.2f}'.format)}")

# %%
fair.plot_frontier()
