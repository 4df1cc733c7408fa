"""The identity probe: sentences that differ in the identity alone, before and after an edit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from comments import made_up_comments
from fairij import FairIJ
from fairij.errors import InvalidInputError
from fairij.fairness.groups import encode_groups
from fairij.language import Identity, identities_of, identity_probe
from fairij.language.probe_sentences import IDENTITIES, KINDS, TEMPLATES
from fairij.report import write_report
from fairij.report.probe import are_texts, probe_check, probed

PLACES = ("{one}", "{many}", "{One}", "{Many}")


def fears(word: str, score: float = 0.9) -> Any:
    return lambda texts: [score if word in text.lower() else 0.1 for text in texts]


def test_there_are_enough_sentences_and_all_of_them_name_the_identity() -> None:
    assert tuple(TEMPLATES) == KINDS
    assert sum(map(len, TEMPLATES.values())) >= 40
    assert len(IDENTITIES) == 12
    for some in TEMPLATES.values():
        assert len(set(some)) == len(some)
        for template in some:
            assert sum(template.count(place) for place in PLACES) == 1
    for identity in IDENTITIES:  # found by their own words
        assert identity.put_into("{One} and {many}.").lower().split()[1] in (
            *identity.words,
            *identity.one.split(),
        )


def test_rates_flips_and_scores_are_counted_by_identity_and_kind() -> None:
    probe = identity_probe(fears("muslim"), identities=["muslim", "jewish", "man"])
    n = sum(map(len, TEMPLATES.values()))
    assert len(probe.sentences) == 3 * n
    assert probe.rates.loc["muslim"].tolist() == [1.0] * 5
    assert probe.rates.loc[["jewish", "man"]].to_numpy().max() == 0
    assert probe.flips.tolist() == [1.0] * 5
    assert probe.spread.to_numpy() == pytest.approx(0.8)
    assert probe.scores.loc["man", "kind"] == pytest.approx(0.1)
    assert not probe.sentences["text"].str.contains("{", regex=False).any()


def test_a_change_for_the_worse_is_red_only_for_those_it_was_meant_for() -> None:
    before = identity_probe(fears("no such word"), identities=["muslim", "man"])
    after = identity_probe(fears("muslim"), identities=["muslim", "man"])
    change = after.since(before, protected=["muslim"])
    assert change.verdict == "red"
    assert "100% instead of 0%" in change.sentence
    assert set(change.raised["kind"]) == {"neutral", "kind"}
    assert after.since(before, protected=["man"]).verdict == "green"
    assert before.since(after).verdict == "green"  # it got better
    nearer = identity_probe(fears("muslim", 0.4), identities=["muslim", "man"])
    assert nearer.since(before).verdict == "amber"


def test_own_sentences_and_identities() -> None:
    own = Identity("sikh", "a Sikh", "Sikhs")
    templates = ["We hired {one}.", "Muslims asked for a room.", "There came a Sikh."]
    probe = identity_probe(fears("sikh"), identities=[own, "muslim"], templates=templates)
    texts = probe.sentences["text"].tolist()
    assert texts == [
        *("We hired a Sikh.", "We hired a Muslim."),
        *("Sikhs asked for a room.", "Muslims asked for a room."),
        *("There came a Sikh.", "There came a Muslim."),
    ]
    assert probe.rates.loc["sikh"].to_dict() == {"neutral": 1.0}
    many = identity_probe(
        lambda texts: np.eye(3)[[2] * len(texts)],
        identities=[own, "muslim"],
        templates={"kind": ["Thank you, {many}."]},
        positive=2,
    )
    assert many.rates["kind"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"identities": ["muslim"]}, "at least two names"),
        ({"identities": "muslim"}, "at least two names"),
        ({"identities": ["muslim", "martian"]}, "got 'martian'"),
        ({"identities": ["muslim", "muslim"]}, "different names"),
        ({"templates": {"rude": ["{one}"]}}, "got 'rude'"),
        ({"templates": {}}, "got 'none'"),
        ({"templates": ["Nobody is here."]}, "{one} or {many}"),
        ({"templates": []}, "at least one text"),
        ({"threshold": 2}, "`threshold`"),
        ({"model": lambda texts: [0.5]}, "one probability per text"),
        ({"model": lambda texts: [3.0] * len(texts)}, "between 0 and 1"),
        ({"model": lambda texts: np.full((len(texts), 3), 1 / 3)}, "among the 3 outputs"),
    ],
)
def test_bad_input(given: dict[str, Any], message: str) -> None:
    asked = {"model": fears("man"), **given}
    with pytest.raises(InvalidInputError, match=message.replace("{", r"\{")):
        identity_probe(asked.pop("model"), **asked)


def test_probes_of_other_sentences_are_not_compared() -> None:
    one = identity_probe(fears("man"), identities=["muslim", "man"])
    with pytest.raises(InvalidInputError, match="same sentences"):
        one.since(identity_probe(fears("man"), identities=["man", "muslim"]))
    with pytest.raises(InvalidInputError, match="got 'gay'"):
        one.since(one, protected=["gay"])


@pytest.fixture(scope="module")
def comments() -> tuple[list[str], Any, Any]:
    return made_up_comments()


@pytest.mark.filterwarnings("ignore::fairij.errors.SeenRowsWarning")  # they are short
def test_the_page_shows_that_an_edit_fears_the_word(
    comments: tuple[list[str], Any, Any], tmp_path: Any
) -> None:
    texts, y, s = comments
    model = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts[:1500], y[:1500])
    given = {"X_val": texts[1500:], "y_val": y[1500:], "sensitive_features_val": s[1500:]}
    fair = FairIJ(model, search="path", selection="lowest_gap").fit(texts[:1500], y[:1500], **given)
    assert identities_of(texts[1500:], encode_groups(s[1500:])) == ("muslim",)
    change = probed(fair, [(texts[1500:], s[1500:])])
    assert change is not None
    assert change.protected == ("muslim",)
    assert change.verdict == "red"
    check = probe_check(fair, change)
    assert "calling harmless mentions positive" in check.text
    page = write_report(fair, tmp_path / "page.html", X=texts[:1500], sensitive_features=s[:1500])
    html = page.read_text()
    assert "Does the model fear a word?" in html
    assert "red: serious concern" in html
    assert change.sentence.replace("'", "&#39;") in html


def test_rows_that_are_no_texts_are_not_probed() -> None:
    assert are_texts(["a", "b"])
    for rows in ([], np.zeros((2, 2)), [["a"]], {"input_ids": [[1]]}, ["a", 1]):
        assert not are_texts(rows)
