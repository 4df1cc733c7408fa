"""Processes whose tables or arguments do not fit together are told so, and go on together."""

from __future__ import annotations

from typing import Any

import pytest
from test_distributed import launch

CASES = """
import pandas as pd
names = list("abcd")
frame = pd.DataFrame(own(D.X), columns=names)
plain, y, groups = own(D.X), own(D.y), pd.DataFrame({"sex": own(D.sex), "race": own(D.race)})


def fit(X, y=y, **given):
    return D.fit(fair(search=Grid(points=3)), X=X, y=y, **given).influence_.tolist()


def split(groups):
    return fair(search=Grid(points=3)).fit(Shard(plain), y, sensitive_features=groups)


def one_shard_passed():
    shard = Shard(plain)
    fit(shard if rank else D.X, y if rank else D.y)


cases = {
    "order": lambda: Shard(frame[names[::-1]] if rank else frame),
    "width": lambda: Shard(plain[:, : 4 - rank]),
    "names": lambda: Shard(frame if rank else plain),
    "form": lambda: Shard({"a": plain} if rank else {"b": plain}),
    "part": lambda: Shard((plain, plain[:, : 2 + rank])),
    "weight": lambda: fit(Shard(plain), sample_weight=np.ones(len(y)) if rank else None),
    "labels": lambda: fit(Shard(plain), None if rank else y),
    "label name": lambda: fit(Shard(frame), "y"),
    "groups": lambda: split(groups[["race", "sex"]] if rank else groups),
    "missing": lambda: split([None, *own(D.sex)[1:]] if rank else own(D.sex).tolist()),
    "made": lambda: fit(Shard(plain) if rank else D.X, y if rank else D.y),
    "passed": one_shard_passed,
    "rows": lambda: Shard.of(D.X[: 240 - 20 * rank]),
    "well": lambda: fit(Shard(plain)),
    "dict": lambda: split(groups.to_dict("list")).influence_.tolist(),
    "frame": lambda: split(groups).influence_.tolist(),
}
met = {}
for name, work in cases.items():
    try:
        met[name] = ["well", work()]
    except Exception as error:
        met[name] = [type(error).__name__, str(error)]
result = [None] * size
torch.distributed.all_gather_object(result, met)
"""


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes met, case by case."""
    found: list[dict[str, Any]] = launch(tmp_path_factory.mktemp("unlike"), 2, CASES)
    return found


COLUMNS = "must have the same columns in the same order on all processes, but process 1 has "
ALL_OR_NONE = "on all processes or on none, but this is so on process "


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("order", f"`X` of a `Shard` {COLUMNS}'d' at place 0 and process 0 has 'a' there"),
        ("width", f"`X` of a `Shard` {COLUMNS}3 columns and process 0 has 4 columns"),
        ("names", f"{COLUMNS}columns with names and process 0 has columns without names"),
        ("form", "in the same form on all processes, but process 1 has `X['a']` and process 0"),
        ("part", f"`X[1]` of a `Shard` {COLUMNS}3 columns and process 0 has 2 columns"),
        ("weight", f"weights and groups must be given {ALL_OR_NONE}1 and not on process 0"),
        ("labels", f"Labels, weights and groups must be given {ALL_OR_NONE}0 and not"),
        ("label name", "must have a value for each of its rows, got 'y': pass the values"),
        ("groups", f"{COLUMNS}'race' at place 0 and process 0 has 'sex' there"),
        ("missing", "`sensitive_features` has 1 missing value(s), the first in row 120"),
        ("made", "process 1 is at the making of a `Shard` and process 0 at a fit: make a `Shard`"),
        ("passed", f"Rows must be a `Shard` {ALL_OR_NONE}1 and not on process 0"),
        ("rows", "process 1 has 220 of them and process 0 has 240: give it the same rows on each"),
    ],
)
def test_both_are_told(met: list[dict[str, Any]], case: str, text: str) -> None:
    for kind, message in (there[case] for there in met):
        assert kind == "InvalidInputError", message
        assert text in message
    assert met[0][case] == met[1][case]


def test_a_fit_after_all_this_is_well(met: list[dict[str, Any]]) -> None:
    assert met[0]["well"][0] == "well", met[0]["well"]
    assert met[0]["well"] == met[1]["well"]


def test_groups_in_a_dict_are_those_in_a_frame(met: list[dict[str, Any]]) -> None:
    assert met[0]["frame"][0] == "well", met[0]["frame"]
    assert met[0]["dict"] == met[0]["frame"]
