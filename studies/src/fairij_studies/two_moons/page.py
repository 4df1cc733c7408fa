"""The page of the two-moons study, made from its records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from fairij.storage.checksummed import write_whole
from fairij_studies.figures import save_figure
from fairij_studies.markdown import mean_and_deviation, table
from fairij_studies.palette import BLACK, BLUE

MATCH = 0.9  # a mean rank correlation above it


def draw(records: pd.DataFrame, folder: Path) -> None:
    """Write README.md and the figure as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(scatter_figure(records), folder / "agreement.svg")
    write_whole(folder / "README.md", readme(records).encode())


def scatter_figure(records: pd.DataFrame) -> Any:
    """Draw approximate against exact influence for a sample of rows of the first seed."""
    first = records[records["seed"] == records["seed"].min()]
    rows = []
    for method in dict.fromkeys(first["method"]):
        own = first[first["method"] == method].sort_values("depth")
        rows.append(alt.hconcat(*(_panel(record) for _, record in own.iterrows()), spacing=20))
    return (
        alt.vconcat(*rows, spacing=14)
        .configure_view(stroke="#cccccc")
        .configure_axis(gridColor="#eeeeee")
        .resolve_scale(x="independent", y="independent")
    )


def _panel(record: pd.Series) -> Any:
    title = [f"{record['method']}, depth {record['depth']}"]
    if pd.notna(record["failed"]):
        title.append("diverged")
        empty = pd.DataFrame({"exact": [], "approximate": []})
        return alt.Chart(empty).mark_circle().properties(width=220, height=150, title=title)
    title.append(f"R² {record['r2']:.3g}, MAD {record['mad']:.1e}")
    sample = pd.DataFrame(
        {"exact": record["exact_sample"], "approximate": record["rescaled_sample"]}
    )
    ends = [float(sample["exact"].min()), float(sample["exact"].max())]
    line = alt.Chart(pd.DataFrame({"exact": ends, "approximate": ends}))
    axis = alt.Axis(format=".0e", tickCount=4)
    x = alt.X("exact:Q", title="exact", axis=axis)
    y = alt.Y("approximate:Q", title="approximate", axis=axis)
    points = alt.Chart(sample).mark_circle(size=14, color=BLUE, opacity=0.6)
    same = line.mark_line(color=BLACK, strokeWidth=1, strokeDash=[4, 3])
    return alt.layer(points.encode(x=x, y=y), same.encode(x=x, y=y)).properties(
        width=220, height=150, title=alt.Title(title, fontSize=11)
    )


def readme(records: pd.DataFrame) -> str:
    first = records.iloc[0]
    seeds = sorted(records["seed"].unique())
    quick = (
        "**This page is of the quick form of the study (few rows and iterations, one seed). It "
        "only shows that the code runs.**\n\n"
        if bool(first["quick"])
        else ""
    )
    return (
        "# Two moons: approximate influence against exact (Appendix C)\n\n"
        f"{quick}"
        f"The data are two moons that a line can separate, {first['n_train'] + first['n_test']:,} "
        "points, 80 % for training. The networks have 1, 2 and 3 linear layers, with 5 SELU units "
        "in the hidden ones. They are trained by Adam at 0.001 in double precision. Seeds "
        f"{seeds[0]} to {seeds[-1]} have their own points, network and test point.\n\n"
        "We compare the influence of every training row on the loss of that test point with the "
        "influence by the exact inverse of the damped Hessian. Approximations that draw rows have "
        f"{int(records['runs'].max())} runs, and their scores are averaged. Neumann's scale is 25. "
        "As in the paper, scores are rescaled to the mean of the exact ones before the median "
        "absolute deviation (MAD) and R² are taken. Spearman's correlation and the shared part of "
        "the largest scores do not depend on the scale. The damping is the smallest power of ten, "
        "from 1e-4 up, that makes the Hessian clearly positive definite. It is the same for all "
        "approximations (the printed recurrence has none). The paper does not name its damping, "
        "its activation, or its number of epochs: those are ours.\n\n"
        "![Approximate against exact influence](agreement.svg)\n\n"
        "## Agreement\nMean ± deviation over seeds. For MAD and R², which has no lower bound, it "
        "is the median. MAD is given for a score, and relative to the deviation of the exact "
        "scores. Neumann's series is far from its limit: in a direction with eigenvalue λ, 1000 "
        "steps leave (1 - λ/25)^1000 unsolved, which is two thirds for λ = 0.01.\n\n"
        + _agreement(records)
        + "\n\n## The models behind it\n"
        + _models(records)
        + "\n\n## The paper's claim, tested\n"
        + _claim(records)
        + "\n\n## Run it again\n`fairij reproduce two-moons` continues where it was stopped and "
        f"draws this page. fairij {', '.join(sorted(records['version'].unique()))}. Every number "
        "is computed from `results.parquet`.\n"
    )


