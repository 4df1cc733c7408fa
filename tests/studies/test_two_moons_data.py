import numpy as np
import pytest
from fairij_studies.two_moons.data import make_two_moons


@pytest.mark.parametrize("noise", [0.0, 0.1, 5.0])
def test_a_line_parts_the_moons(noise: float) -> None:
    moons = make_two_moons(random_state=0, noise=noise)
    lower = moons.target == 1
    assert moons.data.shape == (10_000, 2)
    assert lower.sum() == 5_000
    assert moons.data["x2"][~lower].min() > -0.25 > moons.data["x2"][lower].max()


def test_without_noise_the_moons_are_half_circles() -> None:
    moons = make_two_moons(100, random_state=0, noise=0.0)
    centres = np.where(moons.target.to_numpy()[:, None] == 0, [0.0, 0.0], [1.0, -0.5])
    np.testing.assert_allclose(np.linalg.norm(moons.data - centres, axis=1), 1.0)


def test_the_split_is_eighty_to_twenty_and_follows_the_seed() -> None:
    first, again, other = (make_two_moons(500, random_state=seed) for seed in (0, 0, 1))
    assert first.split.value_counts().to_dict() == {"train": 400, "test": 100}
    assert first.data.equals(again.data)
    assert first.split.equals(again.split)
    assert not first.data.equals(other.data)


@pytest.mark.parametrize(("name", "value"), [("n", 1), ("gap", 0.0), ("noise", -1.0)])
def test_settings_are_checked(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"`{name}`.*got {value}"):
        make_two_moons(**{name: value}, random_state=0)
