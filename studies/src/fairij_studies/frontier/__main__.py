"""Pack the tables, run units on another machine, and add their records to the study.

`python -m fairij_studies.frontier pack FOLDER --path SAMPLE` writes the tables to small files.
`python -m fairij_studies.frontier run FOLDER --packed FOLDER --processes 16` does the units of some
seeds and appends them to a journal, which needs neither pyarrow nor a drawing library. It can be
killed at any time: what is done is in the journal, and another run goes on from there.
`python -m fairij_studies.frontier merge STUDY JOURNAL ...` adds journals to the records of a study.
`python -m fairij_studies.frontier report STUDY` draws the page from the records.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from fairij import __version__
from fairij_studies.driver import unit_records
from fairij_studies.frontier import SEEDS, bunch, draw, make_study
from fairij_studies.frontier.measured import MODELS, NETWORK, trained
from fairij_studies.frontier.methods import METHODS
from fairij_studies.frontier.tables import Source, pack, slug
from fairij_studies.provenance import code_hash
from fairij_studies.records import (
    JOURNAL,
    UNIT,
    append_unit,
    cut_torn_end,
    fold_journal,
    identity,
    read_journal,
    read_records,
    record_frame,
    sole_writer,
)
from fairij_studies.trees import coverage_file
from fairij_studies.trees.data import Places
from fairij_studies.workers import Unit, work_through


def pack_tables(folder: Path, path: str | None) -> None:
    source = Source(Places(coverage=None if path is None else coverage_file(Path(path))))
    for title in source.titles:
        file = folder / f"{slug(title)}.npz"
        pack(bunch(title, source), file)
        print(f"{file}: {file.stat().st_size / 2**20:.2f} MiB")


def run_units(asked: argparse.Namespace) -> None:
    """Do the units of some seeds and methods that neither the journal nor ``--done`` has."""
    study = make_study(path=asked.path, packed=asked.packed, cache=asked.out / "cache")
    journal = asked.out / JOURNAL
    cut_torn_end(journal)
    done = {r[UNIT] for folder in (asked.out, *asked.done) for r in read_records(folder)}
    units = [
        unit
        for unit in study.units(False)
        if unit.key["seed"] in asked.seeds
        and unit.key["method"] in asked.methods
        and unit.key["model"] in asked.models
        and (asked.tables is None or slug(str(unit.key["data"])) in asked.tables)
        and identity(unit.key) not in done
    ]
    print(f"{__version__} {code_hash()}: {len(units)} units", flush=True)
    start = time.perf_counter()
    networks = {unit.arguments["case"] for unit in units if unit.key["model"] == NETWORK}
    before = [Unit({"seed": c.seed, "data": c.title}, trained, {"case": c}) for c in networks]
    for unit, outcome in work_through(before, asked.processes):  # else many would train the same
        if outcome.error is not None:
            print(f"FAILED {identity(unit.key)}\n{outcome.error}", flush=True)
    print(f"{len(before)} networks in {time.perf_counter() - start:.0f} s", flush=True)
    for number, (unit, outcome) in enumerate(work_through(units, asked.processes), 1):
        if outcome.error is None:
            append_unit(journal, unit_records(study, unit, outcome, quick=False))
        else:
            print(f"FAILED {identity(unit.key)}\n{outcome.error}", flush=True)
        if number % 50 == 0 or number == len(units):
            print(f"{number} of {len(units)} in {time.perf_counter() - start:.0f} s", flush=True)


def merge(study: Path, journals: Sequence[Path]) -> None:
    """Add the units of journals that the study has no records of."""
    with sole_writer(study):
        known = {record[UNIT] for record in read_records(study)}
        for journal in journals:
            units: dict[str, list[dict[str, object]]] = {}
            for record in read_journal(journal):
                units.setdefault(record[UNIT], []).append(record)
            fresh = {name: records for name, records in units.items() if name not in known}
            for records in fresh.values():
                append_unit(study / JOURNAL, records)
            known |= set(fresh)
            print(f"{journal}: {len(fresh)} of {len(units)} units were added")
        fold_journal(study)


def numbers(text: str) -> tuple[int, ...]:
    first, _, last = text.partition("-")
    return tuple(range(int(first), int(last or first) + 1))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fairij_studies.frontier",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    steps = parser.add_subparsers(dest="step", required=True)
    packing = steps.add_parser("pack")
    packing.add_argument("out", type=Path)
    packing.add_argument("--path", help="the sample of Coverage")
    running = steps.add_parser("run")
    running.add_argument("out", type=Path, help="the folder of the journal")
    running.add_argument("--packed", help="a folder that `pack` wrote")
    running.add_argument("--path", help="the sample of Coverage")
    running.add_argument("--processes", type=int, default=os.cpu_count())
    running.add_argument("--seeds", type=numbers, default=SEEDS, help="such as 110-114")
    running.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    running.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    running.add_argument("--tables", nargs="+", help="names of the packed files, without .npz")
    running.add_argument("--done", nargs="*", type=Path, default=[], help="folders with records")
    merging = steps.add_parser("merge")
    merging.add_argument("study", type=Path)
    merging.add_argument("journals", nargs="+", type=Path)
    reporting = steps.add_parser("report")
    reporting.add_argument("study", type=Path)
    return parser.parse_args()


def main() -> None:
    asked = parsed()
    if asked.step == "pack":
        pack_tables(asked.out, asked.path)
    elif asked.step == "run":
        run_units(asked)
    elif asked.step == "merge":
        merge(asked.study, asked.journals)
    else:
        records = [record for record in read_records(asked.study) if not record["quick"]]
        draw(record_frame(records), asked.study)


if __name__ == "__main__":
    main()
