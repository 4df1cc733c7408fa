"""Settings files and result folders of other people: they are read, and never run."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import plain_files
from fairij.cli import app
from fairij.cli.config import read_toml
from fairij.data.memory import limit
from fairij.errors import InvalidInputError
from plain_files import Run

COLUMNS = ("--label", "repaid", "--sensitive", "sex")
TABLES = ("--train", "train.csv", "--validation", "validation.csv")
SMALL = ("--max-k", "5", "--scale", "1")
NET = ("--model-class", "net.py:Net", "--model-args", '{"inputs": 3}')
NUMBERS = tuple(part for name in plain_files.NUMBERS for part in ("--features", name))
MITIGATE = ("mitigate", "--model", "model.txt", *TABLES, *COLUMNS, *SMALL)
TRAP = """
import pathlib
pathlib.Path("sprung").touch()
from torch import nn
class Net(nn.Linear):
    pass
"""


def error(result: Any) -> str:
    assert result.stdout == ""
    (line,) = [text for text in result.stderr.splitlines() if not text.startswith("note: ")]
    return str(line)


def told(result: Any) -> str:
    """What was said, as one line, without a frame."""
    return " ".join(result.stderr.replace("│", " ").split())


def set_key(path: str | Path, **values: str) -> None:
    """Set keys of a settings file, above its table."""
    above, table, hashes = Path(path).read_text().partition("[sha256]")
    kept = [line for line in above.splitlines() if line.split(" = ")[0] not in values]
    lines = [f"{k} = {v}" for k, v in values.items()] + kept
    Path(path).write_text("\n".join(lines) + f"\n{table}{hashes}")


CODE = {
    "model_class": ('"os:system"', '"trap:Net"', '"trap.py:Net"', '"posix:system"'),
    "model_args": ('"{\\"command\\": \\"touch sprung\\"}"', "{command = 'touch sprung'}"),
    "trust": ('["builtins.eval"]', '"os.system"'),
    "trust_pickle": ("true",),
}
EVERY = [(key, value) for key, values in CODE.items() for value in values]


@pytest.fixture(scope="module")
def written(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result folder, made once."""
    folder = tmp_path_factory.mktemp("received") / "files"
    shutil.copytree(made, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert CliRunner().invoke(app, [*MITIGATE, "--out", "result"]).exit_code == 0
    return folder / "result"


@pytest.fixture
def received(written: Path, files: Path) -> Path:
    """A result folder with settings that somebody else may have changed."""
    Path("trap.py").write_text(TRAP)
    shutil.copytree(written, "result")
    settings = Path("result", "settings.toml")
    settings.write_text(settings.read_text().replace(str(written.parent), str(Path.cwd())))
    return Path("result")


@pytest.mark.usefixtures("undrawn")
def test_no_key_that_can_run_code_is_followed(run: Run, received: Path) -> None:
    settings = received / "settings.toml"
    whole = settings.read_text()
    for key, value in EVERY:
        set_key(settings, **{key: value, "model": f'"{Path("net.safetensors").resolve()}"'})
        for asked in (
            ("report", received, "--out", "page.html"),
            ("mitigate", "--config", settings, "--out", "new"),
            ("influence", "--config", settings, "--out", "new.csv"),
            ("audit", "--config", settings, "--table", "test.csv"),
            ("apply", "--config", settings, "--edit", received / "edit.safetensors", "--out",
             "new.safetensors"),
            ("undo", "--config", settings, "--edit", received / "edit.safetensors", "--out",
             "new.safetensors"),
        ):  # fmt: skip
            said = error(run(*asked, code=2))
            assert f"notes that the model was opened with --{key.replace('_', '-')}" in said
            assert "This can run code, so it is taken from the command line only" in said
        compared = ("compare", "net.safetensors", received, "--table", "test.csv", *COLUMNS)
        assert "holds parameters only" in error(run(*compared, "--config", settings, code=2))
        settings.write_text(whole)
    assert not Path("sprung").exists()
    assert not list(Path().glob("new*"))


@pytest.mark.usefixtures("undrawn")
def test_what_to_give_again_is_said_as_a_command(run: Run) -> None:
    run("mitigate", "--model", "net.pt", *NET, *NUMBERS, *TABLES, *COLUMNS, *SMALL, "--out",
        "result odd")  # fmt: skip
    for asked in (
        ("report", "result odd", "--out", "again.html"),
        ("mitigate", "--config", "result odd/settings.toml", "--out", "second run"),
    ):
        said = error(run(*asked, code=2))
        command = shlex.split(said[said.index("give it again: ") + len("give it again: ") :])
        place = str(Path("net.py").resolve())
        assert command == [
            "fairij", *asked, "--model-class", f"{place}:Net", "--model-args", '{"inputs": 3}'
        ]  # fmt: skip
        run(*command[1:])
    # part of it is not enough; other arguments are the user's own choice
    some = ("report", "result odd", "--out", "third.html", *NET[:2])
    assert "opened with --model-args. This" in error(run(*some, code=2))
    assert "do not fit" in error(run(*some, "--model-args", '{"inputs": 4}', code=2))


@pytest.mark.usefixtures("undrawn")
def test_a_pickle_that_was_trusted_is_noted_too(run: Run) -> None:
    import pickle

    import pandas as pd
    from sklearn.linear_model import LogisticRegression

    table = pd.read_csv("train.csv")
    model = LogisticRegression().fit(table[plain_files.NUMBERS], table["repaid"])
    Path("model.pkl").write_bytes(pickle.dumps(model))
    asked = ("--model", "model.pkl", *MITIGATE[3:], "--trust-pickle", "--out", "result")
    run("mitigate", *asked)
    said = error(run("report", "result", "--out", "page.html", code=2))
    assert said.endswith("fairij report result --out page.html --trust-pickle")
    run("report", "result", "--out", "page.html", "--trust-pickle")


@pytest.mark.parametrize(
    "value",
    [r'"a\u001b[2Jb:Net"', r'"a\nb:Net"', r'"x\u202ey:Net"', "5", "[1]", "{a = 1}", "[['x']]"],
)
def test_a_note_that_would_deceive_is_not_shown(run: Run, received: Path, value: str) -> None:
    set_key(received / "settings.toml", model_class=value)
    said = error(run("report", received, "--out", "page.html", code=2))
    assert "notes --model-class, but not as a run writes it" in said


def test_words_of_the_command_cannot_leave_their_quotes(run: Run, received: Path) -> None:
    evil = "x:Net; touch sprung; $(touch sprung) `touch sprung` ' \" &"
    set_key(received / "settings.toml", model_class=f"'''{evil}'''")
    said = error(run("report", received, "--out", "page.html", code=2))
    assert shlex.split(said[said.index("fairij report") :])[-1] == evil


@pytest.mark.usefixtures("undrawn")
def test_the_limit_of_memory_is_never_taken_from_a_file(run: Run) -> None:
    """Or a received file could say how much memory it may take itself."""
    run(*MITIGATE, "--max-memory", "1000000000", "--out", "result")
    assert "max_memory" not in Path("result/settings.toml").read_text()
    for key in ("max_memory", "max-memory"):
        set_key("result/settings.toml", **{key: "900000000000"})
        said = told(run("mitigate", "--config", "result/settings.toml", "--out", "new", code=2))
        assert f"'{key.replace('-', '_')}', which is taken from the command line only" in said
        assert "give --max-memory there" in said
        said = error(run("report", "result", "--out", "page.html", code=2))
        assert f"has the key {key!r}, which no run writes" in said
        set_key("result/settings.toml", **{key: "1"})
        whole = Path("result/settings.toml").read_text().splitlines()
        kept = [line for line in whole if not line.startswith(key)]
        Path("result/settings.toml").write_text("\n".join(kept) + "\n")
    run("report", "result", "--out", "page.html", "--max-memory", "1000000000")
    said = error(run("report", "result", "--out", "other.html", "--max-memory", "100", code=2))
    assert "--max-memory" in said
    assert limit() > 100  # the next command has the machine's own limit again


def test_notes_count_only_if_the_file_names_the_model(run: Run) -> None:
    Path("own.toml").write_text("model_class = 'net.py:Net'\nlabel = 'repaid'\nsensitive = 'sex'\n")
    run("audit", "--config", "own.toml", "--model", "model.txt", "--table", "test.csv")


@pytest.mark.parametrize(
    "name", ["os:system", "builtins:eval", "torch:load", "subprocess:Popen", "pathlib:Path"]
)
def test_only_a_class_of_modules_is_called(run: Run, name: str) -> None:
    arguments = '{"command": "touch sprung", "args": ["touch", "sprung"], "source": "1/0"}'
    said = error(
        run("audit", "--model", "net.pt", "--model-class", name, "--model-args", arguments,
            "--table", "test.csv", *COLUMNS, code=2)
    )  # fmt: skip
    assert f"--model-class {name} must name a class of torch.nn.Module" in said
    assert not Path("sprung").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("out", "../new"),
        ("out", "/tmp/new-{}"),
        ("out", "a/../../new"),
        ("out", "link/new"),
        ("checkpoint", "../notes"),
        ("checkpoint", "/tmp/notes-{}"),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_a_settings_file_writes_nothing_outside_its_folder(
    run: Run, key: str, value: str, tmp_path: Path
) -> None:
    value = value.format(tmp_path.name)
    folder, outside = Path("received"), Path("outside").resolve()
    folder.mkdir()
    outside.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "own.toml").write_text(f"{key} = '{value}'\n")
    rest = () if key == "out" else ("--out", "result")
    asked = ("mitigate", "--config", "received/own.toml", *MITIGATE[1:], *rest)
    said = told(run(*asked, code=2))
    assert f"sets '{key}' to" in said
    assert "outside of its own folder" in said
    assert not any(outside.iterdir())
    if key == "out":  # the command line may
        run(*asked, "--out", "result")
        assert not any(outside.iterdir())


