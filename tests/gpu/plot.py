"""Small SVG pictures of rows, made of text."""

from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, ROW, TOP = 760, 270, 90, 22, 46
STYLE = "font-family='sans-serif' fill='#333'"
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#718096")


def document(height, title, body):
    head = f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' viewBox='0 0 {WIDTH} {height}'>"
    paper = f"<rect width='{WIDTH}' height='{height}' fill='white'/>"
    return "\n".join([head, paper, text(10, 20, title, "font-weight='bold'"), *body, "</svg>"]) + "\n"


def text(x, y, words, more="", size=12):
    return f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' {STYLE} {more}>{escape(str(words))}</text>"


def scale(low, high):
    """Returns the position of a value on the page."""
    wide = (high - low) or 1
    return lambda value: LEFT + (min(max(value, low), high) - low) / wide * (WIDTH - LEFT - RIGHT)


def mark(x, height, words):
    line = f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{TOP - 10}' y2='{height - 6}' stroke='#c53030' stroke-dasharray='4 3'/>"
    return [line, text(x + 3, TOP - 12, words, size=11)]


def intervals(title, rows, wanted, unit=""):
    """Draws rows of a name, a value and its interval, beside the target: `(name, low, value, high)`."""
    height = TOP + ROW * len(rows) + 10
    edges = [edge for _, low, _, high in rows for edge in (low, high)] + [wanted]
    margin = (max(edges) - min(edges)) * 0.05 or 1
    at = scale(min(edges) - margin, max(edges) + margin)
    body = mark(at(wanted), height, f"{wanted:g}{unit}")
    for number, (name, low, value, high) in enumerate(rows):
        y = TOP + ROW * number + ROW / 2
        line = f"<line x1='{at(low):.1f}' x2='{at(high):.1f}' y1='{y}' y2='{y}' stroke='{COLOURS[0]}' stroke-width='2'/>"
        body += [text(10, y + 4, name), line, f"<circle cx='{at(value):.1f}' cy='{y}' r='4' fill='{COLOURS[0]}'/>"]
        body.append(text(WIDTH - RIGHT + 8, y + 4, f"{value:.4g}{unit}"))
    return document(height, title, body)


def bars(title, rows, unit="", wanted=None):
    """Draws rows of a name and a value, each with the colour of its group: `(name, value, group)`."""
    height = TOP + ROW * len(rows) + 10
    at = scale(0, max([value for _, value, _ in rows] + ([wanted] if wanted else [])) or 1)
    groups = list(dict.fromkeys(group for _, _, group in rows))
    body = mark(at(wanted), height, f"{wanted:g}{unit}") if wanted is not None else []
    for number, (name, value, group) in enumerate(rows):
        y, colour = TOP + ROW * number, COLOURS[groups.index(group) % len(COLOURS)]
        body += [text(10, y + 15, name)]
        body += [f"<rect x='{LEFT}' y='{y + 3}' width='{at(value) - LEFT:.1f}' height='{ROW - 6}' fill='{colour}'/>"]
        body.append(text(at(value) + 6, y + 15, f"{value:.4g}{unit}"))
    return document(height, title, body)
