"""The chart of a comparison as an SVG text: per workload one bar per peer, as long as its time over attn's."""

import html
import itertools

COLOURS = ["#4c78a8", "#f58518", "#54a24b", "#b279a2", "#9d755d", "#72b7b2", "#e45756", "#bab0ac"]
BAR, GAP, LEFT, RIGHT, TOP = 11, 12, 150, 70, 70
WIDTH = 860
LONGEST = 4.0  # ratios beyond it are cut off; their number still stands beside the bar


def text(x, y, content, anchor="start", size=12, colour="#333"):
    halo = 'stroke="#fff" stroke-width="3" paint-order="stroke"'  # keeps it legible on the line at 1
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}" {halo}>'
            f"{html.escape(content)}</text>")


def legend(names):
    x, parts = LEFT, []
    for name, colour in zip(names, itertools.cycle(COLOURS)):
        parts.append(f'<rect x="{x}" y="{TOP - 34}" width="11" height="11" fill="{colour}"/>')
        parts.append(text(x + 16, TOP - 24, name))
        x += 30 + 7 * len(name)
    return parts


def draw(rows, heading):
    """`rows` as compare.py makes them; the line at 1 is attn."""
    names = list(dict.fromkeys(row["peer"] for row in rows if row["peer"] != "attn"))
    unit = (WIDTH - LEFT - RIGHT) / LONGEST
    y, bars = TOP, []
    for workload in dict.fromkeys(row["workload"] for row in rows):
        found = [row for row in rows if row["workload"] == workload and row["peer"] != "attn"]
        if not found:
            continue
        bars.append(text(LEFT - 8, y + BAR * len(found) / 2 + 4, workload, "end"))
        for row in found:
            length = min(row["ratio"], LONGEST) * unit
            colour = COLOURS[names.index(row["peer"]) % len(COLOURS)]
            bars.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR - 1}" fill="{colour}"/>')
            bars.append(text(LEFT + length + 4, y + BAR - 2, f"{row['ratio']:.2f}", size=10))
            y += BAR
        y += GAP
    one = LEFT + unit
    line = f'<line x1="{one:.1f}" y1="{TOP - 8}" x2="{one:.1f}" y2="{y - GAP + 4}" stroke="#222" stroke-dasharray="4 3"/>'
    title = [text(12, 20, heading, size=13), text(one, TOP - 11, "attn = 1", "middle", 11)]
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 8}" font-family="sans-serif">',
                      f'<rect width="{WIDTH}" height="{y + 8}" fill="#fff"/>', *title, *legend(names), line, *bars,
                      "</svg>"]) + "\n"
