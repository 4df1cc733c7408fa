"""What the default search costs on LightGBM, next to training the model: `make bench-trees`.

Adult and, if it is there, the sample of Coverage; the models of the study of frontiers; one
thread. A training and a whole fit (influence, the whole front, the choice, its audits) take turns;
of each the least seconds of CPU are kept. "its form alone" is the search that the default comes
down to, asked for by its settings.
"""

from __future__ import annotations

import argparse
import json
import platform
import warnings
from pathlib import Path
from time import process_time
from typing import Any

import torch
from fairij_studies.frontier.tables import Source, load_splits
from fairij_studies.provenance import code_hash
from fairij_studies.trees.data import Places
from fairij_studies.trees.models import LIGHTGBM, make_model
from threadpoolctl import threadpool_limits

from fairij import Auto, Constrained, FairIJ, __version__

RESULTS = Path(__file__).parent / "results" / "trees_search.json"
CONSTRAINTS = ("demographic_parity", "equalized_odds")
SEARCHES: dict[str, Any] = {
    "auto": "auto",
    "its form alone": Auto().forms(trained_together=False, drop="reweight", linear=True).search,
    "groups as observed": Constrained(),
}


def costs(title: str, source: Source, repeats: int, seed: int = 0) -> list[dict[str, Any]]:
    train, validation, _ = load_splits(title, source, seed)
    trained: list[float] = []
    fitted: dict[tuple[str, str], list[float]] = {}
    candidates: dict[tuple[str, str], int] = {}
    for _ in range(repeats):
        for constraint in CONSTRAINTS:
            for name, search in SEARCHES.items():
                start = process_time()
                model = make_model(LIGHTGBM, title).fit(train.X, train.y)
                trained.append(process_time() - start)
                start = process_time()
                fair = FairIJ(model, constraints=constraint, search=search, verbose=False).fit(
                    train.X,
                    train.y,
                    X_val=validation.X,
                    y_val=validation.y,
                    sensitive_features_val=validation.s,
                )
                key = constraint, name
                fitted.setdefault(key, []).append(process_time() - start)
                candidates[key] = len(fair.candidates_) - 1
    return [
        {
            "data": title,
            "train_rows": len(train),
            "validation_rows": len(validation),
            "seed": seed,
            "constraint": constraint,
            "search": name,
            "candidates": candidates[constraint, name],
            "train_seconds": min(trained),
            "fit_seconds": min(seconds),
            "trainings": min(seconds) / min(trained),
        }
        for (constraint, name), seconds in fitted.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--coverage", help="a Parquet file with a sample of Coverage")
    parser.add_argument("--packed", help="the folder of packed tables, in place of the loaders")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    source = Source(Places(None, given.coverage), given.packed)
    with threadpool_limits(1):
        titles = source.titles[: 2 if given.coverage or given.packed else 1]  # the paper's tables
        rows = [row for title in titles for row in costs(title, source, given.repeats)]
    for row in rows:
        print(
            "{data:28}{constraint:20}{search:20}{candidates:4} candidates  training "
            "{train_seconds:.2f} s  fit {fit_seconds:.2f} s  {trainings:.1f} trainings".format(
                **row
            )
        )
    result = {
        "version": __version__,
        "code": code_hash(),
        "machine": f"{platform.machine()}, one thread, torch {torch.__version__}",
        "data": __doc__.split("\n\n")[1].replace("\n", " "),
        "repeats": given.repeats,
        "rows": rows,
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
