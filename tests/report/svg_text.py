"""The texts of an SVG drawing and the room they take, to find those that overlap or are cut off."""

import re
from itertools import combinations
from xml.etree import ElementTree

from pellucid.report.svg.chart import Area
from pellucid.report.svg.marks import text_width

SVG = "{http://www.w3.org/2000/svg}"


def find_texts(svg: bytes) -> list[tuple[str, Area]]:
    """Returns every text with about the area that it covers, from the top of its capitals to its baseline."""
    found = []
    for node in ElementTree.fromstring(svg).iter(f"{SVG}text"):
        words, size = "".join(node.itertext()), float(node.get("font-size", 12))
        plain = re.sub("_", "", words)
        width = text_width(plain, size, node.get("font-weight") == "bold")
        x, y = float(node.get("x", 0)), float(node.get("y", 0))
        left = x - width * {"start": 0, "middle": 0.5, "end": 1}[node.get("text-anchor", "start")]
        area = Area(left, y - 0.75 * size, left + width, y)
        if node.get("transform", "").startswith("rotate(-90"):  # about its own point: it goes upwards
            area = Area(x - 0.75 * size, y - width, x, y)
        found.append((words, area))
    return found


def find_faults(svg: bytes) -> list[str]:
    """Returns what is wrong: texts that overlap, or leave the drawing."""
    _, _, width, height = map(float, ElementTree.fromstring(svg).get("viewBox", "").split())
    texts = [(words, area) for words, area in find_texts(svg) if words]
    outside = [
        f"{words!r} leaves the drawing"
        for words, area in texts
        if area.left < 0 or area.top < 0 or area.right > width or area.bottom > height
    ]
    over = [
        f"{a!r} over {b!r}" for (a, first), (b, second) in combinations(texts, 2) if first.overlaps(second)
    ]
    return outside + over
