"""Loaders of comments: labels, mentions by terms, splits that near-copies do not cross."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairij.datasets import (
    DatasetUnavailable,
    HashMismatch,
    fetch_civil_comments,
    fetch_wikipedia_comments,
)
from fairij.datasets.comments import (
    IDENTITIES,
    IDENTITY_TERMS,
    fixed_split,
    mentions_any,
    normalised,
)


@pytest.fixture
def wikipedia_file(tmp_path: Path) -> Path:
    texts = ["Muslims pray", "a woman spoke", "null", "gay rights", "NA", "the islamicate, plainly"]
    target = tmp_path / "clean_data.csv"
    pd.DataFrame({"is_offensive": [0, 1, 0, 1, 0, 1], "text": texts}).to_csv(target, index=False)
    return target


@pytest.fixture
def civil_file(tmp_path: Path) -> Path:
    """Six comments with the columns of WILDS' file; nobody was asked about the last."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "comment_text": ["null", "a", "b", "c", "d", "e"],
            "split": ["train", "train", "val", "val", "test", "test"],
            "toxicity": [0.5, 0.49, 0.8, 0.0, 1.0, 0.2],
            **{name: rng.random(6).round(2) for name in IDENTITIES},
        }
    )
    table["muslim"] = [0.5, 0.2, 1.0, 0.0, 0.6, np.nan]
    folder = tmp_path / "civilcomments_v1.0"
    folder.mkdir()
    table.to_csv(folder / "all_data_with_identities.csv")
    return folder / "all_data_with_identities.csv"


def test_wikipedia_comments_have_labels_and_mentions(wikipedia_file: Path) -> None:
    comments = fetch_wikipedia_comments(
        path=wikipedia_file, verify=False, sensitive=["muslim", "female", "lgbt"]
    )
    assert comments.data.tolist()[2] == "null"  # a word, not a missing value
    assert comments.target.tolist() == [0, 1, 0, 1, 0, 1]
    assert comments.sensitive_features["muslim"].tolist() == [True] + [False] * 5
    assert comments.sensitive_features.sum().tolist() == [1, 1, 1]
    assert set(comments.split) <= {"train", "val", "test"}
    one = fetch_wikipedia_comments(path=wikipedia_file, verify=False, as_frame=False)
    assert one.sensitive_features.tolist() == [True] + [False] * 5
    assert isinstance(one.data, np.ndarray)


def test_wikipedia_comments_want_the_published_file(wikipedia_file: Path) -> None:
    with pytest.raises(HashMismatch, match=r"must have the SHA-256 27b5f974"):
        fetch_wikipedia_comments(path=wikipedia_file)
    wikipedia_file.write_text("label,text\n1,a\n")
    with pytest.raises(ValueError, match="must have the columns is_offensive and text"):
        fetch_wikipedia_comments(path=wikipedia_file, verify=False)
    with pytest.raises(ValueError, match=r"`sensitive` must name one or more of \['black'"):
        fetch_wikipedia_comments(sensitive="martian")


def test_terms_are_whole_words_in_any_case() -> None:
    texts = pd.Series(
        ["MUSLIM!", "musliminity", "the Quran.", "black people", "blackboard", "jews'"]
    )
    assert mentions_any(texts, IDENTITY_TERMS["muslim"]).tolist() == [1, 0, 1, 0, 0, 0]
    assert mentions_any(texts, IDENTITY_TERMS["black"]).tolist() == [0, 0, 0, 1, 0, 0]
    assert mentions_any(texts, IDENTITY_TERMS["jewish"]).tolist() == [0, 0, 0, 0, 0, 1]


def test_near_copies_fall_into_one_split_and_shares_are_as_said() -> None:
    copies = ["You are SO wrong!!!", "you are sooo wrong 123", "Yóu are so wrong"]
    assert len({normalised(text) for text in copies}) == 1
    words = [f"{a}{b}{c}" for a in "abcdefghijkl" for b in "mnopqrstuvwx" for c in "bcdfghjklm"]
    split = fixed_split(pd.Series(words))
    shares = split.value_counts(normalize=True)
    assert shares["train"] == pytest.approx(0.5, abs=0.04)
    assert shares["val"] == pytest.approx(0.25, abs=0.04)
    assert fixed_split(pd.Series(words[::-1])).tolist() == split.tolist()[::-1]


def test_civil_comments_keep_the_official_split_and_thresholds(civil_file: Path) -> None:
    for path in (civil_file, civil_file.parent, civil_file.parents[1]):
        comments = fetch_civil_comments(path=path)
        assert comments.target.tolist() == [1, 0, 1, 0, 1, 0]
        assert comments.sensitive_features.tolist() == [True, False, True, False, True, False]
        assert comments.split.tolist() == ["train", "train", "val", "val", "test", "test"]
        assert comments.data.iloc[0] == "null"
    both = fetch_civil_comments(path=civil_file, sensitive=["muslim", "LGBTQ"])
    assert list(both.sensitive_features) == ["muslim", "LGBTQ"]


def test_civil_comments_say_what_is_missing(civil_file: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetUnavailable, match="must be given as `path`"):
        fetch_civil_comments(data_home=tmp_path / "empty")
    with pytest.raises(DatasetUnavailable, match="there is none at"):
        fetch_civil_comments(path=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="`sensitive` must name one or more"):
        fetch_civil_comments(path=civil_file, sensitive="martian")
    table = pd.read_csv(civil_file)
    table.assign(split="dev").to_csv(civil_file)
    with pytest.raises(ValueError, match=r"`split` in .* must be one of"):
        fetch_civil_comments(path=civil_file)
    table.drop(columns="toxicity").to_csv(civil_file)
    with pytest.raises(ValueError, match=r"lacks \['toxicity'\]"):
        fetch_civil_comments(path=civil_file)


def test_civil_comments_are_found_in_the_cache(civil_file: Path, tmp_path: Path) -> None:
    cached = tmp_path / "home" / "civil_comments" / civil_file.name
    cached.parent.mkdir(parents=True)
    cached.write_bytes(civil_file.read_bytes())
    assert len(fetch_civil_comments(data_home=tmp_path / "home").data) == 6