@pytest.mark.usefixtures("undrawn")
def test_it_may_write_in_its_folder(run: Run) -> None:
    Path("received").mkdir()
    Path("received/own.toml").write_text("out = 'deep/new'\ncheckpoint = 'notes'\n")
    run("mitigate", "--config", "received/own.toml", *MITIGATE[1:])
    assert Path("received/deep/new/contents.json").is_file()
    assert Path("received/notes").is_dir()


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("train", "https://example.com/train.csv", "No table at"),
        ("train", "/dev/zero", "must end in one of"),
        ("train", "/", "must end in one of"),
        ("train", "/dev/null.csv", "No table at"),
        ("model", "/", "A folder must hold a Hugging Face model"),
        ("train", "s3://bucket/train.parquet", "No table at"),
        ("model", "https://example.com/model.txt", "No model at"),
        ("model", "bert-base-uncased", "No model at"),
        ("model", "/etc/passwd", "must end in one of"),
    ],
)
def test_other_people_name_files_of_this_machine_only(
    run: Run, received: Path, key: str, value: str, expected: str
) -> None:
    set_key(received / "settings.toml", **{key: f'"{value}"'})
    for asked in (
        ("report", received, "--out", "page.html"),
        ("mitigate", "--config", received / "settings.toml", "--out", "new"),
    ):
        said = error(run(*asked, code=2))
        assert expected in said


