"""What two processes do in `test_two_processes`, case by case, after one start.

``python two_processes.py FOLDER``. It forks once the libraries are loaded. Each process writes what
it met to ``RANK.json``.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parents[1]))

import fairij.mitigator
import fairij.scale.run
from biased import L2, fair, fitted, problem
from fairij import Constrained, FairIJ, Grid, Shard, stream_influence
from fairij.data import forked
from fairij.errors import InvalidInputError
from fairij.method import engine, preparation
from fairij.models.torch.linearization import TorchLinearization

FOLDER, OTHER = Path(sys.argv[1]), os.fork()
RANK = int(OTHER == 0)
forked._started_in = os.getpid()  # as if it had been started by itself
D = problem()
NAMES = list("abcd")
SMALL = {"search": Grid(points=3, scales=(1.0,))}


def own(values: Any) -> Any:
    """This process's half."""
    half = len(values) // 2
    return values[half:] if RANK else values[:half]


X, Y = own(D.X), own(D.y)
FRAME = pd.DataFrame(X, columns=NAMES)
GROUPS = pd.DataFrame({"sex": own(D.sex), "race": own(D.race)})


def results(model: FairIJ) -> dict[str, Any]:
    return {
        "influence": model.influence_.tolist(),
        "delta": model.edit_.delta.double().tolist(),
        "dropped": model.dropped_.tolist(),
    }


def agrees() -> dict[str, Any]:
    """All rows, those for validation too, are spread over the processes."""
    model = FairIJ(
        fitted(dtype=torch.float64),
        selection="lowest_gap",
        verbose=False,
        weight_decay=L2,
        search=Grid(points=5, scales=(1.0, 3.0)),
    )
    model.fit(
        Shard.of(D.X.astype(float)),
        Y,
        sample_weight=own(np.linspace(1, 2, len(D.y))),
        X_val=Shard(own(D.X_val.astype(float))),
        y_val=own(D.y_val),
        sensitive_features_val=own(D.sex_val),
    )
    return results(model)


def constrained() -> dict[str, Any]:
    """Groups of the training rows are known too."""
    model = FairIJ(
        fitted(dtype=torch.float64), verbose=False, weight_decay=L2, search=Constrained(steps=3)
    )
    model.fit(
        Shard.of(D.X.astype(float)),
        Y,
        sensitive_features=own(D.sex),
        X_val=Shard(own(D.X_val.astype(float))),
        y_val=own(D.y_val),
        sensitive_features_val=own(D.sex_val),
    )
    return results(model)


def fit(rows: Any, y: Any = Y, module: Any = ..., given: Any = None, **settings: Any) -> Any:
    return results(D.fit(fair(module, **SMALL | settings), X=rows, y=y, **given or {}))


def split(groups: Any) -> Any:
    return results(fair(**SMALL).fit(Shard(X), Y, sensitive_features=groups))


def checkpointed() -> Any:
    first, again = (fit(Shard(X), checkpoint=FOLDER / "fit") for _ in range(2))
    return first == again


def moved() -> Any:
    module = copy.deepcopy(fitted())
    with torch.no_grad():
        module[0].bias += RANK
    return module


def with_a_hole() -> Any:
    rows = X.copy()
    rows[3, 1] = np.nan if RANK else 0.0
    return rows


def one_shard_passed() -> Any:
    shard = Shard(X)
    return fit(shard if RANK else D.X, Y if RANK else D.y)


def scored() -> dict[str, Any]:
    model = D.fit(fair(**SMALL))
    shard, kept = Shard.of(D.X), FOLDER / "kept"
    plain = stream_influence(model, shard, Y, out=FOLDER / "s.npy", top=9)
    tops = [
        stream_influence(model, shard, Y, top=9, checkpoint=folder)
        for folder in (kept, kept, kept if RANK else None)
    ]
    return {
        "influence": model.influence_.tolist(),
        "rows": plain.rows.tolist(),
        "scores": plain.scores.tolist(),
        "again": [top.scores.tolist() for top in tops],
    }


