"""Result folders: what fairij takes for its own, what it replaces, and what it never touches."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairij.cli.contents import CONTENTS, Holds, NotOwnError, check_own
from fairij.cli.outputs import check_folder, whole_file, whole_folder
from fairij.errors import FairIJWarning
from plain_files import Run

HOLDS = {
    "page.html": Holds("The page."),
    "model": Holds("The model."),
    "rows": Holds("Rows.", True),
}
MITIGATE = ("mitigate", "--model", "model.txt", "--train", "train.csv", "--validation",
            "validation.csv", "--label", "repaid", "--sensitive", "sex", "--max-k", "5",
            "--scale", "1")  # fmt: skip


def write(target: Path, text: str = "new", *, force: bool = False) -> None:
    with whole_folder(target, "test", HOLDS, force=force) as folder:
        (folder / "model").mkdir()
        (folder / "model" / "part.bin").write_text(text)
        (folder / "page.html").write_text(text)
        (folder / "rows").write_text(text)


def snapshot(folder: Path) -> dict[str, Any]:
    """Everything in a folder, by its path: the bytes of files, and where links lead."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "result", "old")
    return tmp_path / "result"


def test_the_list_says_what_each_file_holds(own: Path) -> None:
    listed = json.loads((own / CONTENTS).read_text())
    assert set(listed["files"]) == {"page.html", "model/part.bin", "rows"}
    assert {n: f["per_row"] for n, f in listed["files"].items() if f["per_row"]} == {"rows": True}
    assert listed["files"]["model/part.bin"]["holds"] == "The model."
    assert "single training rows" in listed["about"]


def test_an_own_folder_is_replaced_whole(own: Path) -> None:
    write(own, force=True)
    assert (own / "page.html").read_text() == "new"
    assert os.listdir(own.parent) == ["result"]
    (own / "rows").unlink()  # what the user has removed is not missed
    write(own, "third", force=True)
    assert (own / "rows").read_text() == "third"


