"""The page's part on fear of a word: sentences tried on every model, and which comments did it."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from fairij.language.probe_sentences import KINDS, TEMPLATES
from fairij_studies.comments.fear import FEAR, FEAR_OF_ALL, KEPT, WORST
from fairij_studies.comments.fear_models import FEWER, TRIED

ASKED = "asked"  # a field of these records alone
MACHINE = "machine"  # a field of records that were made once more elsewhere
RULES = {
    "grid": "Fair-IJ, rows dropped",
    "constrained": "Fair-IJ, constrained",
    "constrained, identity": "Fair-IJ, constrained, with sentences",
    "constrained, identity, all groups": "the same, groups of training comments known",
}
NAMES = {"erm": "ERM", "gapreg": "GapReg", "hgr": "HGR"}
HEADING = """## Does an edit fear the word?

The same models on a part of the comments: all that mention one of the three identities, and 20,000,
10,000 and 12,000 others for training, validation and testing ({rows:,} training comments in all).
Vectors are by the encoder in bfloat16. So these figures are not those of the tables above. Seeds 1
to 5; seed 0 was looked at while the constraint was made, and is not reported.

Each model is also tried on sentences that differ in the identity alone ({tried} of the probe's
{templates} templates). The table gives the share called toxic of those about Muslims. "With
sentences" means that the other templates took part in the edit as a constraint: their scores must
not depend on the identity. No sentence that is shown here took part. Edits may lose 0.01 of
balanced accuracy on validation comments. There are few templates of a kind (5 neutral and 4 kind
ones), so one sentence more is a fifth or a quarter.
"""
OF_ALL = """### The same with all {rows:,} training comments
"""
CURVE = "influence.svg"


def is_fear(records: pd.DataFrame) -> pd.Series:
    """Return which records are of this part of the page."""
    if ASKED not in records:
        return pd.Series(False, index=records.index)
    return records[ASKED].notna()


def fear_section(records: pd.DataFrame) -> str:
    """Return the tables of every model, first on a part of the comments, then on all of them."""
    tables = records[records[ASKED].isin([FEAR, FEAR_OF_ALL])]
    if tables.empty:
        return ""
    kept, whole = (sum(map(len, part.values())) for part in (KEPT, TEMPLATES))
    of_all = tables[ASKED] == FEAR_OF_ALL
    parts = []
    for heading, some in ((HEADING, tables[~of_all]), (OF_ALL, tables[of_all])):
        if some.empty:
            continue
        rows = int(some["rows"].max())
        parts.append(heading.format(rows=rows, tried=kept, templates=whole))
        some = some.reindex(columns=list(dict.fromkeys([*some.columns, MACHINE])))
        named = some.groupby(["model", "identity", MACHINE], sort=False, dropna=False)
        for (model, identity, machine), block in named:
            where = f", {machine}" if isinstance(machine, str) else ""
            parts.append(f"### {model}, comments that mention “{identity}”{where}\n")
            parts.append(_made_on(block, rows))
            for constraint, short in (("equalized_odds", "EO"), ("demographic_parity", "DP")):
                parts.append(_table(block[block["constraint"] == constraint], constraint, short))
            parts.append(_absent(block))
    missing = [name for name in TRIED if name not in set(tables["model"])]
    if missing and not bool(records["quick"].any()):
        parts.append(f"Not run yet on sentences: {', '.join(missing)}.\n")
    return "\n".join(part for part in parts if part)


def _made_on(block: pd.DataFrame, rows: int) -> str:
    """Return on what device, and on how many comments, if the records say that it is special."""
    known = list(block["device"].dropna().unique()) if "device" in block else []
    said = [f"Trained and edited on: {', '.join(known)}."] if known else []
    if (own := int(block["rows"].max())) < rows:
        others = FEWER[str(block["model"].iloc[0])]["val"]
        said.append(
            f"Each step runs the whole encoder on all rows, so there are {own:,} training and "
            f"{others:,} validation comments: all that mention the group, and others drawn at "
            "random. The test comments are the same."
        )
    return "\n".join(said) + "\n" if said else ""


def _table(block: pd.DataFrame, constraint: str, short: str) -> str:
    kinds = " | ".join(KINDS)
    lines = [
        f"| run for {short} | BA | Δ{short} | {kinds} | seeds |",
        "|---|---|---|" + "---|" * len(KINDS) + "---|",
    ]
    for name, rows in _by_method(block):
        shares = [f"{rows[f'kept_{kind}'].mean():.2f}" for kind in KINDS]
        cells = [_spread(100 * rows["balanced_accuracy"], 1), _spread(rows[constraint], 3), *shares]
        lines.append(f"| {name} | {' | '.join(cells)} | {rows['seed'].nunique()} |")
    return "\n".join(lines) + "\n"


def _absent(block: pd.DataFrame) -> str:
    """Name the methods without any record of this model."""
    run = {name.partition(" (")[0] for name, _ in _by_method(block)}
    absent = [name for name in (*NAMES.values(), *RULES.values()) if name not in run]
    if not absent or bool(block["quick"].any()):
        return ""
    return f"Not run on this model: {'; '.join(absent)}.\n"


def _by_method(block: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the records of each method in the order of the table."""
    found = []
    for method, name in NAMES.items():
        own = block[block["method"] == method]
        if method == "erm":
            found.append((name, own))
            continue
        for strength, rows in own.groupby("strength"):
            found.append((f"{name} (λ={strength:g})", rows))
    edits = block[block["method"] == "fair-ij"]
    found += [(name, edits[edits["rule"] == rule]) for rule, name in RULES.items()]
    return [(name, rows) for name, rows in found if len(rows)]


