"""A model card: Markdown about an edited model, with the metadata that model registries read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sklearn.utils.validation import check_is_fitted

from fairij._version import __version__
from fairij.errors import InvalidInputError, printable
from fairij.mitigator import FairIJ
from fairij.report import comparisons, headline
from fairij.report.about import About
from fairij.report.checks import checks
from fairij.report.comparisons import Comparison, Row
from fairij.report.shortfalls import shortfalls

# what registries call the library of a model, by the package of its class
LIBRARIES = {
    "sklearn": "sklearn",
    "lightgbm": "lightgbm",
    "xgboost": "xgboost",
    "catboost": "catboost",
    "transformers": "transformers",
    "peft": "peft",
    "torch": "pytorch",
}
OF_TEXTS = ("transformers", "peft")
MOST_RATES = 240  # lines of the table of every group's rates
FACTS = {  # settings of the edit that the card lists, in words
    "constraint": "gap that was asked for",
    "search": "search",
    "damping": "damping",
    "validation": "use of the validation rows",
    "random_state": "seed",
}


def model_card(
    fitted: FairIJ,
    *,
    X_test: Any = None,
    y_test: Any = None,
    sensitive_features_test: Any = None,
    name: str = "Edited model",
    dataset: str = "not named",
    license_name: str | None = None,
    tags: Sequence[str] = (),
) -> str:
    """Return a model card in Markdown: facts only, each from the fit or from the rows given.

    It begins with a block of metadata that the Hugging Face hub reads. Save it as ``README.md``
    next to the model.

    Parameters
    ----------
    fitted : FairIJ
        The result.
    X_test, y_test, sensitive_features_test : table and array-likes, optional
        Rows that the edit never used. Without them, the figures are of held-out rows if there are
        any, else of the validation rows, and the card says so.
    name : str, default="Edited model"
        The name of the model.
    dataset : str, default="not named"
        The name of the data that the figures are of.
    license_name : str, optional
        An identifier of the model's licence, such as "apache-2.0".
    tags : sequence of str, optional
        Further tags.

    Returns
    -------
    str
        The card.

    Examples
    --------
    >>> from fairij.report import model_card
    >>> model_card(fair, name="Loans").splitlines()[1]
    'library_name: "sklearn"'
    """
    check_is_fitted(fitted, "edit_")
    if isinstance(tags, str):
        raise InvalidInputError(f"`tags` must be a list of words, got the text {tags!r}.")
    shown = (
        comparisons.on_test_rows(fitted, X_test, y_test, sensitive_features_test)
        or comparisons.on_held_out_rows(fitted)
        or comparisons.on_validation_rows(fitted)
    )
    return card_of(fitted, shown, name=name, dataset=dataset, license_name=license_name, tags=tags)


def card_of(
    fitted: FairIJ,
    shown: Comparison,
    *,
    name: str,
    dataset: str,
    license_name: str | None = None,
    tags: Sequence[str] = (),
    about: About | None = None,
) -> str:
    """The card of a result with audits that were made already."""
    data = metadata(fitted, shown, name=name, dataset=dataset, license_name=license_name, tags=tags)
    head = "\n".join(f"{key}: {json.dumps(value)}" for key, value in data.items())
    parts = [
        f"---\n{head}\n---",
        f"# {inline(name)}",
        inline(f"{headline.answer(fitted, shown, about)} {headline.costs(fitted, shown)}".strip()),
        "\n".join(f"- **{inline(part.text)}**" for part in shortfalls(fitted, shown, about)),
        "## Figures",
        f"Of {inline(shown.rows)} ({inline(dataset)}), with {100 * shown.confidence:g} % "
        "intervals. "
        f"Positive means {inline(shown.before.positive_label)!s}.",
        _figures(comparisons.metric_rows(fitted, shown)),
        "\n".join(f"- {inline(text)}" for text in shown.said),
        "## Rates by group",
        *_rates(shown),
        "## Read with care",
        _doubts(fitted, shown, about),
        "## What was done",
        _facts(fitted),
        "The model as it was can be had back: the edit file holds the old parameters and the "
        "change (`fairij undo`).",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def metadata(
    fitted: FairIJ,
    shown: Comparison,
    *,
    name: str,
    dataset: str,
    license_name: str | None,
    tags: Sequence[str],
) -> dict[str, Any]:
    """The metadata of the card, in the keys of the Hugging Face hub."""
    library = library_of(fitted.estimator_)
    kind = "classification" if fitted.loss_.is_classification else "regression"
    task = f"{'text' if library in OF_TEXTS else 'tabular'}-{kind}"
    values = shown.after.metrics["value"]
    metrics = [
        {"type": str(metric), "name": str(metric).replace("_", " "), "value": float(value)}
        for metric, value in values.items()
        if math.isfinite(value)
    ]
    slug = "-".join(dataset.lower().split())
    result = {
        "task": {"type": task},
        "dataset": {"name": dataset, "type": slug, "split": shown.rows},
        "metrics": metrics,
    }
    given = {} if license_name is None else {"license": license_name}
    return {
        **given,
        "library_name": library,
        "pipeline_tag": task,
        "tags": list(dict.fromkeys(["fairness", "fairij", *map(str, tags)])),
        "model-index": [{"name": name, "results": [result]}],
    }


def library_of(model: Any) -> str:
    """The name of the model's library; of an unknown one, that of its package."""
    packages = [kind.__module__.split(".")[0] for kind in type(model).__mro__]
    return next((LIBRARIES[one] for one in packages if one in LIBRARIES), packages[0])


