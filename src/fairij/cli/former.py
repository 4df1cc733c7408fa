"""Words of earlier versions: options and keys of settings files that have another name now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

NAMES = {"constraint": "constraints", "reuse": "validation_use", "seed": "random_state"}
NOTES = "fairij.former"  # in a context: notes about words that were given


def option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def in_todays_words(
    args: list[str], known: Collection[str | None]
) -> tuple[list[str], dict[str, str]]:
    """The words of a command line, and what replaced what."""
    found, replaced = list[str](), dict[str, str]()
    for place, word in enumerate(args):
        if word == "--":
            return [*found, *args[place:]], replaced
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--") if flag.startswith("--") else ""
        if name in NAMES and name not in known and NAMES[name] in known:
            replaced[flag] = option(NAMES[name])
            word = f"{replaced[flag]}{equals}{value}"
        found.append(word)
    return found, replaced


def renamed_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a settings file by the names of today, which win if a file has both."""
    return {NAMES[key]: value for key, value in values.items() if key in NAMES} | {
        key: value for key, value in values.items() if key not in NAMES
    }


def note(former: str, name: str) -> str:
    return f"{former} is called {name} now; the former name still works."