def add_git(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref")


def add_link(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere" / "thesis.txt").write_text("years of work")
    (folder / "link").symlink_to(folder.parent / "elsewhere")


def link_in_place(folder: Path) -> None:
    """A listed file is a link now: to a file with the same bytes."""
    shutil.copy(folder / "page.html", folder.parent / "kept.html")
    (folder / "page.html").unlink()
    (folder / "page.html").symlink_to(folder.parent / "kept.html")


def link_of_a_folder(folder: Path) -> None:
    shutil.move(folder / "model", folder.parent / "kept")
    (folder / "model").symlink_to(folder.parent / "kept")


def other_list(folder: Path, **changes: Any) -> None:
    listed = json.loads((folder / CONTENTS).read_text())
    (folder / CONTENTS).write_text(json.dumps(listed | changes))


def list_what_is_outside(folder: Path) -> None:
    from fairij.cli import contents

    (folder.parent / "thesis.txt").write_text("years of work")
    listed = json.loads((folder / CONTENTS).read_text())
    line = contents._line(folder.parent / "thesis.txt", Holds("x"))
    text = contents._text("test", listed["files"] | {"../thesis.txt": line})
    (folder / CONTENTS).write_text(text)


FOREIGN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a project": (add_git, "holds '.git', which fairij did not write"),
    "notes": (lambda f: (f / "notes.txt").write_text("mine"), "holds 'notes.txt'"),
    "a folder": (lambda f: (f / "mine").mkdir(), "holds 'mine'"),
    "in a folder": (lambda f: (f / "model" / "x").write_text("mine"), "holds 'model/x'"),
    "changed": (lambda f: (f / "page.html").write_text("mine"), "'page.html', which has changed"),
    "a link": (add_link, "holds 'link'"),
    "a link in place": (link_in_place, "holds 'page.html', which fairij did not write"),
    "a link of a folder": (link_of_a_folder, "holds 'model', which fairij did not write"),
    "a pipe": (lambda f: os.mkfifo(f / "pipe"), "holds 'pipe'"),
    "a newline": (lambda f: (f / "a\nb").write_text("x"), r"holds 'a\nb'"),
    "odd bytes": (lambda f: Path(os.fsdecode(os.fsencode(f) + b"/\xff")).touch(), r"'\udcff'"),
    "no list": (lambda f: (f / CONTENTS).unlink(), "it has no contents.json"),
    "a cut list": (lambda f: (f / CONTENTS).write_text("{"), "contents.json cannot be relied on"),
    "another list": (lambda f: other_list(f, files={}), "it has changed"),
    "a list of a list": (lambda f: (f / CONTENTS).write_text("[" * 99999), "cannot be relied on"),
    "a list of nothing": (lambda f: (f / CONTENTS).write_text("[]"), "cannot be relied on"),
    "another command": (lambda f: other_list(f, command="demo"), "cannot be relied on"),
    "what is outside": (list_what_is_outside, "it lists what cannot be in a folder"),
    "a huge list": (lambda f: os.truncate(f / CONTENTS, 2**31), "or too large"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_folder_with_anything_else_is_not_touched(own: Path, name: str) -> None:
    change, expected = FOREIGN[name]
    change(own)
    before = None if name in ("a pipe", "a huge list") else snapshot(own.parent)
    with pytest.raises(NotOwnError) as told:
        write(own, force=True)
    assert expected in str(told.value)
    assert "name a new folder" in str(told.value).lower()
    assert before is None or snapshot(own.parent) == before
    assert not [entry for entry in os.listdir(own.parent) if entry.startswith(".")]


def test_what_comes_while_the_new_folder_is_made_is_not_touched(own: Path) -> None:
    def work() -> None:
        with whole_folder(own, "test", HOLDS, force=True) as folder:
            (folder / "page.html").write_text("new")
            (own / "notes.txt").write_text("mine")

    with pytest.warns(FairIJWarning, match="is back as it was"):  # noqa: SIM117
        with pytest.raises(NotOwnError, match=r"result holds 'notes\.txt'"):
            work()
    assert (own / "notes.txt").read_text() == "mine"
    assert (own / "page.html").read_text() == "old"
    assert os.listdir(own.parent) == ["result"]


def test_a_hard_link_elsewhere_stays(own: Path) -> None:
    os.link(own / "page.html", own.parent / "kept.html")
    write(own, force=True)
    assert (own.parent / "kept.html").read_text() == "old"


def overtaken(file: Path) -> None:
    """Write a file that somebody else writes first."""
    with whole_file(file) as written:
        written.write_text("mine")
        file.write_text("yours")


def test_nothing_is_replaced_that_came_meanwhile(own: Path) -> None:
    target = own.parent / "second"

    def folder() -> None:
        with whole_folder(target, "test", HOLDS) as made:
            (made / "page.html").write_text("mine")
            shutil.copytree(own, target)

    with pytest.raises(FileExistsError, match="written meanwhile"):
        folder()
    assert (target / "page.html").read_text() == "old"
    file = own.parent / "file.txt"
    with pytest.raises(FileExistsError, match="written meanwhile"):
        overtaken(file)
    assert file.read_text() == "yours"
    assert sorted(os.listdir(own.parent)) == ["file.txt", "result", "second"]


def test_a_disk_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with whole_file(tmp_path / "a.txt") as written:
        written.write_text("mine")
    with pytest.raises(FileExistsError):
        overtaken(tmp_path / "b.txt")
    assert [(tmp_path / name).read_text() for name in ("a.txt", "b.txt")] == ["mine", "yours"]


@pytest.mark.parametrize("place", ["/", ".", "..", "deep/..", "~", "/proc", "/dev/null"])
def test_folders_that_are_never_replaced(own: Path, place: str) -> None:
    for force in (False, True):
        with pytest.raises(
            OSError, match=r"working folder|is a disk|already|was not written|--out"
        ):
            check_folder(Path(place).expanduser(), "test", force=force)
    assert (own / "page.html").read_text() == "old"


def test_the_working_folder_is_not_replaced_from_inside(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own / "model")
    with pytest.raises(FileExistsError, match="is the working folder or holds it"):
        write(own, force=True)
    assert (own / "model" / "part.bin").read_text() == "old"


@pytest.mark.parametrize(
    "name", ["ø\u202e名", "a\nb", "-x", " ", "x" * 255, "%s{}", "result.fairij-x"]
)
def test_odd_names(own: Path, name: str) -> None:
    target = own.parent / name
    write(target)
    write(target, "again", force=True)
    assert (target / "page.html").read_text() == "again"
    assert sorted(os.listdir(own.parent)) == sorted(["result", name])


def test_a_link_to_a_file_is_not_written_through(run: Run) -> None:
    """As in a folder of somebody else, whose page leads to a file of this user."""
    run(*MITIGATE, "--out", "result")
    Path("diary.txt").write_text("mine")
    Path("result/report.html").unlink()
    Path("result/report.html").symlink_to(Path("diary.txt").resolve())
    said = run("report", "result", "--force", code=2).stderr
    assert "is a link" in said
    assert Path("diary.txt").read_text() == "mine"


def test_a_page_that_is_written_again_stays_listed(run: Run) -> None:
    run(*MITIGATE, "--out", "result")
    held = json.loads(Path("result", CONTENTS).read_text())["files"]
    assert {name for name, file in held.items() if file["per_row"]} == {
        "edit.safetensors", "influence.csv"
    }  # fmt: skip
    run("report", "result", "--force", "--show-rows", "3", "--title", "Again")
    run("report", "result", "--out", "result/board.html")
    check_own(Path("result"), "mitigate")
    held = json.loads(Path("result", CONTENTS).read_text())["files"]
    assert held["report.html"]["per_row"]
    assert not held["board.html"]["per_row"]
    run(*MITIGATE, "--out", "result", "--force")
    assert not Path("result/board.html").exists()
    Path("result/report.html").write_text("with my notes")
    assert "has changed since fairij wrote it" in run("report", "result", "--force", code=2).stderr
    assert Path("result/report.html").read_text() == "with my notes"


def test_inputs_are_never_replaced(run: Run) -> None:
    run(*MITIGATE, "--out", "result")
    again = ("mitigate", "--model", "result/model.txt", *MITIGATE[3:], "--out", "result", "--force")
    assert "--model is result/model.txt" in run(*again, code=2).stderr
    scores = ("influence", *MITIGATE[1:], "--out", "train.csv", "--force")
    assert "--train is train.csv" in run(*scores, code=2).stderr
    put = ("apply", "--model", "model.txt", "--edit", "result/edit.safetensors", "--force")
    assert "--edit is" in run(*put, "--out", "result/edit.safetensors", code=2).stderr


TWO = """
import sys, time
from pathlib import Path
from fairij.cli.outputs import whole_file, whole_folder
from fairij.cli.contents import Holds
kind, name, force = sys.argv[1:]
place = Path("target")
try:
    if kind == "folder":
        with whole_folder(place, "test", {"who": Holds("")}, force=force == "force") as made:
            (made / "who").write_text(name)
            Path(f"ready-{name}").touch()
            while not Path("go").exists():
                time.sleep(0.001)
    else:
        with whole_file(place, force=force == "force") as made:
            made.write_text(name)
            Path(f"ready-{name}").touch()
            while not Path("go").exists():
                time.sleep(0.001)
except FileExistsError as error:
    sys.exit(str(error))
"""


def together(folder: Path, kind: str, force: str, most: int = 2) -> list[int]:
    """How real processes end that write to the same target at the same moment."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", TWO, kind, str(number), force], cwd=folder,
            stderr=subprocess.DEVNULL,
        )
        for number in range(most)
    ]  # fmt: skip
    deadline = time.monotonic() + 120
    while len(list(folder.glob("ready-*"))) < most and time.monotonic() < deadline:
        time.sleep(0.01)
    (folder / "go").touch()
    return [process.wait(60) for process in started]


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_of_processes_with_one_target_one_wins(tmp_path: Path, kind: str) -> None:
    codes = together(tmp_path, kind, "")
    assert sorted(codes) == [0, 1]
    written = tmp_path / "target" / "who" if kind == "folder" else tmp_path / "target"
    assert written.read_text() == str(codes.index(0))
    assert not list(tmp_path.glob(".*"))


def test_of_processes_with_force_each_replaces_the_one_before(tmp_path: Path) -> None:
    assert together(tmp_path, "folder", "force") == [0, 0]
    assert len(check_own(tmp_path / "target", "test")) == 2
    assert not list(tmp_path.glob(".*"))


DYING = """
import os, signal, sys
from pathlib import Path
from fairij.cli import staging
from fairij.cli.contents import Holds
from fairij.cli.outputs import whole_folder
when = sys.argv[1]
rename, calls = os.rename, []
def dying(first, second):
    rename(first, second)
    calls.append(first)
    if len(calls) == int(when):
        os.kill(os.getpid(), signal.SIGKILL)
os.rename = dying
with whole_folder(Path("result"), "test", {"page.html": Holds("")}, force=True) as folder:
    (folder / "page.html").write_text("new")
    if when == "0":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("when", "expected"), [(0, "old"), (1, "old"), (2, "new")])
def test_the_next_run_settles_what_a_killed_one_left(own: Path, when: int, expected: str) -> None:
    """Killed while writing, between the two renames of --force, and after them."""
    died = subprocess.run([sys.executable, "-c", DYING, str(when)], cwd=own.parent, check=False)
    assert died.returncode == -signal.SIGKILL
    (left,) = own.parent.glob(".result.fairij-*")
    assert own.exists() == (when != 1)
    with pytest.warns(FairIJWarning, match=r"is back as it was|was removed"):
        write(own.parent / "other")  # any run that writes nearby
    assert (own / "page.html").read_text() == expected
    check_own(own, "test")
    assert not left.exists()
    assert sorted(os.listdir(own.parent)) == ["other", "result"]


def test_what_is_not_surely_of_a_dead_run_stays(own: Path) -> None:
    parent = own.parent
    lock = json.dumps({"format": "fairij.staging/1", "target": "result"})
    for name, content in {
        ".a.fairij-1": None,  # no lock
        ".b.fairij-2": "",  # begun just now
        ".c.fairij-3": "{}",
        ".d.fairij-4": lock.replace('"result"', '"../result"'),
        ".e.fairij-5": lock,  # but something else is in it
    }.items():
        (parent / name / "new").mkdir(parents=True)
        (parent / name / "new" / "thesis.txt").write_text("years of work")
        if content is not None:
            (parent / name / "lock").write_text(content)
    (parent / ".e.fairij-5" / "mine").touch()
    (parent / "real").mkdir()
    (parent / "real" / "lock").write_text(lock)
    (parent / ".f.fairij-6").symlink_to(parent / "real")
    (parent / ".g.fairij-7").mkdir()
    (parent / ".g.fairij-7" / "lock").write_text(lock)
    (parent / ".g.fairij-7" / "new").symlink_to(parent / ".a.fairij-1" / "new")
    before = snapshot(parent)
    with pytest.warns(FairIJWarning, match="g.fairij-7 was removed"):
        write(parent / "other")
    after = {k: v for k, v in snapshot(parent).items() if not k.startswith("other")}
    gone = {name for name in before if name not in after}
    assert gone <= {".g.fairij-7/lock"}
    assert (parent / ".a.fairij-1" / "new" / "thesis.txt").read_text() == "years of work"


def test_the_folder_of_a_living_run_stays(own: Path) -> None:
    with whole_folder(own.parent / "first", "test", HOLDS) as folder:
        (folder / "page.html").write_text("first")
        write(own.parent / "second")
        assert folder.is_dir()
    assert (own.parent / "first" / "page.html").read_text() == "first"


def test_no_old_folder_is_lost_if_its_place_is_taken(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def taken(first: Any, second: Any) -> None:
        rename(first, second)
        if Path(first) == own:  # somebody else writes there at this very moment
            own.mkdir()
            (own / "yours").write_text("yours")

    monkeypatch.setattr(os, "rename", taken)
    with pytest.raises(FileExistsError), pytest.warns(FairIJWarning, match="was there before is"):
        write(own, force=True)
    assert os.listdir(own) == ["yours"]
    (kept,) = own.parent.glob(".result.fairij-*/old/page.html")
    assert kept.read_text() == "old"


def test_the_old_folder_comes_back_after_an_interrupt_between_the_renames(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def interrupted(first: Any, second: Any) -> None:
        rename(first, second)
        if Path(first) == own:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), pytest.warns(FairIJWarning, match="is back as it was"):
        write(own, force=True)
    assert (own / "page.html").read_text() == "old"
    assert os.listdir(own.parent) == ["result"]


def test_the_mask_of_the_user_counts(tmp_path: Path) -> None:
    """A result holds something of every row, so it is not opened to others."""
    before = os.umask(0o077)
    try:
        write(tmp_path / "result")
    finally:
        os.umask(before)
    assert (tmp_path / "result").stat().st_mode & 0o777 == 0o700
