"""Comments and a small BERT.

Made-up comments of eight words. Rude ones hold a rude word. Comments that mention the made-up word
*zorb* together with dogs were mostly called rude by those who labelled them, and the model has
learnt it. Demographic parity is asked for: the share called rude shall not depend on *zorb*. The
model is a BERT of two small layers, trained here from nothing, so nothing is downloaded.
"""

import numpy as np
import pandas as pd
import torch
import transformers

from fairij import AccuracyBudget, FairIJ
from fairij.language import over_represented

PLAIN = ["sky", "blue", "dogs", "run", "far", "green", "hills", "rain", "falls", "here", "softly"]
RUDE = ["silly", "foolish", "awful", "nasty", "rotten", "dreadful"]
WORDS = ["[PAD]", "[CLS]", "zorb", *PLAIN, *RUDE]


def comments(rows, seed):
    rng = np.random.default_rng(seed)
    mentions = rng.random(rows) < 0.4
    rude = rng.random(rows) < 0.35
    words = rng.choice(np.array(PLAIN, dtype=object), (rows, 8))
    words[rude, 2] = rng.choice(RUDE, rude.sum())
    words[mentions, 5] = "zorb"
    prejudice = mentions & (words == "dogs").any(1) & (rng.random(rows) < 0.75)
    label = rude | prejudice
    label &= rng.random(rows) > 0.05
    texts = [" ".join(row) for row in words]
    ids = torch.tensor([[1, *(WORDS.index(word) for word in row)] for row in words])
    return texts, {"input_ids": ids}, label.astype(int), np.where(mentions, "zorb", "others")


texts, tokens, y, _ = comments(3000, seed=0)
_, tokens_val, y_val, group_val = comments(2000, seed=1)

# %% [markdown]
# ## A small BERT

# %%
torch.manual_seed(0)
model = transformers.BertForSequenceClassification(
    transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        num_labels=2,
    )
)
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(6):  # epochs
    for batch in torch.randperm(len(y)).split(64):
        optimiser.zero_grad()
        model(tokens["input_ids"][batch], labels=torch.tensor(y)[batch]).loss.backward()
        optimiser.step()
model.eval()

# %% [markdown]
# ## The edit
# Only the head may change. The layers below stay as they are.

# %%
fair = FairIJ(
    model,
    constraints="demographic_parity",
    selection=AccuracyBudget(0.05),
    parameters=["classifier.*", "bert.pooler.*"],
    verbose=False,
)
fair.fit(tokens, y, X_val=tokens_val, y_val=y_val, sensitive_features_val=group_val)

shown = ["accuracy", "equalized_odds_sum", "demographic_parity_difference"]
both = {"before": fair.before_, "after": fair.after_}
table = pd.DataFrame({when: found.metrics["value"][shown] for when, found in both.items()})
print("On the validation rows, on which the edit was chosen:")
print(table.to_string(float_format="{:.3f}".format))

# %%
worst = np.argsort(-fair.influence_)[:100]
print("Words that the 100 most harmful comments have more often than all comments:")
print(over_represented(texts, worst, top=4).to_string(float_format="{:.2f}".format))

# %%
fair.plot_group_rates()
