"""Texts: frozen encoders and their vectors, heads, trigger tokens, training, results."""

from fairij.language.encoders import (
    TextClassifier,
    linear_head,
    load_encoder,
    load_tokenizer,
    nonlinear_head,
    tokenise,
)
from fairij.language.features import features, standardised
from fairij.language.probe_sentences import Identity
from fairij.language.probes import IdentityProbe, ProbeChange, identities_of, identity_probe
from fairij.language.reading import (
    BalancedAccuracyBudget,
    identity_rates,
    most_harmful,
    over_represented,
)
from fairij.language.swapping import identity_constraint, swappable
from fairij.language.texts import labelled
from fairij.language.training import Trained, TrainingRecipe, train
from fairij.models.text.tokens import longest_text
from fairij.models.text.triggers import TriggerTokens

__all__ = [
    "BalancedAccuracyBudget",
    "Identity",
    "IdentityProbe",
    "ProbeChange",
    "TextClassifier",
    "Trained",
    "TrainingRecipe",
    "TriggerTokens",
    "features",
    "identities_of",
    "identity_constraint",
    "identity_probe",
    "identity_rates",
    "labelled",
    "linear_head",
    "load_encoder",
    "load_tokenizer",
    "longest_text",
    "most_harmful",
    "nonlinear_head",
    "over_represented",
    "standardised",
    "swappable",
    "tokenise",
    "train",
]