def inline(text: Any) -> str:
    """Text that stays text in Markdown: no marks, tags or new lines of its own."""
    found = " ".join(printable(str(text)).split())
    for mark in "\\`*_[]<>|#":
        found = found.replace(mark, f"\\{mark}")
    return found


def _figures(rows: Iterable[Row], *, by_group: bool = False) -> str:
    lead = ["group", "rows"] if by_group else []
    lines = [
        (
            *([inline(row.group), row.size] if by_group else []),
            f"**{inline(row.name)}**" if row.asked else inline(row.name),
            _with_interval(row.before, row.before_interval),
            _with_interval(row.after, row.after_interval),
        )
        for row in rows
    ]
    return table([*lead, "figure", "before", "after"], lines)


def _rates(shown: Comparison) -> list[str]:
    rows, left_out = comparisons.rate_rows(shown, MOST_RATES)
    found = _figures(rows, by_group=True)
    return [found, f"{left_out:,} more groups are not listed."] if left_out else [found]


def _with_interval(value: str, interval: str) -> str:
    return f"{value} ({interval})" if interval else value


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the cells must be safe already."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _doubts(fitted: FairIJ, shown: Comparison, about: About | None) -> str:
    validation = comparisons.on_validation_rows(fitted)
    unseen = None if shown.rows == validation.rows else shown
    found = [
        check for check in checks(fitted, validation, unseen, about) if check.verdict != "green"
    ]
    lines = [f"- {check.verdict}: {inline(f'{check.name} {check.text}')}" for check in found]
    return "\n".join(lines) or "None of fairij's checks found a reason for doubt."


def _facts(fitted: FairIJ) -> str:
    settings: Mapping[str, Any] = fitted.edit_.settings
    lines = [(words, inline(settings[key])) for key, words in FACTS.items() if key in settings]
    lines += [
        ("rule of choice", inline(fitted.selection)),
        ("training rows", f"{int(fitted.diagnostics_['n_train']):,}"),
        ("training rows that the edit leaves out", f"{len(fitted.dropped_):,}"),
        ("edited parameters", f"{len(fitted.edit_.before):,}"),
        ("fingerprint of the training rows", f"`{fitted.edit_.data[:16]}`"),
        ("groups at prediction", "not needed"),
        ("fairij", __version__),
    ]
    return table(["", ""], lines)