def _spread(values: pd.Series, digits: int) -> str:
    mean = f"{values.mean():.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {values.std():.{digits}f}"


def curve_section(records: pd.DataFrame) -> str:
    """Return the paragraph on the most harmful comments."""
    found = records[records["method"] == "curve"]
    if found.empty:
        return ""
    one = found.iloc[0]
    pairs = zip(one["words"], one["lifts"], strict=True)
    words = ", ".join(f"{word} ({lift:.1f})" for word, lift in pairs)
    return (
        f"## Which comments\n![Sorted influence]({CURVE})\n\n"
        "As in the paper's first figure: training comments with positive influence on demographic "
        f"parity\n({one['positive']:,.0f} of {one['rows']:,.0f}; {one['model']}, "
        f"“{one['identity']}”, seed {one['seed']:.0f}), sorted. The {WORST} most harmful ones\nare "
        f"to the right of the line. The gap on test comments goes from {one['gap_before']:.3f} to "
        f"{one['gap_after']:.3f}. Of those {WORST},\n{one['toxic_among_worst']:.0%} are labelled "
        f"toxic, and {one['mentioned_among_worst']:.0%} mention the group. Words that are more "
        "frequent among\nthem than among all training comments, with the ratio: "
        f"{words}.\n"
    )


def curve_figure(records: pd.DataFrame) -> Any:
    """Draw sorted influence with a line before the most harmful comments; None without records."""
    found = records[records["method"] == "curve"]
    if found.empty:
        return None
    one = found.iloc[0]
    points = pd.DataFrame({"comment": list(one["places"]), "influence": list(one["scores"])})
    mark = pd.DataFrame({"comment": [one["positive"] - WORST]})
    x = alt.X("comment:Q", title="training comments of positive influence, sorted")
    curve = alt.Chart(points).mark_line().encode(x=x, y=alt.Y("influence:Q", title="influence"))
    rule = alt.Chart(mark).mark_rule(color="black").encode(x="comment:Q")
    title = f"Demographic parity: {one['gap_before']:.3f} to {one['gap_after']:.3f}"
    return (curve + rule).properties(width=460, height=220, title=title)
