"""What the edit did, in words: some searches drop rows, others lower weights or go in steps."""

from __future__ import annotations

from fairij.mitigator import FairIJ


def is_edited(fitted: FairIJ) -> bool:
    return int(fitted.candidates_["k"].iloc[fitted.chosen_]) > 0


def search_name(fitted: FairIJ) -> str:
    return str(fitted.diagnostics_.get("search", ""))


def what_was_done(fitted: FairIJ) -> str:
    """The end of a sentence that begins with "the edit"."""
    scale, rows = float(fitted.edit_.settings["scale"]), fitted.diagnostics_["n_train"]
    lowered = int(fitted.candidates_["k"].iloc[fitted.chosen_])
    if not is_edited(fitted):
        return "left the model as it was, because no candidate was better."
    if len(fitted.dropped_):
        far = "as" if scale == 1 else f"{scale:g} times as far as"
        return (
            f"moved the parameters {far} leaving out {lowered:,} of the "
            f"{rows:,} training rows would, without training again."
        )
    if search_name(fitted) == "reweight":
        return (
            f"moved the parameters as if each of {lowered:,} of the {rows:,} training rows had "
            "counted less, in proportion to its influence, without training again."
        )
    if search_name(fitted) == "path":
        return (
            f"moved the parameters in small steps, {scale:.0%} of the way to where the gap should "
            "be closed, without training again."
        )
    return "moved the parameters, without training again."


def how_much(fitted: FairIJ) -> tuple[str, str, str]:
    """The size of the edit: a name, a figure and a note."""
    scale, rows = float(fitted.edit_.settings["scale"]), fitted.diagnostics_["n_train"]
    dropped = len(fitted.dropped_)
    if dropped or not is_edited(fitted):
        note = f"{dropped / rows:.1%} of the training rows, at scale {scale:g}"
        return "rows left out in effect", f"{dropped:,}", note
    if search_name(fitted) == "path":
        return "length of the path", f"{scale:.0%}", "of the way to where the gap should be closed"
    lowered = int(fitted.candidates_["k"].iloc[fitted.chosen_])
    note = f"{lowered / rows:.1%} of the training rows, at scale {scale:g}"
    return "rows that count less in effect", f"{lowered:,}", note
