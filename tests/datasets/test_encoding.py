import numpy as np
import pandas as pd
import pytest

from fairij.datasets import encode

TRAIN = pd.DataFrame({"age": [20, 30, 40], "constant": 7.0, "job": ["clerk", "nurse", "clerk"]})


def test_numbers_are_standardised_and_text_is_one_hot() -> None:
    encoded = encode(TRAIN)
    unit = np.sqrt(1.5)
    expected = [[-unit, 0, 1, 0], [0, 0, 0, 1], [unit, 0, 1, 0]]
    np.testing.assert_allclose(encoded.arrays[0], expected, rtol=1e-6)
    assert encoded.arrays[0].dtype == np.float32
    assert encoded.feature_names == ("age", "constant", "job_clerk", "job_nurse")


def test_the_fit_sees_the_training_rows_alone() -> None:
    other = pd.DataFrame({"age": [1e6], "constant": [8.0], "job": ["clerk"]})
    alone, together = encode(TRAIN), encode(TRAIN, other)
    np.testing.assert_array_equal(alone.arrays[0], together.arrays[0])
    np.testing.assert_allclose(together.arrays[1][0, 1], 1.0)  # a constant is only shifted
    np.testing.assert_allclose(together.arrays[1], alone.transformer.transform(other), rtol=1e-6)


def test_a_constant_column_survives_rounding_errors() -> None:
    train = pd.DataFrame({"x": np.full(1000, 0.1) * 3})
    np.testing.assert_allclose(encode(train).arrays[0], 0.0, atol=1e-6)


def test_an_unseen_level_is_a_row_of_zeros() -> None:
    other = TRAIN.assign(job=["pilot", None, "nurse"])
    np.testing.assert_array_equal(encode(TRAIN, other).arrays[1][:, 2:], [[0, 0], [0, 0], [0, 1]])


def test_declared_levels_give_columns_even_if_training_lacks_them() -> None:
    levels = pd.CategoricalDtype(["clerk", "nurse", "pilot"])
    encoded = encode(TRAIN.astype({"job": levels}))
    assert encoded.feature_names[2:] == ("job_clerk", "job_nurse", "job_pilot")
    np.testing.assert_array_equal(encoded.arrays[0][:, 4], 0.0)


def test_missing_numbers_and_columns_are_named() -> None:
    with pytest.raises(ValueError, match=r"no missing values, found some in \['age'\]"):
        encode(TRAIN, TRAIN.assign(age=[1, None, 2]))
    with pytest.raises(ValueError, match=r"one lacks \['job'\]"):
        encode(TRAIN, TRAIN.drop(columns="job"))
