#!/usr/bin/env python3
"""Draws tokens per second and the time of a step against rows, for cohort and llama.cpp, from the JSON lines of bench.py: one line of two
panels per model, the latest figure of each test.

usage: plot.py [--results FILE] [--out docs/performance.svg]
"""
import argparse
import json
import math
import pathlib
from xml.sax.saxutils import escape

import common

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 460, 300, 62, 46, 16, 46
SERIES = (("cohort", "#1668b8"), ("peer", "#c2571a"), ("roof", "#8a8a8a"))
NAMES = {"cohort": "cohort", "peer": "llama.cpp", "roof": "roof"}


def latest(path):
    """{model: {rows: record}} of decoding, and the last record."""
    models, last = {}, None
    with open(path, encoding="utf-8") as f:
        for line in f:
            record = json.loads(line)
            if record.get("bench") == "model" and record["test"] == "decode":
                models.setdefault(record["model"], {})[record["size"]] = last = record
    return models, last


def ticks(low, high):
    """1, 2 and 5 times powers of ten in and around the range."""
    values = [digit * 10.0 ** power for power in range(-3, 8) for digit in (1, 2, 5)]
    first = max([v for v in values if v <= low], default=values[0])
    return [v for v in values if first <= v <= high] + [min(v for v in values if v > high)]


class Panel:
    def __init__(self, x, y, title, unit, lines):
        self.parts, self.x, self.y = [], x, y
        rows = sorted({row for points in lines.values() for row, _ in points})
        speeds = [value for points in lines.values() for _, value in points]
        marks = ticks(min(speeds), max(speeds))
        self.low, self.high, self.least, self.most = marks[0], marks[-1], rows[0], rows[-1]
        self.text(LEFT, 20, title, "start", 14, "bold")
        for value in marks:
            self.line(LEFT, self.v(value), WIDTH - RIGHT, self.v(value), "#dddddd")
            self.text(LEFT - 6, self.v(value) + 4, f"{value:,g}", "end")
        for row in rows:
            self.text(self.h(row), HEIGHT - BOTTOM + 16, str(row), "middle")
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "rows that decode together", "middle")
        self.text(LEFT, 36, unit, "start")
        for i, (name, colour) in enumerate(SERIES):
            if lines.get(name):
                self.series(lines[name], colour, name == "roof")
                self.text(WIDTH - RIGHT - 150 + 60 * i, 36, NAMES[name], "start", 12, "bold", colour)

    def h(self, row):
        span = math.log2(self.most / self.least) or 1
        return LEFT + 12 + (WIDTH - LEFT - RIGHT - 24) * math.log2(row / self.least) / span

    def v(self, value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(value / self.low) / math.log(self.high / self.low)

    def line(self, x1, y1, x2, y2, colour):
        self.parts.append(f'<line x1="{self.x + x1:.1f}" y1="{self.y + y1:.1f}" x2="{self.x + x2:.1f}" y2="{self.y + y2:.1f}" '
                          f'stroke="{colour}"/>')

    def text(self, x, y, words, anchor, size=12, weight="normal", colour="#333333"):
        self.parts.append(f'<text x="{self.x + x:.1f}" y="{self.y + y:.1f}" text-anchor="{anchor}" font-size="{size}" '
                          f'font-weight="{weight}" fill="{colour}">{escape(words)}</text>')

    def series(self, points, colour, dashed):
        places = [(self.x + self.h(row), self.y + self.v(value)) for row, value in sorted(points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"'
                          + (' stroke-dasharray="5 4"/>' if dashed else "/>"))
        if not dashed:
            self.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]


def draw(models, last):
    parts = []
    for i, (model, records) in enumerate(models.items()):
        speed = {name: [(rows, r[name]) for rows, r in records.items() if r.get(name)] for name, _ in SERIES}
        step = {name: [(rows, 1000 * rows / value) for rows, value in points] for name, points in speed.items()}
        name = "Gemma 3 270M, Q4_K_M" if model == "default" else model
        parts += Panel(0, i * HEIGHT, f"{name}: throughput", "tokens per second", speed).parts
        parts += Panel(WIDTH, i * HEIGHT, "latency: time of a step", "milliseconds between tokens", step).parts
    height = HEIGHT * len(models) + 22
    foot = escape(f"{common.machine_text(last)}; roof: what reading all weights, or all multiply-adds, allows at most")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" height="{height}" font-family="sans-serif">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts)
            + f'\n<text x="{LEFT}" y="{height - 8}" font-size="11" fill="#666666">{foot}</text>\n</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=common.RESULTS)
    parser.add_argument("--out", type=pathlib.Path, default=common.ROOT / "docs" / "performance.svg")
    args = parser.parse_args()
    models, last = latest(args.results)
    if not models:
        raise SystemExit(f"plot: no figures in {args.results}: run `make bench` first")
    args.out.write_text(draw(models, last), encoding="utf-8")
    print(args.out)


if __name__ == "__main__":
    main()