CASES: dict[str, Callable[[], Any]] = {
    "agrees": agrees,
    "constrained": constrained,
    "checkpointed": checkpointed,
    "scored": scored,
    "too few labels": lambda: stream_influence(D.fit(fair(**SMALL)), Shard(X), Y[: 120 - RANK]),
    "model": lambda: fit(Shard(X), module=moved()),
    "validation rows": lambda: fit(Shard(X), given={"X_val": D.X_val + RANK}),
    "settings": lambda: fit(Shard(X), damping=0.01 + RANK),
    "value": lambda: fit(Shard(with_a_hole())),
    "empty": lambda: Shard(X[:0] if RANK else X),
    "order": lambda: Shard(FRAME[NAMES[::-1]] if RANK else FRAME),
    "width": lambda: Shard(X[:, : 4 - RANK]),
    "names": lambda: Shard(FRAME if RANK else X),
    "form": lambda: Shard({"a": X} if RANK else {"b": X}),
    "part": lambda: Shard((X, X[:, : 2 + RANK])),
    "weight": lambda: fit(Shard(X), given={"sample_weight": np.ones(len(Y)) if RANK else None}),
    "labels": lambda: fit(Shard(X), None if RANK else Y),
    "label name": lambda: fit(Shard(FRAME), "y"),
    "groups": lambda: split(GROUPS[["race", "sex"]] if RANK else GROUPS),
    "missing": lambda: split([None, *own(D.sex)[1:]] if RANK else own(D.sex).tolist()),
    "made": lambda: fit(Shard(X) if RANK else D.X, Y if RANK else D.y),
    "passed": one_shard_passed,
    "loader": lambda: fit(DataLoader(D.X, shuffle=bool(RANK)), D.y),  # type: ignore[arg-type]
    "rows": lambda: Shard.of(D.X[: 240 - 20 * RANK]),
    "checkpoint": lambda: fit(Shard(X), checkpoint=FOLDER / "some" if RANK else None),
    "well": lambda: fit(Shard(X)),
    "dict": lambda: split(GROUPS.to_dict("list")),
    "frame": lambda: split(GROUPS),
}


def failing(place: tuple[Any, str], error: Exception, after: int = 0) -> Callable[[], Any]:
    """A fit in which process 1 fails at a place."""

    def work() -> Any:
        original, calls = getattr(*place), []

        def fails(*args: Any, **given: Any) -> Any:
            calls.append(1)
            if len(calls) > after:
                raise error
            return original(*args, **given)

        if RANK:
            setattr(*place, fails)
        try:
            return fit(Shard(X))
        finally:
            setattr(*place, original)

    return work


def ended() -> Any:
    """Process 1 ends without a word."""
    if RANK:
        TorchLinearization.sandwich = lambda *args: os._exit(1)  # type: ignore[method-assign]
    return fit(Shard(X))


BAD_ROWS = InvalidInputError("bad rows")
CASES |= {
    "in a product": failing((TorchLinearization, "sandwich"), ZeroDivisionError("a bug"), after=2),
    "between exchanges": failing((engine, "most_harmful"), MemoryError()),
    "after the last exchange": failing((fairij.mitigator, "edit_of"), KeyError("edit")),
    "where columns are read": failing((fairij.mitigator, "data_of"), BAD_ROWS),
    "where errors are ignored": failing((preparation, "check_runs"), BAD_ROWS),
    "where errors are reworded": failing((preparation, "speaking_of"), BAD_ROWS),
    "well after failures": CASES["well"],
    "ended": ended,  # the last, as the group has lost a process
}


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    meeting = f"file://{FOLDER}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=RANK, world_size=2)
    met = {}
    for name, work in CASES.items():
        try:
            met[name] = ["well", work()]
        except Exception as error:
            met[name] = [type(error).__name__, str(error)]
        (FOLDER / f"{RANK}.json").write_text(json.dumps(met, default=str))
    if OTHER:
        os.waitpid(OTHER, 0)
    os._exit(0)  # a group that lost a process cannot be taken down in order


if __name__ == "__main__":
    main()
