"""Every command on every kind of model file, from a folder of plain files."""

from __future__ import annotations

import filecmp
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import plain_files
from fairij import Edit, adapt
from fairij.language.probe_sentences import ON_PAGES
from fairij.storage.model_files import Opening, load_model
from fairij.storage.tables import read_table
from plain_files import Run

COLUMNS = ("--label", "repaid", "--sensitive", "sex")
TABLES = ("--train", "train.csv", "--validation", "validation.csv")
NET = ("--model-class", "net.py:Net", "--model-args", '{"inputs": 3}')
NUMBERS = tuple(part for name in plain_files.NUMBERS for part in ("--features", name))
SMALL = ("--max-k", "60", "--scale", "1", "--scale", "4")
# model file, what else it needs to be opened, what else it needs to be used, what else to be edited
KINDS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "lightgbm": ("model.txt", (), (), ()),
    "xgboost json": ("model.json", (), (), ()),
    "xgboost ubj": ("model.ubj", (), (), ()),
    "catboost json": ("catboost.json", (), (), ()),
    "catboost binary": ("model.cbm", ("--trust-pickle",), (), ()),
    "scikit-learn": ("model.skops", (), (), ()),
    "torch safetensors": ("net.safetensors", NET, NUMBERS, ("--weight-decay", "0.01")),
    "torch pt": ("net.pt", NET, NUMBERS, ("--weight-decay", "0.01")),
    "hugging face": ("bert", (), ("--text", "note"), ("--parameters", "all", "--scale", "20")),
}
OPENING = Opening(model_class="net.py:Net", model_args={"inputs": 3})


def theta(path: str | Path) -> torch.Tensor:
    trusted = Path(path).suffix == ".cbm"
    model = load_model(path, replace(OPENING, trust_pickle=trusted)).model
    return adapt(model, parameters="all").theta


# kinds with a near relative that is quick to try: other trees, or the same model in another format
SLOW_SEARCHES = ("sequential", "reweight")
SLOW = {"catboost binary", "catboost json", "xgboost json", "xgboost ubj", "torch pt"}


@pytest.fixture(
    params=[pytest.param(k, marks=[pytest.mark.slow] * (k in SLOW)) for k in KINDS], ids=str
)
def kind(request: pytest.FixtureRequest) -> Any:
    if request.param == "hugging face":
        request.getfixturevalue("bert")
    return KINDS[request.param]


def test_the_whole_way(run: Run, files: Path, kind: Any) -> None:
    model, opening, use, edit = kind
    common = (*COLUMNS, *opening, *use)
    audited = json.loads(
        run("audit", "--model", model, "--table", "test.csv", *common, "--json").stdout
    )
    assert audited["rows"] == plain_files.SIZES["test"]
    gap = audited["metrics"]["demographic_parity_difference"]
    assert gap["low"] <= gap["value"] <= gap["high"]
    assert gap["value"] > 0.1  # the tables are made so
    assert {entry["group"] for entry in audited["group_intervals"]} == {"f", "m"}

    asked = ("mitigate", "--model", model, *TABLES, "--test", "test.csv", *common, *edit, *SMALL,
             "--slack", "0")  # fmt: skip
    before = theta(model)
    summary = json.loads(run(*asked, "--out", "result", "--json").stdout)
    measured = summary["test"]
    assert measured["before"]["metrics"] == audited["metrics"]
    name = "demographic_parity_difference"
    assert summary["validation"]["after"]["metrics"][name]["value"] < 0.5 * gap["value"]
    saved = Path("result") / summary["model"]
    assert {path.name for path in Path("result").iterdir()} == {
        saved.name, "edit.safetensors", "report.html", "summary.json", "settings.toml",
        "candidates.csv", "influence.csv", "contents.json",
    }  # fmt: skip
    assert torch.equal(theta(model), before)  # the model given is left alone

    # the saved model is the edited one, in its own format: audited alone it gives the same figures
    # (an edit as large as that of the BERT turns its ranks round, which has to be confirmed)
    confirmed = (*common, "--classes", "0", "--classes", "1")
    again = json.loads(
        run("audit", "--model", saved, "--table", "test.csv", *confirmed, "--json").stdout
    )
    assert again["metrics"] == measured["after"]["metrics"]

    edited = "edited" + Path(model).suffix
    put = ("--edit", "result/edit.safetensors", *opening)
    run("apply", "--model", model, *put, "--out", edited)
    assert torch.equal(theta(edited), theta(saved))
    run("undo", "--model", saved, *put, "--out", "undone" + Path(model).suffix)
    assert torch.equal(theta("undone" + Path(model).suffix), before)

    compared = json.loads(
        run("compare", model, "result", edited, "--table", "test.csv", *confirmed, "--json").stdout
    )["models"]
    assert list(compared) == [model, "result", edited]
    assert compared[model]["metrics"] == audited["metrics"]
    assert compared["result"] == compared[edited]
    assert compared[edited]["metrics"] == measured["after"]["metrics"]

    run("report", "result", *opening, "--out", "again.html")
    assert _page("again.html") == _page("result/report.html")

    scores = ("influence", "--model", model, *TABLES, *common, *edit)
    run(*scores, "--out", "scores.parquet")
    table = pd.read_parquet("scores.parquet")
    assert table["row"].tolist() == list(range(plain_files.SIZES["train"]))
    worst = table.sort_values("rank")["row"].head(5).tolist()
    dropped = Edit.load("result/edit.safetensors").dropped[:5].tolist()
    assert worst[: len(dropped)] == dropped


