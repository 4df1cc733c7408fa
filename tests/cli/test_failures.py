"""Everything that may be expected to go wrong: one clear line, the right exit code, no traces."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingClassifier

import plain_files
from disks import small_disk
from fairij.cli import app
from fairij.cli.errors import EXIT_CODES, as_options
from plain_files import Run

COLUMNS = ("--label", "repaid", "--sensitive", "sex")
AUDIT = ("audit", "--model", "model.txt", "--table", "test.csv")
NET = ("--model-class", "net.py:Net", "--model-args", '{"inputs": 3}')
NUMBERS = tuple(part for name in plain_files.NUMBERS for part in ("--features", name))
MITIGATE = ("mitigate", "--model", "model.txt", "--train", "train.csv", "--validation",
            "validation.csv", *COLUMNS, "--max-k", "20", "--scale", "1")  # fmt: skip


def change(name: str, column: str, row: int, value: Any) -> None:
    table = pd.read_csv(name)
    cells = table[column].astype(object)
    cells.iloc[row] = value
    table.assign(**{column: cells}).to_csv(name, index=False)


def error(result: Any) -> str:
    """The one line that was said; nothing else is."""
    assert result.stdout == ""
    (line,) = [text for text in result.stderr.splitlines() if not text.startswith("note: ")]
    assert line.startswith("error: ")
    assert "Traceback" not in line
    return str(line)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--label", "Repaid", "--sensitive", "sex"), "'Repaid' (near: 'repaid')"),
        (("--label", "repaid", "--sensitive", "sexx"), "'sexx' (near: 'sex')"),
        ((*COLUMNS, "--weights", "nothing like it"), "must have the column(s) 'nothing like it'"),
        ((*COLUMNS, "--features", "income"), "The model knows its features"),
        ((*COLUMNS, "--positive", "yes"), "--positive yes is no value of 'repaid'"),
        ((*COLUMNS, "--query", "select 1"), "A query can be asked of a DuckDB file only"),
    ],
)
def test_wrong_columns(run: Run, arguments: tuple[str, ...], expected: str) -> None:
    assert expected in error(run(*AUDIT, *arguments, code=2))


def test_labels_in_words_must_say_which_one_is_1(run: Run) -> None:
    table = pd.read_csv("test.csv")
    table["repaid"] = np.where(table["repaid"] == 1, "approved", "denied")
    table.to_csv("test.csv", index=False)
    assert "pass it by --positive" in error(run(*AUDIT, *COLUMNS, code=2))
    said = run(*AUDIT, *COLUMNS, "--positive", "approved", "--json").stdout
    assert json.loads(said)["metrics"]["accuracy"]["value"] > 0.5


def test_a_table_of_one_label_or_one_group_says_little(run: Run) -> None:
    table = pd.read_csv("test.csv")
    table.assign(repaid=1).to_csv("test.csv", index=False)
    assert "must have rows of both labels, but all of them have 1" in error(
        run(*AUDIT, *COLUMNS, code=2)
    )
    table.assign(sex="f").to_csv("test.csv", index=False)
    told = "at least two groups, but all rows of test.csv are of 'f'"
    assert told in error(run(*AUDIT, *COLUMNS, code=2))
    assert told in error(run(*MITIGATE, "--test", "test.csv", "--out", "result", code=2))
    assert told in error(
        run("compare", "model.txt", "model.skops", "--table", "test.csv", *COLUMNS, code=2)
    )


def test_cures_are_told_as_options(run: Run) -> None:
    table = pd.read_csv("test.csv")
    table.assign(repaid=table["income"]).to_csv("test.csv", index=False)
    assert "pass --loss squared_error for regression" in error(run(*AUDIT, *COLUMNS, code=2))
    other = "train LogisticRegression(solver='lbfgs'), `drop`='loss_aware' or `validation_use`"
    assert as_options(other) == (
        "train LogisticRegression(solver='lbfgs'), --drop loss_aware or --validation-use"
    )


def test_groups_of_few_rows_are_told(run: Run) -> None:
    assert "Few rows" not in run(*AUDIT, *COLUMNS).output
    change("test.csv", "sex", 3, "x")
    assert "Few rows: 1 of 'x'. Rates over fewer than 30 rows" in run(*AUDIT, *COLUMNS).output


def test_names_from_data_are_text_on_the_screen(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # several test processes are given one
    names = {"f": "[red]women[/red]", "m": "[/nothing] " + "long " * 12}
    table = pd.read_csv("test.csv")
    table.assign(sex=table["sex"].map(names)).to_csv("[bold]test.csv", index=False)
    asked = ("audit", "--model", "model.txt", "--table", "[bold]test.csv", *COLUMNS)
    shown = run(*asked).stdout
    for name in (*names.values(), "300 rows of [bold]test.csv"):
        assert name.strip() in shown


def test_one_file_cannot_be_two_kinds_of_rows(run: Run) -> None:
    said = error(run(*MITIGATE, "--test", "validation.csv", "--out", "result", code=2))
    assert "--test must hold other rows than --validation" in said
    assert not Path("result").exists()


@pytest.mark.usefixtures("undrawn")
def test_rows_split_off_the_training_rows_are_spoken_of(run: Run) -> None:
    without = [part for part in MITIGATE if part not in ("--validation", "validation.csv")]
    result = run(*without, "--out", "result")
    assert "The model was trained on them" in " ".join(result.stderr.split())
    assert "How far to trust it:" in result.stdout


def test_a_table_without_the_models_features(run: Run) -> None:
    table = pd.read_csv("test.csv").rename(columns={"income": "incomes"})
    table.to_csv("test.csv", index=False)
    assert "'income' (near: 'incomes'" in error(run(*AUDIT, *COLUMNS, code=2))


def test_mixed_types(run: Run) -> None:
    change("test.csv", "debt", 7, "a lot")
    said = error(run(*AUDIT, *COLUMNS, code=2))
    assert "'debt' must be numeric" in said
    assert "row 7 holds 'a lot'" in said
    assert "numbers and text are mixed" in said


def test_text_where_the_model_needs_numbers(run: Run) -> None:
    asked = ("audit", "--model", "net.safetensors", *NET, "--table", "test.csv", *COLUMNS)
    said = error(run(*asked, "--features", "job", code=2))
    assert "'job' must be numeric" in said


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("repaid", "1 missing value(s) in 'repaid', the label column; the first is in row 3"),
        ("sex", "1 missing value(s) in 'sex', the sensitive column"),
        ("sex", "or give --missing-groups ignore"),
        ("w", "1 missing value(s) in 'w', the weights column"),
    ],
)
def test_missing_values_in_labels_groups_and_weights(run: Run, column: str, expected: str) -> None:
    change("test.csv", column, 3, None)
    assert expected in error(run(*AUDIT, *COLUMNS, "--weights", "w", code=2))


def test_the_label_is_no_group(run: Run) -> None:
    asked = ("audit", "--model", "model.txt", "--table", "test.csv", "--label", "repaid")
    said = error(run(*asked, "--sensitive", "repaid", code=2))
    assert "--sensitive must be a column of groups, but 'repaid' is the --label" in said


def test_missing_features_are_for_the_model_to_judge(run: Run) -> None:
    change("test.csv", "debt", 3, None)
    run(*AUDIT, *COLUMNS)  # trees take them
    asked = ("audit", "--table", "test.csv", *COLUMNS, "--model")
    said = error(run(*asked, "net.safetensors", *NET, *NUMBERS, code=2))
    assert "'debt' has 1, the first in row 3" in said
    said = error(run(*asked, "model.skops", code=2))
    assert "NaN" in said or "finite" in said


def test_an_unknown_category_everywhere_is_no_category(run: Run) -> None:
    table = pd.read_csv("test.csv")
    table.assign(job=np.arange(len(table))).to_csv("test.csv", index=False)
    assert "'job' must hold the categories of the training table" in error(
        run(*AUDIT, *COLUMNS, code=2)
    )


@pytest.mark.usefixtures("undrawn")
def test_unknown_categories_are_told(run: Run) -> None:
    change("test.csv", "job", 3, "pilot")
    result = run(*AUDIT, *COLUMNS)
    told = "test.csv has 1 of 300 rows whose 'job' the model does not know from its training: "
    assert f"note: {told}'pilot'." in result.stderr
    asked = ("audit", "--table", "test.csv", *COLUMNS, "--model")
    for strict in ("model.json", "model.skops"):
        assert f"{told}'pilot'. It cannot take them" in error(run(*asked, strict, code=2))
    change("validation.csv", "job", 0, "smith")
    result = run(*MITIGATE, "--test", "test.csv", "--out", "result")
    for name, job in (("validation.csv has 1 of 400", "smith"), ("test.csv has 1 of 300", "pilot")):
        (line,) = [line for line in result.stderr.splitlines() if name in line]
        assert repr(job) in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--train", "train.csv"), "without a query; train.csv is csv."),
        (("--train", "none.parquet"), "No table at none.parquet"),
        (("--train", "junk.parquet"), "junk.parquet cannot be read as parquet"),
        (("--train", "empty.parquet"), "empty.parquet must have at least one row"),
        (("--train", "few.parquet"), "must have the column(s) 'income'"),
        (("--train", "lists.parquet"), "'w' holds lists or records"),
        (("--train", "few.parquet", "--train-query", "select 1"), "without a query"),
    ],
)
def test_files_that_cannot_be_read_in_chunks(
    run: Run, arguments: tuple[str, ...], expected: str
) -> None:
    Path("junk.parquet").write_bytes(b"PAR1 not really")
    table = pd.read_csv("train.csv")
    table.iloc[:0].to_parquet("empty.parquet")
    table.drop(columns="income").to_parquet("few.parquet")
    table.assign(w=[[1, 2]] * len(table)).to_parquet("lists.parquet")
    asked = ("influence", "--model", "model.txt", *arguments, "--validation", "validation.csv")
    said = error(run(*asked, *COLUMNS, "--stream", "--out", "scores.csv", code=2))
    assert expected in said


def test_an_empty_group(run: Run) -> None:
    table = pd.read_csv("validation.csv")
    table[table["sex"] == "m"].to_csv("validation.csv", index=False)
    said = error(run(*MITIGATE, "--out", "result", code=2))
    assert "'sex' = 'f' has none" in said
    assert not Path("result").exists()
    table.assign(sex=pd.Categorical(table["sex"], ["f", "m", "x"])).to_parquet("groups.parquet")
    said = error(
        run("audit", "--model", "model.txt", "--table", "groups.parquet", *COLUMNS, code=2)
    )
    assert "'x' has none in groups.parquet" in said


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("none.csv", None, "No table at none.csv"),
        ("empty.csv", b"", "empty.csv must start with a line of column names"),
        ("header.csv", b"income,repaid,sex\n", "must have at least one row"),
        ("twice.csv", b"sex,sex\n1,2\n", "'sex' 2 times"),
        ("binary.csv", b"a,b\n\xff\xfe\x00,1\n", "cannot be read as csv"),
        ("spreadsheet.csv", "sex,repaid\ncafé,1\n".encode("latin-1"), "Save it as UTF-8"),
        ("european.csv", b"sex;income;repaid\nf;1,5;1\n", "must be separated by commas"),
        ("ragged.csv", b"a,b\n1,2\n1,2,3,4\n", "cannot be read as csv"),
        ("junk.parquet", b"PAR1 not really", "cannot be read as parquet"),
        ("junk.arrow", b"ARROW1 not really", "cannot be read as arrow"),
        ("table.xlsx", b"PK", "A table's name must end in one of .csv"),
    ],
)
def test_unreadable_tables(run: Run, name: str, content: bytes | None, expected: str) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    said = error(run("audit", "--model", "model.txt", "--table", name, *COLUMNS, code=2))
    assert expected in said


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("none.txt", None, "No model at none.txt"),
        ("junk.txt", b"tree\n", "cannot be read as a LightGBM text model"),
        ("junk.json", b'{"learner": 3}', "cannot be read as an XGBoost model"),
        ("junk.ubj", b"x", "cannot be read as an XGBoost model"),
        ("junk.skops", b"x", "cannot be read as a skops file"),
        ("junk.safetensors", b"x", "cannot be read as a file of torch parameters"),
        ("junk.pt", b"x", "cannot be read as a file of torch parameters"),
        ("junk.onnx", b"x", "cannot be read as an ONNX model"),
        ("model.h5", b"x", "A model's name must end in one of .txt"),
    ],
)
def test_unreadable_models(run: Run, name: str, content: bytes | None, expected: str) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    said = error(run("audit", "--model", name, "--table", "test.csv", *COLUMNS, code=2))
    assert expected in said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "--model-class"),
        (("--model-class", "Net"), "must be module:Class or file.py:Class"),
        (("--model-class", "net.py:Nett"), "cannot be imported"),
        (("--model-class", "nowhere.net:Net"), "cannot be imported"),
        (("--model-class", "net.py:Net"), "Give the constructor's arguments by --model-args"),
        (
            ("--model-class", "builtins:dict"),
            "must name a class of torch.nn.Module, but it is the class 'dict'",
        ),
        (("--model-class", "net.py:Net", "--model-args", "{"), "--model-args must be JSON"),
        (("--model-class", "net.py:Net", "--model-args", '{"inputs": 9}'), "do not fit net.py:Net"),
    ],
)
def test_torch_parameters_need_their_class(
    run: Run, arguments: tuple[str, ...], expected: str
) -> None:
    asked = ("audit", "--model", "net.safetensors", "--table", "test.csv", *COLUMNS, *NUMBERS)
    assert expected in error(run(*asked, *arguments, code=2))


class Trap:
    def __reduce__(self) -> Any:
        return os.mkdir, ("sprung",)


@pytest.mark.parametrize("name", ["model.pkl", "model.pickle", "model.joblib", "model.pt2"])
def test_a_pickle_is_never_opened_unless_trusted(run: Run, name: str) -> None:
    Path(name).write_bytes(pickle.dumps(Trap()))
    said = error(run("audit", "--model", name, "--table", "test.csv", *COLUMNS, code=2))
    assert "--trust-pickle" in said
    assert not Path("sprung").exists()


def test_a_torch_file_with_more_than_tensors_is_not_opened(run: Run) -> None:
    import torch

    torch.save({"weights": torch.zeros(2), "more": Trap()}, "trap.pt")
    said = error(run("audit", "--model", "trap.pt", *NET, "--table", "test.csv", *COLUMNS, code=2))
    assert "--trust-pickle" in said
    assert not Path("sprung").exists()


@pytest.mark.usefixtures("undrawn")
def test_a_trusted_pickle_goes_the_whole_way(run: Run) -> None:
    table = pd.read_csv("train.csv")
    model = GradientBoostingClassifier(n_estimators=20).fit(
        table[plain_files.NUMBERS], table["repaid"]
    )
    Path("model.pkl").write_bytes(pickle.dumps(model))
    changed = ["model.pkl" if word == "model.txt" else word for word in MITIGATE]
    run(*changed, "--max-k", "150", "--scale", "9", "--trust-pickle", "--out", "result")
    edited = pickle.loads(Path("result/model.pkl").read_bytes())
    rows = table[plain_files.NUMBERS]
    assert (edited.decision_function(rows) != model.decision_function(rows)).any()
    # the trust is not written down: who repeats the run says it again
    run("mitigate", "--config", "result/settings.toml", "--out", "again", code=2)
    run("mitigate", "--config", "result/settings.toml", "--out", "again", "--trust-pickle")


def test_types_that_are_not_known_to_be_safe_are_shown(run: Run) -> None:
    import skops.io

    table = pd.read_csv("train.csv")
    model = GradientBoostingClassifier(n_estimators=3).fit(
        table[plain_files.NUMBERS], table["repaid"]
    )
    skops.io.dump(model, "boosted.skops")
    asked = ("audit", "--model", "boosted.skops", "--table", "test.csv", *COLUMNS)
    assert "--trust sklearn.tree._tree.Tree" in error(run(*asked, code=2))
    run(*asked, "--trust", "sklearn.tree._tree.Tree")


@pytest.mark.usefixtures("undrawn")
def test_an_edit_for_another_model(run: Run) -> None:
    run(*MITIGATE, "--out", "result")
    put = ("--edit", "result/edit.safetensors", "--out", "other.txt")
    other = ("--edit", "result/edit.safetensors", "--out", "other.json")
    assert "another model" in error(run("apply", "--model", "model.json", *other, code=1))
    said = error(run("apply", "--model", "result/model.txt", *put, code=1))  # applied already
    assert "The edit is on this model already" in said
    said = error(run("apply", "--model", "model.txt", *put[:2], "--out", "other.json", code=2))
    assert "--out must end in .txt" in said
    Path("cut.safetensors").write_bytes(Path("result/edit.safetensors").read_bytes()[:-5])
    cut = ("--edit", "cut.safetensors", "--out", "other.txt")
    assert "does not hold a valid edit" in error(run("apply", "--model", "model.txt", *cut, code=2))
    assert not Path("other.txt").exists()


@pytest.mark.usefixtures("undrawn")
def test_nothing_is_overwritten_without_force(run: Run) -> None:
    run(*MITIGATE, "--out", "result")
    written = Path("result/summary.json").read_bytes()
    assert "--force" in error(run(*MITIGATE, "--out", "result", code=2))
    assert Path("result/summary.json").read_bytes() == written
    run(*MITIGATE, "--out", "result", "--force", "--constraints", "equal_opportunity")
    assert Path("result/summary.json").read_bytes() != written
    for taken in ("train.csv", "result"):
        said = error(run("apply", "--model", "model.txt", "--edit", "result/edit.safetensors",
                         "--out", taken, code=2))  # fmt: skip
        assert "already" in said
    scores = ("influence", *MITIGATE[1:])
    assert "--force" in error(run(*scores, "--out", "train.csv", code=2))
    assert "--force" in error(run("report", "result", code=2))


@pytest.mark.usefixtures("undrawn")
def test_a_page_is_not_made_from_other_rows_than_were_used(run: Run) -> None:
    run(*MITIGATE, "--test", "test.csv", "--out", "result")
    for name in ("train.csv", "test.csv"):
        kept = Path(name).read_bytes()
        pd.read_csv(name).iloc[::-1].to_csv(name, index=False)
        said = error(run("report", "result", "--out", "again.html", code=2))
        assert f"{name} must be the table of that run, but it has changed" in said
        assert not Path("again.html").exists()
        Path(name).write_bytes(kept)
    run("report", "result", "--out", "again.html")
    Path("train.csv").unlink()
    again = ("mitigate", "--config", "result/settings.toml", "--out", "second")
    for asked in (("report", "result", "--out", "third.html"), again):
        assert "train.csv; check the path" in error(run(*asked, code=2))


@pytest.mark.usefixtures("undrawn")
def test_edits_are_compared_with_a_model_before_them(run: Run) -> None:
    run(*MITIGATE, "--out", "result")
    asked = ("--table", "test.csv", *COLUMNS)
    for first in ("result", "result/edit.safetensors"):
        said = error(run("compare", first, "model.txt", *asked, code=2))
        assert f"{first} holds an edit: name the model before it" in said


def test_force_replaces_only_what_this_command_wrote(run: Run) -> None:
    Path("thesis").mkdir()
    Path("thesis/chapter.txt").write_text("years of work")
    said = error(run(*MITIGATE, "--out", "thesis", "--force", code=2))
    assert "was not written by this command" in said
    assert Path("thesis/chapter.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lable = 'repaid'", "or 'label'"),
        ("force = true", "taken from the command line only"),
        ("label = ", "not valid TOML"),
        ("max-k = 'many'", "Invalid value for '--max-k'"),
    ],
)
def test_settings_files_are_checked(run: Run, text: str, expected: str) -> None:
    Path("own.toml").write_text(text)
    result = run("mitigate", "--config", "own.toml", *MITIGATE[1:-4], "--out", "x", code=2)
    assert expected in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--slack", "0.1", "--target-gap", "0.1"), "one rule; got --target-gap and --slack"),
        (("--damping", "low"), "--damping must be"),
        (("--search", "all_positive"), "--max-k has no meaning"),
        (("--confidence", "2"), "--confidence must be a number"),
        (("--temperature", "-1"), "--temperature must be a number"),
        (("--constraints", "fairness"), "--constraints must be one of demographic_parity, "),
        (
            ("--validation-use", "x"),
            "--validation-use must be one of auto, reuse, split, cross_fit; got",
        ),
        (("--search", "paths"), "reweight, path, constrained; got 'paths'."),
        (("--search", "paths"), "Did you mean 'path'?"),
        (("--solver", "gauss"), "printed_woodfisher, identity; got 'gauss'."),
        (("--loss", "hinge"), "--loss must be one of auto, "),
    ],
)
def test_settings_that_make_no_sense(run: Run, arguments: tuple[str, ...], expected: str) -> None:
    assert expected in error(run(*MITIGATE, *arguments, "--out", "result", code=2))


def test_seeds_are_not_negative(run: Run) -> None:
    for asked in ((*AUDIT, *COLUMNS), (*MITIGATE, "--out", "result"), ("demo", "--out", "d")):
        said = run(*asked, "--random-state", "-1", code=2).stderr
        assert "Invalid value for '--random-state'" in said


def leftovers() -> list[str]:
    return [path.name for path in Path().iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("raised", "code", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "page"), 4, "the disk is full"),
        (KeyboardInterrupt(), 130, "interrupted; nothing half-written is left"),
        (MemoryError(), 1, "not enough memory"),
    ],
)
def test_a_failure_while_writing_leaves_nothing_behind(
    run: Run, monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, expected: str
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise raised

    monkeypatch.setattr("fairij.cli.mitigation.write_page", fail)
    assert expected in error(run(*MITIGATE, "--out", "result", code=code))
    assert not Path("result").exists()
    assert leftovers() == []


@pytest.fixture
def mounted(files: Path) -> Iterator[Path]:
    with small_disk(files / "disk", 300) as folder:
        yield folder


def test_a_full_disk(run: Run, mounted: Path) -> None:
    assert "the disk is full" in error(run(*MITIGATE, "--out", mounted / "result", code=4))
    assert list(mounted.iterdir()) == []


@pytest.mark.parametrize("model", ["model.txt", "model.json", "model.skops", "net.pt"])
def test_a_full_disk_is_noticed_for_every_format(run: Run, mounted: Path, model: str) -> None:
    """Some libraries do not say that a file could not be written whole."""
    opening = NET if model == "net.pt" else ()
    asked = ["--train", "train.csv", "--validation", "validation.csv", *COLUMNS, *opening]
    asked += NUMBERS if model == "net.pt" else ()
    small = ("--max-k", "20", "--scale", "1")
    run("mitigate", "--model", model, *asked, *small, "--out", "result")
    (mounted / "filler").write_bytes(b"\0" * (300 * 1024))
    put = ("--edit", "result/edit.safetensors", *opening)
    out = mounted / f"edited{Path(model).suffix}"
    said = error(run("apply", "--model", model, *put, "--out", out, code=4))
    assert "the disk is full" in said
    assert [path.name for path in mounted.iterdir()] == ["filler"]


def test_a_folder_that_may_not_be_written(run: Run, mounted: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    said = error(run(*MITIGATE, "--out", mounted / "result", code=4))
    assert "may not be written" in said


def test_the_help_has_every_exit_code_and_examples(run: Run) -> None:
    for command in ("audit", "influence", "mitigate", "apply", "undo", "compare", "report", "demo",
                    "reproduce"):  # fmt: skip
        text = " ".join(run(command, "--help").stdout.split())
        assert f"$ fairij {command}" in text
        for code, meaning in EXIT_CODES.items():
            assert f"{code} {meaning}" in text


def test_the_first_help_shows_the_way(run: Run) -> None:
    text = " ".join(run("--help").stdout.split())
    assert "`fairij audit` shows how the model treats the groups" in text
    assert "`fairij demo` runs everything on real data" in text


def test_data_sets_are_listed_and_unknown_ones_told(run: Run) -> None:
    found = json.loads(run("datasets", "list", "--json").stdout)
    assert "adult" in found["datasets"]
    assert "did you mean 'compas'?" in error(run("datasets", "fetch", "compass", code=2))
    said = error(run("datasets", "fetch", "adult", "--path", "nowhere", code=1))
    assert "nowhere" in said


def test_studies_are_listed_and_unknown_ones_told(run: Run) -> None:
    assert "adult" in json.loads(run("reproduce", "list", "--json").stdout)["studies"]
    assert "must be one of" in error(run("reproduce", "nothing", "--out", "x", code=2))
    assert not Path("x").exists()


def test_a_study_writes_into_no_other_folder(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def study(_: str, folder: Path, **__: Any) -> pd.DataFrame:
        (folder / "README.md").write_text("drawn")
        (folder / "results.jsonl").touch()
        return pd.DataFrame()

    monkeypatch.setattr("fairij_studies.reproduce", study)
    asked = ("reproduce", "adult", "--quick", "--out")
    assert "that are not of this study" in error(run(*asked, ".", code=2))
    assert "train.csv is a file" in error(run(*asked, "train.csv", code=2))
    Path("begun").mkdir()
    run(*asked, "begun")
    Path("begun/notes.txt").write_text("mine")  # in nobody's way
    run(*asked, "begun")
    for name in ("README.md", "my.svg"):
        Path("begun", name).write_text("mine")
        assert f"begun holds '{name}', which" in error(run(*asked, "begun", code=2))
        assert Path("begun", name).read_text() == "mine"
        Path("begun", name).unlink()
    said = error(run("reproduce", "trees", "--out", "begun", code=2))
    assert "it is of `fairij reproduce adult`" in said
    project = Path("project")
    project.mkdir()
    for name, content in {
        "README.md": "mine",
        "results.jsonl": "{}\n",
        "results.parquet": "x",
    }.items():
        (project / name).write_text(content)
    assert "that are not of this study" in error(run(*asked, "project", code=2))
    assert (project / "README.md").read_text() == "mine"


def test_a_study_that_fails_at_once_leaves_no_folder(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def study(*_: Any, **__: Any) -> pd.DataFrame:
        raise KeyboardInterrupt

    monkeypatch.setattr("fairij_studies.reproduce", study)
    run("reproduce", "adult", "--out", "new", code=130)
    assert not Path("new").exists()


def test_a_study_of_an_earlier_version_is_continued(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairij_studies.reproduce", lambda *_, **__: pd.DataFrame())
    Path("earlier").mkdir()
    line = {"study": "adult", "quick": True, "unit": "{}", "unit_lines": 1}
    Path("earlier/results.jsonl").write_text(json.dumps(line) + "\n")
    assert "not of this study" in error(run("reproduce", "trees", "--out", "earlier", code=2))
    run("reproduce", "adult", "--out", "earlier")
    assert Path("earlier/contents.json").is_file()


def test_a_study_is_run_as_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def study(name: str, folder: Path, *, progress: Any, **options: Any) -> pd.DataFrame:
        asked.update(options, name=name, folder=folder)
        return pd.DataFrame({"unit": [1, 2]})

    monkeypatch.setattr("fairij_studies.reproduce", study)
    result = run("reproduce", "adult", "--quick", "--processes", "2", "--path", ".", "--json")
    assert json.loads(result.stdout) == {
        "study": "adult", "records": 2, "out": "reproduced-adult"
    }  # fmt: skip
    assert asked == {
        "name": "adult", "folder": Path("reproduced-adult"), "quick": True, "processes": 2,
        "path": Path(),
    }  # fmt: skip


def test_what_libraries_print_does_not_mix_with_results(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairij.cli import audits

    measured = audits.measured

    def talkative(*args: Any, **options: Any) -> Any:
        print("[Library] chatter")
        return measured(*args, **options)

    monkeypatch.setattr(audits, "measured", talkative)
    result = run(*AUDIT, *COLUMNS, "--json")
    json.loads(result.stdout)
    assert "chatter" in result.stderr


def test_every_command_is_registered() -> None:
    names = {command.name for command in app.registered_commands}
    assert names == {"audit", "influence", "mitigate", "apply", "undo", "compare", "report", "demo",
                     "reproduce"}  # fmt: skip
