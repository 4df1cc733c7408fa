"""Write figures as compact SVG files."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from fairij.storage.checksummed import write_whole

TAG = re.compile(r"<[^>]+>")  # numbers in the text between tags stay as they are
LONG_NUMBER = re.compile(r"(?<=\d\.\d\d)\d+")
NAMES = re.compile(r' (?:class|role|aria-[a-z]+|pointer-events|font-family)="[^"]*"')
DEFAULTS = re.compile(r' (?:opacity="1"|stroke-width="1"|[xy]2="0")')
EMPTY = re.compile(r'<path d=""[^>]*/>')
SYMBOL = re.compile(r'<path transform="translate\(([-.\d]+),([-.\d]+)\)"( d="[^>]*)/>')
OFTEN = 10  # symbols that occur so often are stored once


def save_figure(chart: Any, path: Path) -> None:
    """Write a chart as SVG, without what an image on a page does not need."""
    version = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    svg = vl_convert.vegalite_to_svg(chart.to_dict(), vl_version=version)
    write_whole(path, compact(svg).encode())


def compact(svg: str) -> str:
    """Return the same picture in fewer bytes.

    Names for scripts and screen readers, default values, and digits beyond a hundredth of a pixel
    are dropped. Symbols that repeat are defined once.
    """
    svg = TAG.sub(lambda tag: LONG_NUMBER.sub("", tag[0]), svg)
    for pattern in (NAMES, DEFAULTS, EMPTY):
        svg = pattern.sub("", svg)
    counts = Counter(found[3] for found in SYMBOL.finditer(svg))
    often = [symbol for symbol, count in counts.items() if count >= OFTEN]
    names = {symbol: f"s{place}" for place, symbol in enumerate(often)}

    def used(found: re.Match[str]) -> str:
        x, y, symbol = found.groups()
        return f'<use x="{x}" y="{y}" href="#{names[symbol]}"/>' if symbol in names else found[0]

    svg = SYMBOL.sub(used, svg)
    head, start, body = svg.replace("<svg ", '<svg font-family="sans-serif" ', 1).partition(">")
    defined = "".join(f'<path id="{name}"{symbol}/>' for symbol, name in names.items())
    return f"{head}{start}<defs>{defined}</defs>{body}"
