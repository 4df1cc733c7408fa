"""Tables and models of other libraries: taken, or refused with what to do. Stand-ins for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from biased import fair, fitted, problem
from fairij.data.rows import as_source
from fairij.errors import InvalidInputError

DATA = problem()


def stand_in(module: str, name: str, *bases: type, **members: Any) -> Any:
    return type(name, bases, {"__module__": module} | members)


LAZY = {
    "dask.dataframe.dask_expr._collection": ("DataFrame", "compute"),
    "dask.array.core": ("Array", "compute"),
    "pyspark.sql.dataframe": ("DataFrame", "toPandas"),
    "polars.lazyframe.frame": ("LazyFrame", "collect"),
}


@pytest.mark.parametrize("module", LAZY)
@pytest.mark.parametrize("name", ["X", "y", "sensitive_features_val"])
def test_tables_that_are_not_computed_yet_are_refused(module: str, name: str) -> None:
    kind, cure = LAZY[module]
    table = stand_in(module, kind)()
    with pytest.raises(InvalidInputError, match=rf"`{name}` must be in memory.*\.{cure}\(\)"):
        DATA.fit(fair(), **{name: table})


class Column:
    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def to_numpy(self) -> np.ndarray:
        return self.values


def test_a_polars_frame_is_taken_as_a_frame() -> None:
    columns = {"a": np.arange(3.0), "b": np.array(["x", "y", "x"], object)}
    kind = stand_in(
        "polars.dataframe.frame",
        "DataFrame",
        columns=list(columns),
        __getitem__=lambda self, name: Column(columns[name]),
    )
    pd.testing.assert_frame_equal(as_source(kind()), pd.DataFrame(columns))


OTHERS = [
    ("keras.src.models.sequential", "Sequential", "torch.nn.Module, copy the weights over"),
    ("tensorflow.python.keras.engine", "Model", "torch.nn.Module, copy the weights over"),
    ("flax.linen.module", "Dense", "torch.nn.Module, copy the weights over"),
    ("pyspark.ml.classification", "GBTClassificationModel", "toPandas"),
    ("onnxruntime.capi", "InferenceSession", "the model that it was exported from"),
]


@pytest.mark.parametrize(("module", "name", "cure"), OTHERS)
def test_models_of_other_libraries_are_refused_with_what_to_do(
    module: str, name: str, cure: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"A {name} cannot be edited: .*{cure}"):
        DATA.fit(fair(stand_in(module, name)()))


def test_a_keras_model_on_torch_is_no_torch_module() -> None:
    kind = stand_in("keras.src.models.sequential", "Sequential", nn.Module)
    with pytest.raises(InvalidInputError, match="A Sequential cannot be edited: Keras"):
        DATA.fit(fair(kind()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"scripted module .torch.jit. cannot be edited"):
        DATA.fit(fair(torch.jit.script(fitted())))
