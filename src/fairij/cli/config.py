"""Settings from TOML files and back, so that a run can be repeated."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import tomllib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

from fairij.cli.former import NAMES, NOTES, note, renamed_keys
from fairij.cli.trust import NOTED, RUNS_CODE, notes_of
from fairij.errors import FairIJWarning, InvalidInputError

HASHES = "sha256"
# from a settings file these stay in its folder
WRITTEN = {"out", "data_home", "checkpoint", "page", "junit", "markdown", "sarif"}
PATHS = {"model", "table", "train", "validation", "test", "edit", *WRITTEN}
NEVER_FROM_FILE = {"force", "config", "max_memory"}
FORMER = {"show_text": bool}  # options of earlier versions, which settings files may still have
LARGEST = 2**20  # bytes of a settings file
DEEPEST = 32  # levels of tables, as dots in one key
# comments and strings, also those without an end; what is left are keys, numbers and brackets
TEXT = re.compile(
    r'#[^\n]*|"""(?:[^"\\]|\\.|"{1,2}(?!"))*+"{0,5}|\'\'\'(?:[^\']|\'{1,2}(?!\'))*+\'{0,5}'
    r'|"(?:[^"\\\n]|\\.)*+"?|\'[^\'\n]*+\'?',
    re.DOTALL,
)
HASH_CHUNK = 2**20
LONGEST_SHOWN = 80  # characters of a value in a message
LONGEST_NAME = 255  # bytes of a file's name, on every system


def read_config(ctx: typer.Context, path: Path | None) -> Path | None:
    """Take the values of a TOML file as the defaults of this command's options.

    Keys are names of options. Options of other commands are ignored, so that one file can serve
    several commands. Relative paths start at the folder of the file. Options that can lead to
    running code are only noted.
    """
    if path is None:
        return None
    try:
        given = read_toml(path)
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}.") from None
    except InvalidInputError as error:
        raise typer.BadParameter(str(error)) from None
    given.pop(HASHES, None)
    values = {key.replace("-", "_"): value for key, value in given.items()}
    replaced = sorted(NAMES.keys() & values.keys())
    ctx.meta[NOTES] += [note(f"{key!r} in {path}", repr(NAMES[key])) for key in replaced]
    values = renamed_keys(values)
    own = {parameter.name: parameter for parameter in ctx.command.params}
    _check_keys(ctx, path, values, set(own))
    try:
        notes = notes_of(values, path)
    except InvalidInputError as error:
        raise typer.BadParameter(str(error)) from None
    defaults = {}
    for key, value in values.items():
        if key in own and key not in RUNS_CODE:
            defaults[key] = _value(key, value, path, repeats=getattr(own[key], "multiple", False))
    ctx.default_map = defaults
    folder = path.resolve().parent
    written = {key: values[key] for key in WRITTEN & defaults.keys()}
    outside = {
        k: v for k, v in written.items() if not (folder / v).resolve().is_relative_to(folder)
    }
    ctx.meta[NOTED] = path, notes, {key: shortened(value) for key, value in outside.items()}
    return path


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; its size, its depth and its table of hashes are checked."""
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise InvalidInputError(f"{path} has more than {LARGEST} bytes: it holds no settings.")
    try:
        text = content.decode()
        # the reader takes time and memory by the square of the levels of a key
        if "." * DEEPEST in re.sub(r"[^.,=\[\]{}\n]", "", TEXT.sub("", text)):
            raise ValueError(f"a key has more than {DEEPEST} levels")
        given = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} is not valid TOML: {error}.") from None
    if not fits(given.get(HASHES, {}), dict[str, str]):
        raise InvalidInputError(
            f"[{HASHES}] in {path} must be a table of files and their hashes, got "
            f"{shortened(given[HASHES])}: correct it, or delete it."
        )
    return given


def fits(value: Any, kind: Any) -> bool:
    """Whether a TOML value is of this type. A path is text; whole numbers are also floats."""
    inside = get_args(kind)
    if get_origin(kind) is list:
        return isinstance(value, list) and all(fits(item, inside[0]) for item in value)
    if get_origin(kind) is dict:
        return isinstance(value, dict) and all(fits(item, inside[1]) for item in value.values())
    if inside:
        return any(fits(value, one) for one in inside)
    if kind is Path:
        return isinstance(value, str) and _is_path(value)
    return type(value) in ((float, int) if kind is float else (kind,))


def _is_path(text: str) -> bool:
    longest = max((len(name.encode()) for name in Path(text).parts), default=0)
    return bool(text) and "\0" not in text and longest <= LONGEST_NAME


def shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _check_keys(
    ctx: typer.Context, path: Path, values: Mapping[str, Any], own: set[str | None]
) -> None:
    known = {name for name in own if name} | FORMER.keys()
    for command in getattr(ctx.find_root().command, "commands", {}).values():
        known |= {parameter.name for parameter in command.params}
    for key in values:
        if key in NEVER_FROM_FILE:
            raise typer.BadParameter(
                f"{path} sets {key!r}, which is taken from the command line only: give "
                f"--{key.replace('_', '-')} there."
            )
        if key not in known:
            from fairij.storage.tables import near_matches

            near = near_matches(key, sorted(known))
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise typer.BadParameter(f"{path} has the key {key!r}, which no command knows.{hint}")


def _value(key: str, value: Any, path: Path, *, repeats: bool) -> Any:
    plain = value if repeats and isinstance(value, list) else [value]
    if not all(fits(item, str | float | bool) for item in plain):
        raise typer.BadParameter(
            f"{path} must set {key!r} to {'plain values' if repeats else 'one plain value'}, text "
            f"or a number; got {shortened(value)}."
        )
    if key in PATHS:
        if not fits(value, Path):
            raise typer.BadParameter(
                f"{path} must set {key!r} to a path in quotes, got {shortened(value)}."
            )
        return str(path.resolve().parent / value)
    if repeats and not isinstance(value, list):
        return [str(value)]
    return [str(item) for item in value] if repeats else value


def as_asked(named: Mapping[str, Any], *groups: Any) -> dict[str, Any]:
    """All options with absolute paths. Those that can lead to running code are notes."""
    values = dict(named)
    for group in groups:
        values |= dataclasses.asdict(group)
    values["trust_pickle"] = values["trust_pickle"] or None  # left out, unless it was given
    values = {name: value for name, value in values.items() if name not in NEVER_FROM_FILE}
    place, colon, name = (values["model_class"] or "").rpartition(":")
    if place.endswith(".py"):
        values["model_class"] = f"{Path(place).resolve()}{colon}{name}"
    return {k: v.resolve() if isinstance(v, Path) else v for k, v in values.items()}


def settings_toml(
    command: str, settings: Mapping[str, Any], files: Mapping[str, Path | None]
) -> str:
    """Settings as TOML, without those that are None, and the hashes of the files."""
    lines = [f"# Repeat this run: fairij {command} --config THIS_FILE --out NEW"]
    lines += [f"{key} = {_toml(value)}" for key, value in settings.items() if value is not None]
    lines += ["", f"[{HASHES}]"]
    lines += [f"{name} = {_toml(file_hash(path))}" for name, path in files.items() if path]
    return "\n".join(lines) + "\n"


def note_changed(config: Path | None, files: Mapping[str, Path | None]) -> None:
    """Warn of files that have changed since the settings file was written."""
    if config is None:
        return
    for name in changed_files(read_toml(config), files):
        warnings.warn(
            f"--{name} is no longer the file that {config} was written for, so the result will "
            "differ.",
            FairIJWarning,
            stacklevel=3,
        )


def changed_files(settings: Mapping[str, Any], files: Mapping[str, Path | None]) -> list[str]:
    """Names of the files that exist and have changed since the settings were written."""
    recorded = settings.get(HASHES, {})
    there = {n: p for n, p in files.items() if p and (p.is_file() or (n == "model" and p.is_dir()))}
    return [n for n, path in there.items() if n in recorded and recorded[n] != file_hash(path)]


def file_hash(path: Path) -> str:
    """SHA-256 of a file, or of all names and files of a folder."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            if path.is_dir():
                digest.update(str(file.relative_to(path)).encode())
            with file.open("rb") as stream:
                while chunk := stream.read(HASH_CHUNK):
                    digest.update(chunk)
    return digest.hexdigest()


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    # JSON strings are TOML strings, except for one character that TOML must escape
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")