def test_a_page_is_made_only_of_tables_whose_hash_is_known(run: Run, received: Path) -> None:
    """Or it would list rows of any table of this machine that somebody else named."""
    shutil.copy("train.csv", "salaries.csv")
    text = (received / "settings.toml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith('train = "')]
    named = f'train = "{Path("salaries.csv").resolve()}"'
    (received / "settings.toml").write_text("\n".join([named, *lines]))
    said = error(run("report", received, "--out", "page.html", code=2))
    assert "must have the hash of --train" in said


def test_a_query_reads_its_own_file_only(run: Run) -> None:
    import duckdb

    with duckdb.connect("shop.duckdb") as connection:
        connection.execute("create table people as select * from 'test.csv'")
        connection.execute("create view outside as select * from read_csv('test.csv')")
    asked = ("audit", "--model", "model.txt", *COLUMNS, "--table", "shop.duckdb", "--query")
    for query in (
        "from 'test.csv'",
        "from read_text('/etc/passwd')",
        "from outside",
        "copy people to 'stolen.csv'",
        "attach 'other.duckdb'",
        "install httpfs",
        "set enable_external_access = true; from 'test.csv'",
        "create table more as from people",
    ):
        assert "cannot be read as duckdb" in error(run(*asked, query, code=2))
    assert not Path("stolen.csv").exists()
    assert not Path("other.duckdb").exists()


BOMBS = {
    "large": "# " + "x" * 2**20,
    "levels": ".".join(["a"] * 500_000) + " = 1",
    "levels of a table": "[" + ".".join(["a"] * 500_000) + "]",
    "levels in quotes": ".".join(['"="'] * 250_000) + " = 1",
    "levels after a string": 'x = {a = """"""", ' + ".".join(["b"] * 400_000) + ' = "x"}',
    "levels after a comment": "# it's '''\n" + ".".join(["b"] * 400_000) + " = 1\n# '''",
    "levels apart": " . ".join(["a"] * 200_000) + " = 1",
    "nested": "a = " + "[" * 400_000,
    "nested tables": "a = " + "{a=" * 300_000,
    "quotes": "a = " + '"""\\' * 250_000,
    "single quotes": "'''" * 300_000,
    "a long number": "seed = " + "9" * 1_000_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_settings_that_would_take_for_ever(tmp_path: Path, name: str) -> None:
    path = tmp_path / "bomb.toml"
    path.write_text(BOMBS[name])
    start = time.process_time()
    with pytest.raises(InvalidInputError, match=r"bomb\.toml (is not valid TOML|has more than)"):
        read_toml(path)
    assert time.process_time() - start < 5


def test_dots_in_values_are_no_levels(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    names = [f"v.{'.' * 40}{number}" for number in range(200)]
    path.write_text(
        f"# {'.' * 99}\ntitle = '''{'.' * 99}\n'''\nfeatures = {names}\nmore = [1.5, 2.5]"
    )
    assert read_toml(path)["features"] == names


def test_a_pipe_or_a_device_is_no_settings_file(run: Run, received: Path) -> None:
    (received / "settings.toml").unlink()
    os.mkfifo(received / "settings.toml")
    said = error(run("report", received, "--out", "page.html", code=2))
    assert "it is not a file" in said
    said = told(run("audit", "--config", "/dev/zero", *MITIGATE[1:3], code=2))
    assert "has more than" in said


def test_a_pipe_in_a_folder_is_not_waited_for(run: Run, received: Path) -> None:
    for name in ("summary.json", "influence.csv", "candidates.csv"):
        whole = (received / name).read_bytes()
        (received / name).unlink()
        os.mkfifo(received / name)
        assert f"it has no file {name}" in error(run("report", received, "--out", "p.html", code=2))
        (received / name).unlink()
        (received / name).write_bytes(whole)


def test_former_options_are_passed_over(run: Run, received: Path) -> None:
    set_key(received / "settings.toml", show_text="true")
    run("report", received, "--out", "page.html")
    assert '<table id="harmful"' not in Path("page.html").read_text()


def test_control_characters_of_settings_do_not_reach_the_terminal(run: Run) -> None:
    Path("own.toml").write_text(r'model = "\u001b[2J\u0007\u202e.txt"')
    said = error(run("audit", "--config", "own.toml", "--table", "test.csv", *COLUMNS, code=2))
    assert said.isprintable()
    assert r"\x1b[2J\x07\u202e.txt" in said
