"""Draws bars and lines as SVG, by hand: small files that look the same everywhere.

Knows nothing of locks. Colours tell who is who: ours, the floor, the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = {"ours": "#2563eb", "plain": "#7aa7f7", "floor": "#475569", "peer": "#c8ced8"}
LINES = {**COLOURS, "peer": "#9aa4b2"}
_INK, _FAINT, _GRID = "#0f172a", "#64748b", "#e8ecf1"
_WIDTH = 760
_VANISHING = 60


@dataclass(frozen=True)
class Bar:
    """One bar; `low` and `high` draw a whisker, a note stands in for a value that is not there."""

    label: str
    kind: str
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Line:
    """One line of points."""

    label: str
    kind: str
    points: Sequence[tuple[float, float]]
    dash: str = ""


def bars(title: str, subtitle: str, rows: Sequence[Bar], told: Callable[[float], str]) -> str:
    """Horizontal bars in the order given: from zero, or by powers where they differ a lot."""
    left, step, top = 244, 22, 66
    height = top + step * len(rows) + 18
    across = _scale(rows, _WIDTH - left - 96)
    parts = []
    for number, row in enumerate(rows):
        y = top + step * number
        weight = "600" if row.kind == "ours" else "400"
        ink = _INK if row.kind in ("ours", "plain", "floor") else "#334155"
        parts.append(_text(left - 10, y + 13, row.label, ink, anchor="end", weight=weight))
        if row.value is None:
            parts.append(_text(left + 2, y + 13, row.note, _FAINT, style="italic"))
            continue
        wide = max(1.5, across(row.value))
        parts.append(
            f'<rect x="{left}" y="{y + 3}" width="{wide:.1f}" height="14" rx="3" '
            f'fill="{COLOURS[row.kind]}"/>'
        )
        end = wide
        if row.low is not None and row.high is not None:
            end = max(end, across(row.high))
            parts.append(_whisker(left + across(row.low), left + across(row.high), y + 10))
        parts.append(_text(left + end + 7, y + 13.5, told(row.value) + row.note, ink, size=11.5,
                           weight=weight))  # fmt: skip
    parts.append(
        f'<line x1="{left}" y1="{top - 2}" x2="{left}" y2="{height - 14}" '
        f'stroke="{_FAINT}" stroke-width="1"/>'
    )
    return _frame(title, subtitle, height, parts)


def differ_a_lot(rows: Sequence[Bar]) -> bool:
    """Whether the least would vanish beside the most."""
    values = [row.value for row in rows if row.value]
    return len(values) > 1 and max(values) > _VANISHING * min(values)


def _scale(rows: Sequence[Bar], width: float) -> Callable[[float], float]:
    values = [value for row in rows for value in (row.value, row.high) if value]
    most = max(values, default=1.0)
    if not differ_a_lot(rows):
        return lambda value: value / most * width
    least = min(value for row in rows for value in (row.value, row.low) if value) / 2
    return lambda value: math.log(max(value, least) / least) / math.log(most / least) * width


def lines(
    title: str,
    subtitle: str,
    series: Sequence[Line],
    told: Callable[[float], str],
    ticks: Sequence[tuple[float, str]],
) -> str:
    """Lines over evenly spaced ticks, the vertical axis by powers; labels stand at the ends."""
    left, right, top, bottom, height = 74, 214, 74, 44, 430
    values = [y for line in series for _, y in line.points]
    low, high = _decades(min(values), max(values))
    places = {x: number for number, (x, _) in enumerate(ticks)}
    step = (_WIDTH - left - right) / max(1, len(ticks) - 1)

    def across(x: float) -> float:
        return left + step * places[x]

    def up(y: float) -> float:
        part = (math.log(y) - math.log(low)) / (math.log(high) - math.log(low))
        return height - bottom - part * (height - top - bottom)

    parts = []
    for mark in _marks(low, high):
        y = up(mark)
        parts.append(
            f'<line x1="{left}" y1="{y:.1f}" x2="{_WIDTH - right}" y2="{y:.1f}" '
            f'stroke="{_GRID}" stroke-width="1"/>'
        )
        parts.append(_text(left - 10, y + 4, told(mark), _FAINT, anchor="end", size=11.5))
    for x, label in ticks:
        parts.append(_text(across(x), height - bottom + 22, label, _FAINT, anchor="middle"))
    ordered = sorted(series, key=lambda line: line.kind != "peer")  # ours on top
    for line in ordered:
        points = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line.points)
        wide = 2.6 if line.kind == "ours" else 1.8
        dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{LINES[line.kind]}" '
            f'stroke-width="{wide}" stroke-linejoin="round" stroke-linecap="round"{dash}/>'
        )
        parts += [
            f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="{LINES[line.kind]}"/>'
            for x, y in line.points
        ]
    parts += _end_labels(series, across, up, (top, height - bottom))
    return _frame(title, subtitle, height, parts)


def _end_labels(
    series: Sequence[Line],
    across: Callable[[float], float],
    up: Callable[[float], float],
    bounds: tuple[float, float],
) -> list[str]:
    """Beside the last point of each line, moved apart where they would touch."""
    gap = 15.0
    wanted = sorted((up(line.points[-1][1]), number) for number, line in enumerate(series))
    placed: list[float] = []
    for y, _ in wanted:
        placed.append(max(y, placed[-1] + gap) if placed else max(y, bounds[0]))
    over = placed[-1] - bounds[1] if placed else 0
    for index in range(len(placed) - 1, -1, -1):
        ceiling = placed[index + 1] - gap if index + 1 < len(placed) else bounds[1]
        placed[index] = min(placed[index], ceiling) if over > 0 else placed[index]
    # The labels stand in one column, each tied to its line.
    column = max(across(line.points[-1][0]) for line in series) + 22
    parts = []
    for (point, number), y in zip(wanted, placed, strict=True):
        line = series[number]
        end = across(line.points[-1][0])
        parts.append(
            f'<line x1="{end + 6:.1f}" y1="{point:.1f}" x2="{column - 4:.1f}" y2="{y:.1f}" '
            f'stroke="{LINES[line.kind]}" stroke-width="0.8" opacity="0.6"/>'
        )
        ink = "#1d4ed8" if line.kind == "ours" else _INK if line.kind == "floor" else "#475569"
        weight = "600" if line.kind == "ours" else "400"
        parts.append(_text(column, y + 4, line.label, ink, weight=weight, size=12))
    return parts


def _decades(least: float, most: float) -> tuple[float, float]:
    marks = [base * 10**power for power in range(-3, 10) for base in (1, 2, 5)]
    low = max((mark for mark in marks if mark <= least), default=least)
    high = min((mark for mark in marks if mark >= most), default=most)
    return low, high if high > low else low * 10


def _marks(low: float, high: float) -> list[float]:
    marks = [base * 10.0**power for power in range(-3, 10) for base in (1, 2, 5)]
    found = [mark for mark in marks if low <= mark <= high]
    return found if len(found) < 10 else [mark for mark in found if f"{mark:e}"[0] == "1"]


def _whisker(low: float, high: float, y: float) -> str:
    ends = "".join(
        f'<line x1="{x:.1f}" y1="{y - 3}" x2="{x:.1f}" y2="{y + 3}"/>' for x in (low, high)
    )
    across = f'<line x1="{low:.1f}" y1="{y}" x2="{high:.1f}" y2="{y}"/>'
    return f'<g stroke="{_INK}" stroke-width="1" opacity="0.45">{across}{ends}</g>'


def _text(
    x: float,
    y: float,
    words: str,
    ink: str,
    *,
    anchor: str = "start",
    size: float = 12.5,
    weight: str = "400",
    style: str = "normal",
) -> str:
    slant = ' font-style="italic"' if style == "italic" else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{ink}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}"{slant}>{escape(words)}</text>'
    )


def _frame(title: str, subtitle: str, height: float, parts: Sequence[str]) -> str:
    head = [
        _text(20, 30, title, _INK, size=16, weight="600"),
        _text(20, 49, subtitle, _FAINT, size=12),
    ]
    body = "\n".join([*head, *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n'
        f'<rect width="{_WIDTH}" height="{height:.0f}" rx="8" fill="#ffffff"/>\n'
        f"{body}\n</svg>\n"
    )
