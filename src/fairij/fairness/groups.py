"""What users give per row: checked vectors, and sensitive attributes as group codes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.errors import InvalidInputError

MissingGroups = Literal["error", "ignore"]
MISSING_GROUPS = get_args(MissingGroups)
ROUNDED = 1e-3  # how far the chances of a row may sum beside one
COLLECTED: dict[str, str] = {  # what is computed only when asked for -> how to ask
    "dask dask_expr": "compute",
    "pyspark": "toPandas",
    "polars.lazyframe": "collect",
}


def check_in_memory(name: str, values: Any) -> None:
    """Raise for tables that are not computed yet."""
    module = type(values).__module__
    for prefixes, method in COLLECTED.items():
        if any(module.startswith(f"{prefix}.") or module == prefix for prefix in prefixes.split()):
            raise InvalidInputError(
                f"`{name}` must be in memory or in a file, but this {type(values).__name__} of "
                f"{module.split('.')[0]} is computed only when asked for: give "
                f"`{name}.{method}()`, or write it to Parquet and give an `ArrowSource` of that."
            )


def unwrapped(values: Any) -> Any:
    """A tensor as an array, a masked array as a list with None for masked values."""
    if isinstance(values, (list, tuple)):
        return [None if value is np.ma.masked else value for value in values]
    if hasattr(values, "detach"):
        try:
            return values.detach().cpu().numpy()
        except (RuntimeError, TypeError) as error:  # a sparse tensor, or one without numbers
            said = str(error).splitlines()[0].rstrip(".")
            raise InvalidInputError(
                f"Labels, weights and groups must be plain tensors, but torch says: {said}."
            ) from None
    return values.tolist() if isinstance(values, np.ma.MaskedArray) else values


def not_whole(name: str, error: UnicodeError) -> InvalidInputError:
    """The error about a text with half of a character (a lone surrogate), or with other bytes."""
    return InvalidInputError(
        f"`{name}` must hold whole characters, but {error}: read the text again as UTF-8."
    )


def check_rows(name: str, values: Any, rows: int | None) -> None:
    """Raise unless there is one value per row; None allows any number."""
    if rows is not None and len(values) != rows:
        raise InvalidInputError(
            f"`{name}` must have one row per data point: expected {rows}, got {len(values)}."
        )


def vector(name: str, values: Any, rows: int | None = None) -> NDArray[Any]:
    """A non-empty vector ``(N,)`` without missing or infinite values; text has dtype object."""
    check_in_memory(name, values)
    values = unwrapped(values)
    # as objects: next to text, numpy would turn NaN into the text "nan" and 1 into "1"
    array = np.asarray(values, dtype=object if isinstance(values, (list, tuple)) else None)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or len(array) == 0:
        raise InvalidInputError(
            f"`{name}` must be a non-empty vector, got an array of shape {array.shape}."
        )
    if array.dtype.kind in "OSU":
        try:
            array = pd.Series(array.astype(object)).infer_objects().to_numpy()
        except UnicodeEncodeError as error:
            raise not_whole(name, error) from None
    if array.dtype.kind == "c":
        raise InvalidInputError(
            f"`{name}` must hold plain numbers or text, got {array.dtype} numbers: give their real "
            "part, if that is what is meant."
        )
    try:
        bad = ~np.isfinite(array) if array.dtype.kind == "f" else pd.isna(array)
    except ArithmeticError:  # a decimal that signals
        raise InvalidInputError(f"`{name}` must hold plain numbers or text.") from None
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InvalidInputError(
            f"`{name}` must not hold missing or infinite values, but row {row} is {array[row]}: "
            "drop such rows, or fill them."
        )
    check_rows(name, array, rows)
    return array


def numbers(name: str, values: Any, rows: int | None = None) -> NDArray[np.float64]:
    """A `vector` of numbers."""
    array = vector(name, values)
    try:
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"`{name}` must be numbers, got {array[0]!r}.") from None
    check_rows(name, array, rows)
    return array


def weights(sample_weight: Any, rows: int) -> NDArray[np.float64] | None:
    """Weights ``(N,)`` that are not negative and not all zero; None if there are none."""
    if sample_weight is None:
        return None
    weight = numbers("sample_weight", sample_weight, rows)
    if (weight < 0).any():
        row = int(np.flatnonzero(weight < 0)[0])
        raise InvalidInputError(
            f"`sample_weight` must not be negative: row {row} holds {weight[row]:g}; use 0 to "
            "leave a row out."
        )
    if not weight.any():
        raise InvalidInputError("`sample_weight` must not be all zero; pass None to weigh alike.")
    return weight


def relative(weight: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """Weights where only their ratios count: None if all are equal, else the largest near 1.

    They are divided by a power of two, which changes no digit, so that sums stay finite.
    """
    if weight is None or weight.min() == weight.max():
        return None
    return np.ldexp(weight, -int(np.frexp(weight.max())[1]))


@dataclass(frozen=True, eq=False)
class View:
    """One table of groups among several: the group of each cell in it; -1 if it is not in it."""

    name: str  # the stratum, or the sensitive column
    names: tuple[str, ...]  # of the groups in it
    of_cell: NDArray[np.int64]

    @property
    def matrix(self) -> NDArray[np.float64]:
        """One where a cell is in a group of the view, ``(cells, G)``."""
        found: NDArray[np.float64] = self.of_cell[:, None] == np.arange(len(self.names))
        return found.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Views:
    """The tables in which groups are compared, if that is not one: see `fairij.fairness.views`."""

    kind: Literal["strata", "marginals"]
    each: tuple[View, ...]
    whole: View | None  # the groups without strata


@dataclass(frozen=True)
class Groups:
    """The group of each row, as a code into ``names``, and how much the row counts.

    A row whose group is not known has the code ``len(names)``. It counts for the performance, and
    for no group. If groups are known as chances, the code is that of the likeliest one.
    """

    codes: NDArray[np.int64]  # (N,)
    names: tuple[str, ...]
    absent: tuple[str, ...] = ()  # categories of the column that no row has
    chances: NDArray[np.float64] | None = None  # (N, G), of groups that are not known for sure
    weight: NDArray[np.float64] | None = None  # (N,) what each row counts; None: all alike
    spare: int = 0  # 1 if there may be rows without a group
    views: Views | None = None  # if groups are cells, which are compared in other tables

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def is_plain(self) -> bool:
        """Whether every row counts alike, and for one group."""
        return self.chances is None and self.weight is None and not self.spare

    @property
    def missing(self) -> int:
        """The number of rows whose group is not known."""
        return int((self.codes == len(self.names)).sum())

    @property
    def known(self) -> NDArray[np.int64]:
        """The numbers of the rows whose group is known."""
        return np.flatnonzero(self.codes < len(self.names))

    @property
    def slots(self) -> int:
        """The number of groups, and one more if there are rows without a group."""
        return len(self.names) + self.spare

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows of each group, ``(G,)``; of chances, the number to expect."""
        if self.chances is not None:
            expected: NDArray[np.int64] = self.chances.sum(0).round().astype(np.int64)
            return expected
        return np.bincount(self.codes, minlength=len(self.names))[: len(self.names)]

    def share(self, code: int) -> NDArray[Any]:
        """Which rows are of this group, ``(N,)``, or how likely each is."""
        return self.codes == code if self.chances is None else self.chances[:, code]

    def counted(self, code: int) -> NDArray[Any]:
        """The same `share`, without rows of the weight 0."""
        share = self.share(code)
        return share if self.weight is None else share * (self.weight > 0)

    def membership(self, weight: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """What each row counts for each group, ``(N, slots)``; rows sum to their weights."""
        member = np.zeros((len(self), self.slots))
        member[np.arange(len(self)), self.codes] = 1.0
        if self.chances is not None:
            known = self.known
            member[known, : len(self.names)] = self.chances[known]
        for one in (weight, self.weight):
            if one is not None:
                member *= one[:, None]
        return member

    def take(self, index: NDArray[np.int64]) -> Groups:
        """The groups of some rows; codes and names stay the same."""
        chances, weight = (None if v is None else v[index] for v in (self.chances, self.weight))
        return replace(self, codes=self.codes[index], chances=chances, weight=weight)

    def followed_by(self, others: Groups) -> Groups:
        """These rows and then others, whose groups have the same names."""
        both, size = (self, others), len(self.names)
        chances, weight = None, None
        if any(part.chances is not None for part in both):
            chances = np.concatenate([replace(p, weight=None).membership()[:, :size] for p in both])
        if any(part.weight is not None for part in both):
            weight = np.concatenate(
                [np.ones(len(p)) if p.weight is None else p.weight for p in both]
            )
        codes = np.concatenate([self.codes, others.codes])
        spare = max(part.spare for part in both)
        return Groups(codes, self.names, self.absent, chances, weight, spare)

    def coded_as(self, names: tuple[str, ...]) -> Groups:
        """The same rows with the codes of ``names``, which must have every group that occurs."""
        places = {name: code for code, name in enumerate(names)}
        codes = np.array([*(places[name] for name in self.names), len(names)], dtype=np.int64)
        chances = None
        if self.chances is not None:
            chances = np.zeros((len(self), len(names)))
            chances[:, codes[:-1]] = self.chances
        return Groups(codes[self.codes], names, (), chances, self.weight, self.spare)

    def weighted(self, weight: NDArray[np.float64] | None) -> Groups:
        """The same groups of rows that count by these weights, whose mean becomes one."""
        if weight is None:
            return self
        return replace(self, weight=weight * (len(weight) / weight.sum()))


def encode_groups(
    sensitive_features: Any,
    *,
    expected_rows: int | None = None,
    missing: MissingGroups = "error",
) -> Groups:
    """Number the groups that occur, in sorted order; of several columns, each distinct row.

    With ``missing="ignore"``, a row with a missing value in any of the columns has no group.
    """
    if isinstance(sensitive_features, Groups):
        check_rows("sensitive_features", sensitive_features, expected_rows)
        return sensitive_features
    if missing not in MISSING_GROUPS:
        raise InvalidInputError(
            f"`missing_groups` must be one of {list(MISSING_GROUPS)}, got {missing!r}."
        )
    if isinstance(sensitive_features, GroupChances):
        return sensitive_features.groups(expected_rows, missing)
    frame = as_frame(sensitive_features, expected_rows=expected_rows, missing=missing)
    lost = frame.isna().any(axis=1).to_numpy()
    if not lost.any():
        return _numbered(frame)
    if lost.all():
        raise InvalidInputError(
            "`sensitive_features` must name the group of some rows, but all are missing."
        )
    groups = _numbered(frame[~lost])
    codes = np.full(len(frame), len(groups.names), dtype=np.int64)
    codes[~lost] = groups.codes
    return replace(groups, codes=codes, spare=1)


def _numbered(frame: pd.DataFrame) -> Groups:
    codes = np.zeros(len(frame), dtype=np.int64)
    names: list[tuple[str, ...]] = [()]
    absent: list[str] = []
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        if isinstance(column.dtype, pd.CategoricalDtype):
            counted = column.value_counts()
            absent += [str(name) for name in counted.index[counted == 0]]
            column = column.astype(column.cat.categories.dtype)
        try:
            inverse, values = pd.factorize(column, sort=True)
        except (TypeError, NotImplementedError) as error:  # for example rows of unlike lengths
            raise InvalidInputError(f"`sensitive_features` cannot be grouped: {error}.") from None
        shown = list(map(str, values))
        if len(set(shown)) < len(shown):  # for example 1 and "1"
            shown = list(map(repr, values))
        pairs, codes = np.unique(codes * len(values) + inverse, return_inverse=True)
        names = [(*names[pair // len(values)], shown[pair % len(values)]) for pair in pairs]
    return Groups(codes.astype(np.int64), tuple(map(" & ".join, names)), tuple(absent))


def as_frame(
    sensitive_features: Any, *, expected_rows: int | None = None, missing: MissingGroups = "error"
) -> pd.DataFrame:
    """The sensitive columns; raises if rows are too few or too many, or values are missing."""
    check_in_memory("sensitive_features", sensitive_features)
    frame = _columns(unwrapped(sensitive_features))
    check_rows("sensitive_features", frame, expected_rows)
    if frame.size == 0:
        raise InvalidInputError("`sensitive_features` must not be empty.")
    try:
        lost = frame.isna().any(axis=1)
    except ArithmeticError:  # a decimal that signals
        raise InvalidInputError("`sensitive_features` must hold plain numbers or text.") from None
    if lost.any() and missing != "ignore":
        raise InvalidInputError(
            f"`sensitive_features` has {int(lost.sum())} missing value(s), the first in row "
            f"{int(np.flatnonzero(lost)[0])}: drop those rows, give them their own group, or pass "
            "missing_groups='ignore', and they take no part in gaps."
        )
    return frame


def _columns(values: Any) -> pd.DataFrame:
    if isinstance(values, (pd.Series, pd.Index, pd.api.extensions.ExtensionArray)):
        return pd.Series(values).to_frame()
    if not isinstance(values, (pd.DataFrame, dict, np.ndarray)):
        values = np.asarray(unwrapped(values), dtype=object)  # next to text, NaN stays NaN
    if isinstance(values, np.ndarray) and values.ndim not in (1, 2):
        raise InvalidInputError(
            "`sensitive_features` must have one value or one row of values per data point, got "
            f"an array of {values.ndim} dimensions."
        )
    try:
        return pd.DataFrame(values)
    except ValueError as error:  # a dict of columns with different lengths
        raise InvalidInputError(f"`sensitive_features` is not a table: {error}.") from None


@dataclass(frozen=True, eq=False)
class GroupChances:
    """Groups that are not known, but how likely each is: a column per group, rows that sum to one.

    Gaps measured by such proxies are biased: by how much depends on how the chances go together
    with labels and predictions among people who look alike to the proxy (Chen et al. 2019, Kallus
    et al. 2022).

    Parameters
    ----------
    table : DataFrame, dict or array of shape (N, G)
        The chances, with the names of the groups as columns.
    names : sequence of str, default=None
        The names, if the table has none.

    Examples
    --------
    >>> chances = GroupChances(np.array([[0.9, 0.1], [0.2, 0.8]]), names=["f", "m"])
    >>> audit([1, 0], [1, 0], sensitive_features=chances).by_group.index.tolist()
    ['f', 'm']
    """

    table: Any
    names: Any = None

    def __len__(self) -> int:
        return len(_columns(self.table))

    def groups(self, expected_rows: int | None, missing: MissingGroups) -> Groups:
        """The chances as `Groups`; a row with a missing value has no group, if that is allowed."""
        check_in_memory("sensitive_features", self.table)
        frame = _columns(unwrapped(self.table))
        check_rows("sensitive_features", frame, expected_rows)
        names = tuple(map(str, frame.columns if self.names is None else self.names))
        if len(names) != frame.shape[1] or len(set(names)) != len(names) or len(names) < 2:
            raise InvalidInputError(
                "`sensitive_features` of chances must have at least two columns, each with a name "
                f"of its own; got {frame.shape[1]} columns and the names {list(names)}."
            )
        try:
            chances = frame.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"`sensitive_features` of chances must be numbers from 0 to 1: {error}."
            ) from None
        lost = np.isnan(chances).any(1)
        if lost.any() and missing != "ignore":
            raise InvalidInputError(
                f"`sensitive_features` has {int(lost.sum())} row(s) with missing chances, the "
                f"first is row {int(np.flatnonzero(lost)[0])}: drop those rows, or pass "
                "missing_groups='ignore', and they take no part in gaps."
            )
        chances[lost] = 0
        _check_chances(chances, lost)
        codes = np.where(lost, len(names), chances.argmax(1)).astype(np.int64)
        total = chances.sum(1, keepdims=True)
        spare = int(lost.any())
        return Groups(codes, names, (), chances / np.where(total > 0, total, 1), spare=spare)


def _check_chances(chances: NDArray[np.float64], lost: NDArray[np.bool_]) -> None:
    wrong = ~lost & ~((chances >= 0).all(1) & (np.abs(chances.sum(1) - 1) <= ROUNDED))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(
            "`sensitive_features` of chances must be at least 0 and sum to one in every row, but "
            f"row {row} holds {chances[row].round(6).tolist()}, which sum to "
            f"{chances[row].sum():.6g}: divide each row by its sum, if the numbers are shares."
        )
    if lost.all() or not (chances > 0).any(0).all():
        raise InvalidInputError(
            "`sensitive_features` of chances must give every group some chance in some row; leave "
            "out columns that are all zero."
        )