def _page(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


@pytest.mark.usefixtures("undrawn")
def test_settings_repeat_a_run_exactly(run: Run, files: Path) -> None:
    asked = ("--model", "model.txt", *TABLES, "--test", "test.csv", *COLUMNS, "--sensitive", "race")
    settings = ("--constraints", "equal_opportunity", "--accuracy-budget", "0.02")
    settings += ("--random-state", "5")
    damping = ("--damping", "0.01", "--damping", "0.1", "--validation-use", "cross_fit")
    run("mitigate", *asked, *settings, *damping, *SMALL, "--out", "first")
    run("mitigate", "--config", "first/settings.toml", "--out", "second")
    for name in ("model.txt", "candidates.csv", "influence.csv", "settings.toml"):
        assert filecmp.cmp(f"first/{name}", f"second/{name}", shallow=False), name
    first, second = (Edit.load(f"{folder}/edit.safetensors") for folder in ("first", "second"))
    assert torch.equal(first.delta, second.delta)
    assert first.settings == second.settings
    assert first.settings["constraint"] == "equal_opportunity"
    assert first.settings["random_state"] == 5


def test_scores_are_repeated_by_the_settings_beside_them(run: Run, files: Path) -> None:
    asked = ("influence", "--model", "net.pt", *NET, *NUMBERS, *TABLES, *COLUMNS)
    run(*asked, "--constraints", "equal_opportunity", "--out", "scores.csv")
    run("influence", "--config", "scores.settings.toml", *NET, "--out", "again.csv")
    assert filecmp.cmp("scores.csv", "again.csv", shallow=False)
    assert filecmp.cmp("scores.settings.toml", "again.settings.toml", shallow=False)
    Path("scores.csv").unlink()
    said = run(*asked, "--out", "scores.parquet", code=2).stderr
    assert "scores.settings.toml exists already; pass --force" in said
    assert not Path("scores.parquet").exists()


@pytest.mark.usefixtures("undrawn")
def test_the_command_line_wins_over_the_settings_file(run: Run, files: Path) -> None:
    Path("own.toml").write_text(
        'model = "model.txt"\ntrain = "train.csv"\nvalidation = "validation.csv"\n'
        'label = "repaid"\nsensitive = "sex"\nmax-k = 20\nscale = [1, 2]\ndrop = "loss_aware"\n'
    )
    result = run(
        "mitigate", "--config", "own.toml", "--drop", "fairness", "--out", "result", "--json"
    )
    edit = json.loads(result.stdout)["edit"]
    assert edit["drop"] == "fairness"
    assert "max_k=20" in edit["search"]
    assert "scales=(1.0, 2.0)" in edit["search"]


@pytest.mark.usefixtures("undrawn")
def test_a_note_tells_that_a_file_has_changed_since(run: Run, files: Path) -> None:
    run("mitigate", "--model", "model.txt", *TABLES, *COLUMNS, *SMALL, "--out", "first")
    table = pd.read_csv("train.csv")
    table.iloc[::-1].to_csv("train.csv", index=False)
    result = run("mitigate", "--config", "first/settings.toml", "--out", "second")
    assert "--train is no longer the file" in result.stderr
    assert "--validation" not in result.stderr


def test_rows_are_split_off_where_there_is_no_validation_table(run: Run, files: Path) -> None:
    result = run("mitigate", "--model", "model.skops", "--train", "train.csv", *COLUMNS, *SMALL,
                 "--out", "result", "--json")  # fmt: skip
    rows = json.loads(result.stdout)["rows"]
    assert rows == {"train": 210, "validation": 90, "test": 0}
    scores = pd.read_csv("result/influence.csv")
    assert scores["influence"].isna().sum() == 90
    run("report", "result", "--force")


@pytest.mark.usefixtures("undrawn")
def test_a_target_that_no_edit_reaches_is_told_by_the_exit_code(run: Run, files: Path) -> None:
    asked = ("mitigate", "--model", "model.txt", *TABLES, *COLUMNS, "--max-k", "2", "--scale", "1")
    result = run(*asked, "--target-gap", "0.0001", "--out", "missed", code=3)
    assert "The target is missed: a demographic parity gap of at most 0.0001" in result.stderr
    assert Path("missed/report.html").is_file()  # written nevertheless, and said so
    run(*asked, "--target-gap", "0.9", "--out", "reached")


@pytest.mark.usefixtures("undrawn")
def test_what_is_missed_is_said_first(run: Run, files: Path) -> None:
    asked = ("mitigate", "--model", "model.txt", *TABLES, *COLUMNS, "--test", "test.csv", *SMALL)
    result = run(*asked, "--target-gap", "0.0001", "--out", "missed", code=3)
    assert result.stdout.startswith("The target is missed: a demographic parity gap of at most")
    assert "on the test rows" in result.stdout.splitlines()[0]
    summary = json.loads(Path("missed/summary.json").read_text())
    assert summary["shortfalls"][0] == result.stdout.splitlines()[0]
    again = json.loads(run(*asked, "--accuracy-budget", "1", "--out", "kept", "--json").stdout)
    assert again["shortfalls"] == []


def test_refits_are_predicted(run: Run, files: Path) -> None:
    asked = ("mitigate", "--model", "model.skops", *TABLES, *COLUMNS, *SMALL)
    result = run(
        *asked, "--predict-refit", "chosen", "--predict-refit", "7", "--out", "result", "--json"
    )
    found = json.loads(result.stdout)["predicted_refits"]
    dropped = json.loads(result.stdout)["edit"]["k"]
    assert [one["k"] for one in found] == sorted({7, dropped})
    page = Path("result/report.html").read_text()
    assert "gap, trained again without 7 rows" in page
    run("report", "result", "--force")
    assert "gap, trained again without 7 rows" in Path("result/report.html").read_text()
    run(*asked, "--predict-refit", "all", "--out", "bad", code=2)


def test_weights_count_in_the_audit(run: Run, files: Path) -> None:
    asked = ("audit", "--model", "model.txt", "--table", "test.csv", *COLUMNS, "--json")
    plain, weighted = run(*asked), run(*asked, "--weights", "w")
    table = pd.read_csv("test.csv")
    assert plain.stdout != weighted.stdout
    rates = json.loads(weighted.stdout)["by_group"]
    assert rates["f"]["count"] in (
        (table["sex"] == "f").sum(),
        table["w"][table["sex"] == "f"].sum(),
    )


def test_several_sensitive_columns_mean_where_they_meet(run: Run, files: Path) -> None:
    result = run("audit", "--model", "model.txt", "--table", "test.csv", *COLUMNS,
                 "--sensitive", "race", "--json")  # fmt: skip
    groups = set(json.loads(result.stdout)["by_group"])
    assert groups == {"f & black", "f & white", "m & black", "m & white"}


def test_labels_may_be_words(run: Run, files: Path) -> None:
    for name in ("test", "train"):
        table = pd.read_csv(f"{name}.csv")
        table.assign(repaid=np.where(table["repaid"] == 1, "paid", "late")).to_csv(
            f"{name}-words.csv", index=False
        )
    asked = ("audit", "--model", "model.txt", *COLUMNS, "--json", "--table")
    plain = json.loads(run(*asked, "test.csv").stdout)
    words = json.loads(run(*asked, "test-words.csv", "--positive", "paid").stdout)
    assert words["metrics"] == plain["metrics"]
    failed = run(*asked, "test-words.csv", "--positive", "late", code=2)
    assert "ranks 'paid' above 'late'" in failed.stderr


def test_labels_are_told_by_their_names(run: Run, files: Path) -> None:
    for name in plain_files.SIZES:
        table = pd.read_csv(f"{name}.csv")
        words = np.where(table["repaid"] == 1, "early", "late")  # the alphabet says otherwise
        table.assign(repaid=words).to_csv(f"{name}.csv", index=False)
    asked = ("mitigate", "--model", "model.txt", *TABLES, "--test", "test.csv", *COLUMNS, *SMALL)
    result = run(*asked, "--positive", "early", "--show-rows", "200", "--out", "result")
    assert "Positive label: early. The model has 4 feature(s)" in result.stdout
    summary = json.loads(Path("result/summary.json").read_text())
    assert summary["classes"] == ["late", "early"]
    for part in ("validation", "test"):
        assert summary[part]["before"]["positive_label"] == "early"
        assert summary[part]["before"]["metrics"]["accuracy"]["value"] > 0.6
    page = Path("result/report.html").read_text(encoding="utf-8")
    assert "Positive label: <b>early</b>" in page
    rows = page[page.index('<table id="harmful"') :]
    rows = rows[: rows.index("</table>")]
    assert '<td class="text">late</td>' in rows  # the label of a row, not 0
    run("report", "result", "--out", "again.html")
    assert _page("again.html") == _page("result/report.html")


def test_the_positive_label_is_said_where_the_model_decides_it(run: Run, files: Path) -> None:
    import skops.io

    table = pd.read_csv("train.csv")
    words = np.where(table["repaid"] == 1, "paid", "late")
    model = LogisticRegression().fit(table[plain_files.NUMBERS], words)
    skops.io.dump(model, "words.skops")
    table.assign(repaid=words).to_csv("words.csv", index=False)
    asked = ("--model", "words.skops", "--table", "words.csv", *COLUMNS)
    assert "Positive label: paid." in run("audit", *asked).stdout
    assert json.loads(run("audit", *asked, "--json").stdout)["positive_label"] == "paid"
    compared = run("compare", "words.skops", *asked[2:]).stdout
    assert "Positive label: paid." in compared
    assert run("audit", *asked, "--positive", "paid").stdout == run("audit", *asked).stdout
    said = run("audit", *asked, "--positive", "late", code=2).stderr
    assert "trained with 'paid' as the positive label, not 'late'" in said


def test_compared_models_have_names_that_tell_them_apart(run: Run, files: Path) -> None:
    for folder in ("old", "new"):
        Path(folder).mkdir()
        shutil.copy("model.txt", folder)
    models = ("model.txt", "old/model.txt", "new/model.txt", "model.skops")
    asked = ("--table", "test.csv", *COLUMNS, "--json")
    assert list(json.loads(run("compare", *models, *asked).stdout)["models"]) == list(models)
    deep = (files / "old" / "model.txt", "new/model.txt", files / "model.skops")
    names = list(json.loads(run("compare", *deep, *asked).stdout)["models"])
    assert names == ["old/model.txt", "new/model.txt", "model.skops"]
    twice = run("compare", "model.txt", "model.skops", "./model.txt", *asked, code=2)
    assert "model.txt is named twice" in twice.stderr


def test_what_rows_do_to_the_loss_is_kept(run: Run, files: Path) -> None:
    asked = ("mitigate", "--model", "model.skops", *TABLES, *COLUMNS, *SMALL)
    run(*asked, "--drop", "loss_aware", "--show-rows", "200", "--out", "result")
    scores = pd.read_csv("result/influence.csv")
    dropped = Edit.load("result/edit.safetensors").dropped
    assert len(dropped) > 0
    assert (scores["loss_influence"][dropped] > 0).all()
    assert (scores["loss_influence"] < 0).any()
    run("report", "result", "--out", "again.html")
    assert _page("again.html") == _page("result/report.html")
    assert "influence on the loss</button>" in "".join(_page("again.html"))


@pytest.mark.parametrize(
    "name",
    [
        "scikit-learn",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("lightgbm", "torch safetensors")),
    ],
)
def test_training_rows_may_be_read_in_chunks(
    run: Run, files: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, opening, use, edit = KINDS[name]
    pd.read_csv("train.csv").to_parquet("train.parquet", row_group_size=70)
    tables = ("--train", "train.parquet", "--validation", "validation.csv")
    asked = ("--model", model, *tables, *COLUMNS, *opening, *use, *edit)
    run("influence", *asked, "--out", "whole.csv")

    def read_small(path: Path, **options: Any) -> pd.DataFrame:
        assert path.name != "train.parquet"
        return read_table(path, **options)

    monkeypatch.setattr("fairij.cli.streams.read_table", read_small)
    run("influence", *asked, "--stream", "--out", "chunks.csv")
    whole, chunks = (pd.read_csv(file)["influence"] for file in ("whole.csv", "chunks.csv"))
    np.testing.assert_allclose(chunks, whole, rtol=1e-4, atol=1e-8)
    run("mitigate", *asked, *SMALL, "--stream", "--out", "result")
    run("report", "result", *opening, "--out", "again.html")
    assert _page("again.html") == _page("result/report.html")


def test_a_language_model_knows_its_labels_by_name(run: Run, files: Path, bert: str) -> None:
    table = pd.read_csv("test.csv")
    table.assign(repaid=np.where(table["repaid"] == 1, "paid", "late")).to_csv("w.csv", index=False)
    asked = ("audit", "--model", bert, "--text", "note", *COLUMNS, "--json", "--table")
    words, codes = (json.loads(run(*asked, name).stdout) for name in ("w.csv", "test.csv"))
    assert (words.pop("positive_label"), codes.pop("positive_label")) == ("paid", 1)
    assert words == codes


def test_training_texts_are_on_the_page_only_when_asked_for(
    run: Run, files: Path, bert: str
) -> None:
    asked = ("mitigate", "--model", bert, "--train", "train.csv", "--validation", "validation.csv",
             "--text", "note", *COLUMNS, *SMALL, "--parameters", "classifier*")  # fmt: skip
    notes = pd.read_csv("train.csv")["note"]
    run(*asked, "--show-rows", "300", "--out", "hidden")
    run(*asked, "--show-rows", "300", "--show-column", "note", "--out", "shown")
    worst = pd.read_csv("hidden/influence.csv").nlargest(1, "influence").index[0]
    hidden, shown = (Path(f"{name}/report.html").read_text() for name in ("hidden", "shown"))
    assert notes[worst] not in hidden
    assert "characters of note" in hidden
    assert notes[worst] in shown
    run("report", "shown", "--out", "again.html")
    assert _page("again.html") == _page("shown/report.html")


def test_sentences_of_your_own_probe_a_language_model(run: Run, files: Path, bert: str) -> None:
    asked = ("mitigate", "--model", bert, "--train", "train.csv", "--validation", "validation.csv",
             "--text", "note", *COLUMNS, *SMALL, "--parameters", "classifier*")  # fmt: skip
    own = {"kind": ["neutral", "kind"], "text": ["{One} came.", "Thank you, {many}."]}
    pd.DataFrame(own).to_csv("own.csv", index=False)
    run(*asked, "--probe", "own.csv", "--out", "probed")
    probe = json.loads(Path("probed/summary.json").read_text())["probe"]
    assert len(probe["rates"]) == 24  # 12 identities, two kinds
    assert "Of 24 sentences" in probe["sentence"]
    assert "Does the model fear a word?" in Path("probed/report.html").read_text()
    run("report", "probed", "--out", "again.html")
    assert _page("again.html") == _page("probed/report.html")
    pd.DataFrame({"kind": ["rude"], "text": ["{one}"]}).to_csv("own.csv", index=False)
    said = run(*asked, "--probe", "own.csv", "--out", "wrong", code=2).output
    assert "--probe must be sentences by kind" in " ".join(said.split())
    assert not Path("wrong").exists()


def test_sentences_take_part_in_an_edit_by_the_name_of_an_identity(
    run: Run, files: Path, bert: str
) -> None:
    rows = ("--train", "train.csv", "--validation", "validation.csv", *COLUMNS)
    asked = ("mitigate", "--model", bert, *rows, "--text", "note", "--parameters", "classifier*")
    other = ("--identity", "muslim", "--compared-with", "christian")
    run(*asked, *other, "--out", "asked")
    gaps = pd.read_csv("asked/candidates.csv")
    assert (gaps["gap"] == gaps["gap[groups]"] + gaps["gap[identity]"]).all()
    probe = json.loads(Path("asked/summary.json").read_text())["probe"]
    assert f"Of {12 * sum(map(len, ON_PAGES.values()))} sentences" in probe["sentence"]
    run("report", "asked", "--out", "again.html")
    assert _page("again.html") == _page("asked/report.html")
    run("mitigate", "--config", "asked/settings.toml", "--out", "repeated")
    assert pd.read_csv("repeated/candidates.csv").equals(gaps)

    for given, said in (
        (("--identity", "muslin"), "Did you mean 'muslim'?"),
        (("--identity", "muslim", "--compared-with", "muslim"), "other identities than --identity"),
        (("--compared-with", "christian"), "--compared-with must go with --identity"),
    ):
        assert said in " ".join(run(*asked, *given, "--out", "wrong", code=2).output.split())
    of_columns = ("mitigate", "--model", "model.skops", *rows, *other, "--out", "wrong")
    found = run(*of_columns, code=2).output
    assert "--identity must go with a model that reads text, and muslim" in " ".join(found.split())
    assert not Path("wrong").exists()


def test_a_language_model_without_its_tokenizer_is_refused(
    run: Run, files: Path, bert: str
) -> None:
    for file in (files / bert).glob("*token*"):
        file.unlink()
    (files / bert / "vocab.txt").unlink(missing_ok=True)
    asked = ("audit", "--model", bert, "--text", "note", *COLUMNS, "--table", "test.csv")
    assert "must hold the model's tokenizer" in " ".join(run(*asked, code=2).output.split())


def test_a_class_is_found_by_its_import_path(run: Run, files: Path) -> None:
    package = files / "shop_models"
    package.mkdir()
    (package / "nets.py").write_text(plain_files.NET)
    asked = ("audit", "--model", "net.pt", "--model-args", '{"inputs": 3}', *NUMBERS, *COLUMNS,
             "--table", "test.csv", "--json", "--model-class")  # fmt: skip
    path = list(sys.path)
    by_path = run(*asked, "shop_models.nets:Net").stdout
    assert by_path == run(*asked, "net.py:Net").stdout
    assert sys.path == path
    del sys.modules["shop_models.nets"], sys.modules["shop_models"]


def test_the_sensitive_column_is_a_feature_only_when_asked(run: Run, files: Path) -> None:
    for name in ("train", "validation"):
        table = pd.read_csv(f"{name}.csv")
        table.assign(sex=(table["sex"] == "m").astype(int))[
            [*plain_files.NUMBERS, "sex", "repaid"]
        ].to_csv(f"{name}-numbers.csv", index=False)
    asked = ("audit", "--model", "net.safetensors", "--model-class", "net.py:Net", *COLUMNS,
             "--table", "train-numbers.csv", "--json")  # fmt: skip
    found = json.loads(run(*asked, "--model-args", '{"inputs": 3}').stdout)
    assert found["features"] == plain_files.NUMBERS
    result = run(
        *asked, "--model-args", '{"inputs": 3}', "--sensitive-as-features", code=2
    )  # four columns for three inputs
    assert "The model must take" in result.stderr


def test_people_see_tables_and_sentences(run: Run, files: Path) -> None:
    result = run("audit", "--model", "model.txt", "--table", "test.csv", *COLUMNS)
    assert "demographic parity gap" in result.stdout
    assert "true positive rate" in result.stdout
    assert "4 feature(s), sex not among them." in result.stdout
    result = run("mitigate", "--model", "model.txt", *TABLES, *COLUMNS, *SMALL, "--out", "result")
    assert "The choice was made on these rows" in result.stdout
    assert "result/report.html" in result.stdout
    result = run("influence", "--model", "model.txt", *TABLES, *COLUMNS, "--out", "s.csv")
    assert "Wrote the scores of 300 rows to s.csv" in result.stdout


@pytest.mark.parametrize(
    "search",
    ["all_positive", "path", *(pytest.param(s, marks=pytest.mark.slow) for s in SLOW_SEARCHES)],
)
def test_every_search_can_be_asked_for(run: Run, files: Path, search: str) -> None:
    asked = ("mitigate", "--model", "model.skops", *TABLES, *COLUMNS, "--search", search)
    summary = json.loads(run(*asked, "--out", "result", "--json").stdout)
    assert summary["edit"]["search"].lower().startswith(search.replace("_", ""))
    run("report", "result", "--out", "again.html")
    assert _page("again.html") == _page("result/report.html")


def test_rows_may_be_held_out_and_work_be_noted(run: Run, files: Path) -> None:
    asked = ("mitigate", "--model", "model.skops", *TABLES, *COLUMNS, *SMALL)
    more = ("--holdout-fraction", "0.25", "--checkpoint", "notes")
    summary = json.loads(run(*asked, *more, "--out", "result", "--json").stdout)
    held = summary["holdout"]["before"]["by_group"]
    assert sum(group["count"] for group in held.values()) == 100
    assert Path("notes").is_dir()
    again = json.loads(run(*asked, *more, "--out", "second", "--json").stdout)
    assert again["validation"] == summary["validation"]
    run("report", "result", "--out", "again.html")
    assert _page("again.html") == _page("result/report.html")


def test_tables_of_every_kind_give_the_same_audit(run: Run, files: Path) -> None:
    import duckdb

    table = pd.read_csv("test.csv")
    table.to_parquet("test.parquet")
    table.to_feather("test.arrow")
    with duckdb.connect("test.duckdb") as connection:
        connection.execute("create table people as select * from 'test.csv'")
    asked = ("audit", "--model", "model.txt", *COLUMNS, "--json", "--table")
    expected = run(*asked, "test.csv").stdout
    assert run(*asked, "test.parquet").stdout == expected
    assert run(*asked, "test.arrow").stdout == expected
    assert run(*asked, "test.duckdb", "--query", "from people").stdout == expected


def in_a_process(*arguments: str) -> tuple[str, str]:
    """As in a terminal: the installed command, in its own process."""
    command = [str(Path(sys.executable).with_name("fairij")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("own", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_newcomer_gets_from_a_csv_and_a_model_to_a_report(
    run: Run, files: Path, own: bool
) -> None:
    """In a process of its own or not, and with no terminal to draw on."""
    asked = ("--model", "model.txt", *COLUMNS, *TABLES, "--test", "test.csv", "--out", "result")
    if own:
        said, noted = in_a_process("mitigate", *asked)
    else:
        result = run("mitigate", *asked)
        said, noted = result.stdout, result.stderr
    assert "Before and after, on test rows" in said
    assert "\x1b" not in said + noted  # quiet and plain
    assert "demographic parity gap" in Path("result/report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("undrawn")
def test_an_exported_program_is_edited_and_saved_as_one(run: Run, files: Path) -> None:
    sys.path.insert(0, str(files))
    net = load_model("net.safetensors", OPENING).model
    sys.path.remove(str(files))
    batch = torch.export.Dim("batch")
    program = torch.export.export(net, (torch.zeros(8, 3),), dynamic_shapes=({0: batch},))
    torch.export.save(program, files / "net.pt2")
    asked = ("mitigate", "--model", "net.pt2", *TABLES, *COLUMNS, *NUMBERS, *SMALL,
             "--weight-decay", "0.01", "--out", "result", "--json")  # fmt: skip
    assert "--trust-pickle" in run(*asked, code=2).stderr
    summary = json.loads(run(*asked, "--trust-pickle").stdout)
    plain = json.loads(
        run("mitigate", "--model", "net.pt", *NET, *TABLES, *COLUMNS, *NUMBERS, *SMALL,
            "--weight-decay", "0.01", "--out", "plain", "--json").stdout
    )  # fmt: skip
    assert summary["validation"]["before"] == plain["validation"]["before"]
    put = ("--edit", "result/edit.safetensors", "--trust-pickle")
    run("undo", "--model", "result/model.pt2", *put, "--out", "undone.pt2")
    trusted = Opening(trust_pickle=True)
    first, undone = (load_model(p, trusted).model for p in ("net.pt2", "undone.pt2"))
    assert torch.equal(adapt(first).theta, adapt(undone).theta)
    edited = load_model("result/model.pt2", trusted).model
    assert not torch.equal(adapt(first).theta, adapt(edited).theta)
