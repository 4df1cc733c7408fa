from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from fairij_studies.driver import Study, StudyError, Unit, load_records, run_study
from fairij_studies.provenance import code_hash, source_hash
from fairij_studies.records import JOURNAL, RESULTS, read_records, sole_writer

from fairij.errors import InvalidInputError


def work(number: int, log: str) -> list[dict[str, object]]:
    with open(log, "a") as file:
        file.write(f"{number}\n")
    return [
        {"part": part, "value": np.float64(number + part), "threads": torch.get_num_threads()}
        for part in range(3)
    ]


def not_a_number_at_one(number: int) -> list[dict[str, object]]:
    return [{"value": float("nan") if number == 1 else number}]


def fail_where_marked(number: int, marker: str) -> list[dict[str, object]]:
    if number == 1 and os.path.exists(marker):
        raise ValueError("the marked one")
    return [{"value": number}]


def die(number: int) -> list[dict[str, object]]:
    if number == 0:
        os._exit(3)
    return [{"value": number}]


def nothing_to_draw(frame: pd.DataFrame, folder: Path) -> None:
    return None


def study_of(function: Callable[..., object], n: int = 4, **arguments: object) -> Study:
    def units(quick: bool) -> list[Unit]:
        return [
            Unit({"number": i, "method": "a"}, function, {"number": i, **arguments})
            for i in range(1 if quick else n)
        ]

    return Study("sums", units, nothing_to_draw)


@pytest.mark.parametrize("processes", [1, 2])
def test_every_unit_is_recorded_once_with_its_key_and_seconds(
    tmp_path: Path, processes: int
) -> None:
    heard: list[tuple[str, int, int]] = []
    study = study_of(work, log=str(tmp_path / "log"))
    frame = run_study(
        study,
        tmp_path / "out",
        processes=processes,
        progress=lambda *said: heard.append(said),
    )
    assert sorted(frame["value"]) == sorted(n + p for n in range(4) for p in range(3))
    assert set(frame["threads"]) == {1}
    assert set(frame["code"]) == {code_hash()}
    assert {"study", "version", "number", "method", "seconds", "unit_cpu_seconds"} <= set(frame)
    assert heard[0] == ("sums", 0, 4)
    assert heard[-1] == ("sums", 4, 4)
    run_study(study, tmp_path / "out", processes=processes)
    assert len((tmp_path / "log").read_text().split()) == 4


def test_a_stopped_study_goes_on_where_it_stopped(tmp_path: Path) -> None:
    study = study_of(work, log=str(tmp_path / "log"))
    run_study(study, tmp_path, only=lambda unit: unit.key["number"] != 2)
    frame = run_study(study, tmp_path)
    assert (tmp_path / "log").read_text().split() == ["0", "1", "3", "2"]
    assert sorted(frame["number"].unique()) == [0, 1, 2, 3]


def test_a_failed_unit_does_not_stop_the_others_and_can_be_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    marker = tmp_path / "marker"
    marker.touch()
    study = study_of(fail_where_marked, marker=str(marker))
    with pytest.raises(StudyError, match=r"1 of 4 units[\s\S]*the marked one"):
        run_study(study, tmp_path / "out")
    assert "A unit failed" in caplog.text  # also if the run is stopped before its end
    assert "the marked one" in caplog.text
    assert sorted(load_records(tmp_path / "out")["value"]) == [0, 2, 3]
    marker.unlink()
    assert sorted(run_study(study, tmp_path / "out")["value"]) == [0, 1, 2, 3]


def test_a_record_that_cannot_be_written_fails_its_own_unit_alone(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"1 of 4 units[\s\S]*not JSON compliant"):
        run_study(study_of(not_a_number_at_one), tmp_path)
    assert sorted(load_records(tmp_path)["value"]) == [0, 2, 3]


@pytest.mark.slow  # three pools of workers are started
def test_a_worker_that_dies_is_reported_and_others_take_over(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="BrokenProcessPool"):
        run_study(study_of(die, n=5), tmp_path, processes=2)
    assert {2, 3, 4} <= set(load_records(tmp_path)["value"])


def test_quick_records_are_kept_apart(tmp_path: Path) -> None:
    study = study_of(work, log=str(tmp_path / "log"))
    assert len(run_study(study, tmp_path, quick=True)) == 3
    assert len(run_study(study, tmp_path)) == 12


def test_two_units_with_one_key_are_refused(tmp_path: Path) -> None:
    study = Study("twice", lambda quick: [Unit({"a": 1}, die)] * 2, nothing_to_draw)
    with pytest.raises(InvalidInputError, match="key of its own"):
        run_study(study, tmp_path)


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    study = study_of(work, log=str(tmp_path / "log"))
    with sole_writer(tmp_path), pytest.raises(InvalidInputError, match="another run"):
        run_study(study, tmp_path)
    assert len(run_study(study, tmp_path)) == 12


def test_records_of_other_data_are_not_gone_on_from(tmp_path: Path) -> None:
    def study(source: str) -> Study:
        units = [Unit({"number": i}, of_data, {"source": source}) for i in range(2)]
        return Study("sums", lambda quick: units, nothing_to_draw, lambda: source)

    run_study(study("one.csv 12ab"), tmp_path, only=lambda unit: unit.key["number"] == 0)
    assert len(run_study(study("one.csv 12ab"), tmp_path)) == 2
    before = (tmp_path / RESULTS).read_bytes()
    with pytest.raises(InvalidInputError, match=r"one.csv 12ab.*reads other.csv 34cd"):
        run_study(study("other.csv 34cd"), tmp_path)
    assert (tmp_path / RESULTS).read_bytes() == before


def of_data(source: str) -> list[dict[str, object]]:
    return [{"value": 1.0, "data_source": source}]


def interrupted(number: int, log: str, stop: bool = True) -> list[dict[str, object]]:
    if number == 2 and stop:
        raise KeyboardInterrupt
    return work(number, log)


def test_a_killed_run_leaves_a_journal_that_the_next_run_folds_in(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    with pytest.raises(KeyboardInterrupt):
        run_study(study_of(interrupted, log=log), tmp_path)
    assert not (tmp_path / RESULTS).exists()
    assert len(load_records(tmp_path)) == 6
    frame = run_study(study_of(interrupted, log=log, stop=False), tmp_path)
    assert (tmp_path / "log").read_text().split() == ["0", "1", "2", "3"]
    assert frame["number"].tolist() == [n for n in range(4) for _ in range(3)]
    assert not (tmp_path / JOURNAL).exists()


def test_a_run_killed_while_folding_counts_no_unit_twice(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    with pytest.raises(KeyboardInterrupt):
        run_study(study_of(interrupted, log=log), tmp_path)
    journal = (tmp_path / JOURNAL).read_bytes()
    run_study(study_of(interrupted, log=log, stop=False), tmp_path)
    (tmp_path / JOURNAL).write_bytes(journal)
    assert len(read_records(tmp_path)) == 12


def test_the_code_of_a_record_is_known_by_all_its_files(tmp_path: Path) -> None:
    found = set()
    for name, text in (("a.py", "1"), ("inner/b.py", "1"), ("inner/b.py", "2"), ("c.txt", "3")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        found.add(source_hash([tmp_path]))
    assert len(found) == 3  # a text file next to the code does not count
