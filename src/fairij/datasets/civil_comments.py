"""CivilComments as WILDS publishes it: toxicity, identities by annotators, the official split."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.utils import Bunch

from fairij.datasets._files import DatasetUnavailable, PathLike, get_data_home
from fairij.datasets.wikipedia_comments import check_identities, text_bunch

FILE_NAME = "all_data_with_identities.csv"
# WILDS' own groups; the finer columns of the file can be asked for by their names
IDENTITIES = (
    "male",
    "female",
    "LGBTQ",
    "christian",
    "muslim",
    "other_religions",
    "black",
    "white",
)
SPLITS = ("train", "val", "test")
TOXIC, MENTIONED = 0.5, 0.5  # share of annotators from which on it counts, as in WILDS
TARGET_NAMES = ("not toxic", "toxic")

DESCR = """CivilComments (Borkan et al. 2019) as in WILDS (Koh et al. 2021), CC0.

About 448,000 public comments: 269,038 for training, 45,180 for validation, 133,782 for testing
(`split`, WILDS' own). Target: 1 where at least half of the annotators called the comment toxic.
Sensitive: whether at least half of them said that it mentions an identity; the rest of the rows,
those without the annotation too, are the other group, as in WILDS and in Fair-IJ's experiments.
"""


def fetch_civil_comments(
    *,
    sensitive: str | Sequence[str] = "muslim",
    as_frame: bool = True,
    data_home: PathLike | None = None,
    path: PathLike | None = None,
    hub: str | None = None,
) -> Bunch:
    """Load WILDS' file with its official split.

    Parameters
    ----------
    sensitive : an identity column of the file, or a list of them
        What `sensitive_features` holds: a Series of booleans for one name, a DataFrame for a list.
    as_frame : bool
        Whether to return pandas objects; numpy arrays otherwise.
    data_home : path, optional
        The cache folder; the file is looked for in its folder ``civil_comments``.
    path : path, optional
        The file, or a folder that holds it; WILDS' own download is such a folder.
    hub : str, optional
        A dataset repository of the Hugging Face hub that holds the file, as "name/repository";
        taken where neither `path` nor the cache has it. Needs `huggingface_hub`.

    Returns
    -------
    Bunch
        `data` (the texts), `target`, `sensitive_features`, `split` ('train', 'val' or 'test'),
        `feature_names`, `target_names`, `DESCR`, `source` by file name.
    """
    file = _locate(path, data_home, hub)
    # "null" is a comment that somebody wrote
    table = pd.read_csv(file, keep_default_na=False, low_memory=False)
    _check_columns(table, file)
    known = {c: None for c in table.columns if c not in {"comment_text", "split", "toxicity"}}
    names = check_identities(sensitive, known)
    mentions = pd.DataFrame({name: _share(table, name) >= MENTIONED for name in names})
    return text_bunch(
        table["comment_text"].astype(str),
        (_share(table, "toxicity") >= TOXIC).astype("int64").rename("target"),
        mentions,
        table["split"],
        one=sensitive if isinstance(sensitive, str) else None,
        as_frame=as_frame,
        target_names=TARGET_NAMES,
        descr=DESCR,
        source={FILE_NAME: str(file)},
    )


def _locate(path: PathLike | None, data_home: PathLike | None, hub: str | None) -> Path:
    cached = get_data_home(data_home) / "civil_comments" / FILE_NAME
    if path is not None:
        given = Path(path).expanduser()
        inside = [given] if given.is_file() else sorted(given.glob(f"**/{FILE_NAME}"))
        if inside:
            return inside[0]
        raise DatasetUnavailable(
            f"`path` must lead to {FILE_NAME}, but there is none at {given}. WILDS publishes it "
            "as part of civilcomments_v1.0 (https://wilds.stanford.edu/datasets/)."
        )
    if cached.is_file():
        return cached
    if hub is not None:
        return _from_hub(hub)
    raise DatasetUnavailable(
        f"{FILE_NAME} must be given as `path`, put at {cached}, or be named by `hub`: WILDS "
        "publishes it as part of civilcomments_v1.0 (https://wilds.stanford.edu/datasets/)."
    )


def _from_hub(repository: str) -> Path:
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise DatasetUnavailable(
            "`hub` needs the package huggingface_hub: install fairij[transformers]."
        ) from error
    try:
        return Path(hf_hub_download(repository, FILE_NAME, repo_type="dataset"))
    except Exception as error:  # its errors have no common class that is part of its interface
        raise DatasetUnavailable(
            f"{FILE_NAME} could not be had from {repository!r} on the hub: "
            f"{type(error).__name__}. Give a file as `path`."
        ) from error


def _check_columns(table: pd.DataFrame, file: Path) -> None:
    missing = [c for c in ("comment_text", "split", "toxicity") if c not in table.columns]
    if missing:
        raise ValueError(
            f"{file} must have the columns of WILDS' {FILE_NAME}, but lacks {missing}."
        )
    strange = sorted(set(table["split"]) - set(SPLITS))
    if strange:
        raise ValueError(f"`split` in {file} must be one of {SPLITS}, found {strange[:3]}.")


def _share(table: pd.DataFrame, column: str) -> Any:
    """The share of annotators; 0 where nobody was asked."""
    return pd.to_numeric(table[column], errors="coerce").fillna(0.0)
