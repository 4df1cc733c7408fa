"""`python -m fairij_studies.comments`: prepare the data, or run a part of the study on a device."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from fairij_studies.comments import make_study
from fairij_studies.comments.prepared import prepare
from fairij_studies.driver import Study, Unit, run_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=["prepare", "run"])
    parser.add_argument("--prepared", type=Path, default=Path("build/comments"))
    parser.add_argument("--out", type=Path, default=Path("studies/comments"))
    parser.add_argument(
        "--others",
        type=int,
        nargs=3,
        default=(),
        help="prepare: of each split, only so many comments that mention no identity",
    )
    parser.add_argument("--only", nargs="*", default=[], help="field=value of the units' keys")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--machine", help="keep the records separate, under this name")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if asked.work == "prepare":
        prepare(asked.prepared, others=tuple(asked.others))
        return
    wanted = [part.split("=", 1) for part in asked.only]

    def only(unit: Unit) -> bool:
        fields = {name for name, _ in wanted}
        return all(
            str(unit.key.get(field)) in [value for name, value in wanted if name == field]
            for field in fields
        )

    study = on_machine(make_study(prepared=asked.prepared), asked.machine)
    run_study(study, asked.out, quick=asked.quick, processes=asked.processes, only=only)


def on_machine(study: Study, name: str | None) -> Study:
    """Return the same units, recorded next to those of another machine."""
    if name is None:
        return study

    def units(quick: bool) -> list[Unit]:
        return [replace(unit, key={**unit.key, "machine": name}) for unit in study.units(quick)]

    return replace(study, units=units)


if __name__ == "__main__":
    main()
