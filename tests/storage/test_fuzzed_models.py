"""Thousands of model files with a changed structure: read or refused, never the process's end.

What is read is used in every way that an edit uses it, because a library may crash only then.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import pytest
import xgboost
from pandas.api.types import is_numeric_dtype

import mutations
import plain_files
from fairij import adapt
from fairij.errors import FairIJError
from fairij.models.trees.catboost import described
from fairij.storage.model_files import load_model
from fairij.storage.model_files.columns import is_catboost

TABLE = plain_files.make_table(120, 0)
ROWS = TABLE[plain_files.FEATURES]
FORMATS = ("txt", "json", "ubj", "catboost")
ENDINGS = {"catboost": "json"}
FEW, MANY = 60, 5000
LONGEST = 30  # seconds for one file
MEMORY = 2**33
Kept = tuple[bytes, Any]  # a LightGBM text; an XGBoost model as tables


def of_catboost() -> list[Kept]:
    """Tables and branches, one and three outputs, with statistics of categories."""
    label, kinds = TABLE["repaid"].to_numpy(), np.arange(len(TABLE)) % 3
    rows = ROWS.assign(word=[f"w{n % 9}" for n in range(len(ROWS))], few=[f"{n}" for n in kinds])
    settings = {"iterations": 3, "depth": 3, "verbose": False, "thread_count": 1, "random_seed": 0}
    texts = [name for name in rows.columns if not is_numeric_dtype(rows[name])]
    settings |= {"allow_writing_files": False, "cat_features": texts}
    found: list[Kept] = []
    for kind in ({}, {"grow_policy": "Lossguide"}, {"loss_function": "MultiClass"}):
        model = catboost.CatBoostClassifier(one_hot_max_size=4, **settings, **kind)
        model.fit(rows, kinds if "loss_function" in kind else label)
        found.append((b"", described(model)))
    return found


def models(ending: str) -> list[Kept]:
    """Models of several kinds, small, as text and as tables."""
    if ending == "catboost":
        return of_catboost()
    label = TABLE["repaid"].to_numpy()
    three = np.arange(len(label)) % 3
    rows = plain_files.as_categories(TABLE)
    kinds: list[dict[str, Any]] = [{}, {"boosting": "dart"}, {"num_class": 3}]
    found: list[Kept] = []
    for kind in kinds:
        y = three if "num_class" in kind else label
        if ending == "txt":
            named = rows.rename(columns=lambda name: name.replace(" ", "_"))
            settings = {"verbose": -1, "num_threads": 1, "min_data_in_leaf": 8, **kind}
            objective = "multiclass" if "num_class" in kind else "binary"
            data = lightgbm.Dataset(named, y, params={"verbose": -1})
            booster = lightgbm.train(settings | {"objective": objective}, data, 3)
            found.append((booster.model_to_string().encode(), None))
        else:
            objective = "multi:softprob" if "num_class" in kind else "binary:logistic"
            settings = {"nthread": 1, "max_depth": 3, "objective": objective, **kind}
            settings["booster"] = settings.pop("boosting", "gbtree")
            data = xgboost.DMatrix(rows, y, enable_categorical=True)
            trained = xgboost.train(settings | {"max_cat_to_onehot": 1}, data, 3)
            found.append((b"", json.loads(bytes(trained.save_raw("json")))))
    return found


CHANGES: dict[str, Callable[[Kept, mutations.Rng], bytes]] = {
    "txt": lambda kept, rng: mutations.of_lightgbm(kept[0], rng),
    "json": lambda kept, rng: mutations.of_json(kept[1], rng),
    "ubj": lambda kept, rng: mutations.of_ubj(kept[1], rng),
    "catboost": lambda kept, rng: mutations.of_catboost(kept[1], rng),
}


def used(path: Path) -> str:
    """Open a model, edit it, predict with it, save it and read it again."""
    try:
        file = load_model(path)
        rows = ROWS
        if is_catboost(file.model):
            rows = rows.assign(word="w1", few="2")
        if file.columns is not None:
            rows = rows.set_axis(list(file.columns), axis=1)
        editable = adapt(file.model)
        made = file.prepare(rows)
        editable.outputs(made)
        editable.linearize(made).vjp(editable.outputs(made))
        changed = editable.edited(editable.theta + 1)
        adapt(changed).outputs(made)
        again = path.with_name(f"again{path.suffix}")
        file.save(changed, again)
        load_model(again)
    except FairIJError as error:
        return "refused" if len(str(error)) > 20 else "refused without a word"
    except Exception as error:  # what a library says of odd features is not the reader's matter
        return f"an error of the library: {type(error).__name__}"
    return "read and used"


def try_all(ending: str, folder: str, first: int, last: int) -> None:
    """In a process of its own, which ends with the file that it could not bear."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    kept, found = models(ending), Counter[str]()
    path = Path(folder) / f"model.{ENDINGS.get(ending, ending)}"
    for seed in range(first, last):
        rng = np.random.default_rng(seed)
        path.write_bytes(CHANGES[ending](mutations.pick(rng, kept), rng))
        signal.alarm(LONGEST)  # ends the process
        found[used(path)] += 1
    signal.alarm(0)
    print(json.dumps(found))


@pytest.mark.slow
@pytest.mark.parametrize("ending", FORMATS)
def test_thousands_of_changed_models(tmp_path: Path, ending: str) -> None:
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    code = "import sys; sys.path[:0] = sys.argv[4:]; import test_fuzzed_models as t; "
    code += "t.try_all(sys.argv[1], sys.argv[2], 0, int(sys.argv[3]))"
    done = subprocess.run(
        [sys.executable, "-c", code, ending, str(tmp_path), str(MANY), *here],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, f"ended by {done.returncode}: {done.stderr[-2000:]}"
    found = json.loads(done.stdout.splitlines()[-1])
    print(ending, found)
    assert sum(found.values()) == MANY
    assert found["refused"] > MANY // 2
    assert found["read and used"] > MANY // 50
    assert "refused without a word" not in found


@pytest.mark.parametrize("ending", FORMATS)
def test_some_changed_models(tmp_path: Path, ending: str) -> None:
    warnings.simplefilter("ignore")
    kept, found = models(ending), Counter[str]()
    path = tmp_path / f"model.{ENDINGS.get(ending, ending)}"
    for seed in range(FEW):
        rng = np.random.default_rng(seed)
        path.write_bytes(CHANGES[ending](mutations.pick(rng, kept), rng))
        found[used(path)] += 1
    assert found["refused"] > FEW // 3
    assert "refused without a word" not in found
