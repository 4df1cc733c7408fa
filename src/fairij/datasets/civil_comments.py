"""CivilComments as in WILDS: toxicity and identities from annotators, with the official split."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.utils import Bunch

from fairij.datasets._bunch import check_sensitive, make_bunch
from fairij.datasets._files import DatasetUnavailable, PathLike, get_data_home

FILE_NAME = "all_data_with_identities.csv"
# the groups of WILDS; other columns of the file can be given by name
IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")
REQUIRED = ("comment_text", "split", "toxicity")
PUBLISHED = (
    "WILDS publishes it as part of civilcomments_v1.0 (https://wilds.stanford.edu/datasets/)."
)
HALF = 0.5  # lowest share of annotators, for toxicity and for identities, as in WILDS

DESCR = """CivilComments (Borkan et al. 2019) as in WILDS (Koh et al. 2021), CC0.

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
    """Load WILDS' file with its official split.

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

    Returns
    -------
    Bunch
        `data` (the texts), `target`, `sensitive_features`, `split` ('train', 'val' or 'test'),
        `feature_names`, `target_names`, `DESCR`, `source` by file name.
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
        target_names=("not toxic", "toxic"),
        descr=DESCR,
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
    table = pd.read_csv(file, keep_default_na=False, low_memory=False)  # "null" is a real comment
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
