"""A first audit.

Who will fail to pay the credit card bill next month? A model of the clients of a bank in Taiwan
(2005) answers. This notebook asks whether it treats men and women alike. An audit needs no model:
true labels, predictions and groups are enough.
"""

from sklearn.linear_model import LogisticRegression

from fairij import audit
from fairij.datasets import fetch_credit_card, make_splits
from fairij.report import group_rates, write_audit

# %% [markdown]
# ## Predictions
# Here they come from a logistic regression that does not see sex. They could come from anywhere.

# %%
data = fetch_credit_card(include_sensitive=False)
train, validation, test = make_splits(data, seed=0)
model = LogisticRegression(max_iter=1000).fit(train.X, train.y)
predicted = model.predict(test.X)
sex = [data.sensitive_features.cat.categories[code] for code in test.s]

# %% [markdown]
# ## The audit
# `1` stands for "will not pay". Each figure has a 95 % interval: the range in which it may well lie
# if you could measure everybody. Read the interval before you read the figure.

# %%
found = audit(test.y, predicted, sensitive_features=sex)
found.metrics

# %% [markdown]
# The rates of each group:

# %%
found.by_group

# %% [markdown]
# Group by group with intervals, as a picture:

# %%
group_rates(found.group_intervals, found.group_intervals)

# %% [markdown]
# ## A page for others
# One file without outside parts, to be opened in any browser.

# %%
chances = model.predict_proba(test.X)[:, 1]
page = write_audit(
    audit(test.y, chances, sensitive_features=sex), "audit.html", title="Credit card clients"
)
print(page.name)