def _agreement(records: pd.DataFrame) -> str:
    lines = []
    for method in dict.fromkeys(records["method"]):
        for depth in sorted(records["depth"].unique()):
            own = records[(records["method"] == method) & (records["depth"] == depth)]
            good = own[own["failed"].isna()]
            if good.empty:
                lines.append([method, str(depth), *["—"] * 6, f"{len(own)}"])
                continue
            lines.append(
                [
                    method,
                    str(depth),
                    f"{good['mad'].median():.1e}",
                    f"{(good['mad'] / good['exact_spread']).median():.1e}",
                    f"{good['r2'].median():.3g}",
                    mean_and_deviation(good["spearman"], 3),
                    mean_and_deviation(good["top_100"], 2),
                    mean_and_deviation(good["top_500"], 2),
                    f"{len(own) - len(good)}",
                ]
            )
    header = (
        "approximation",
        "depth",
        "MAD",
        "MAD / deviation",
        "R²",
        "Spearman",
        "top 100",
        "top 500",
        "diverged",
    )
    return table(header, lines)


def _models(records: pd.DataFrame) -> str:
    lines = []
    for depth, own in records.groupby("depth"):
        one = own.drop_duplicates("seed")
        lines.append(
            [
                f"{depth}",
                f"{int(one['n_parameters'].iloc[0])}",
                f"{one['damping'].min():g} to {one['damping'].max():g}",
                f"{one['smallest_eigenvalue'].min():.1e}",
                f"{one['largest_eigenvalue'].max():.2g}",
                f"{one['condition'].median():.2g}",
                f"{one['train_loss'].median():.1e}",
                f"{one['gradient_norm'].median():.1e}",
                mean_and_deviation(one["test_accuracy"], 4),
            ]
        )
    header = (
        "depth",
        "parameters",
        "damping",
        "smallest eigenvalue",
        "largest",
        "condition (median)",
        "training loss (median)",
        "gradient norm (median)",
        "test accuracy",
    )
    return table(header, lines)


def _claim(records: pd.DataFrame) -> str:
    """Test whether both of the paper's approximations match well."""
    said = []
    for method in dict.fromkeys(records["method"]):
        own = records[(records["method"] == method) & records["failed"].isna()]
        by_depth = own.groupby("depth")["spearman"].mean()
        shared = own.groupby("depth")["top_500"].mean()
        good = [str(depth) for depth in by_depth.index[by_depth > MATCH]]
        every = len(good) == records["depth"].nunique()
        where = "every depth" if every else f"depth {' and '.join(good)}" if good else "no depth"
        cells = ", ".join(
            f"{r:.2f} and {s:.2f} at depth {d}"
            for d, r, s in zip(by_depth.index, by_depth, shared, strict=True)
        )
        said.append(
            f"- {method}: agrees at {where} (Spearman and shared top 500: "
            f"{cells or 'diverged throughout'})."
        )
    return (
        "'Both Neumann and WoodFisher match well with exact influence.' Taking a mean Spearman "
        f"correlation above {MATCH} for a match:\n" + "\n".join(said)
    )
