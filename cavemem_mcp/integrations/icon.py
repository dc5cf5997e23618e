"""The icon, a cave with three lines in it, as SVG and, for programs that take nothing else, as PNG."""

import struct
import zlib
from typing import Final, NamedTuple

SIDE: Final = 512


class Shape(NamedTuple):
    """A filled rectangle with round corners, in pixels."""

    left: float
    top: float
    width: float
    height: float
    radius: float
    color: tuple[int, int, int]

    def coverage(self, x: float, y: float) -> float:
        """Return how much of the pixel around a point is inside, from the point's distance to the edge."""
        across = abs(x - self.left - self.width / 2) - self.width / 2 + self.radius
        down = abs(y - self.top - self.height / 2) - self.height / 2 + self.radius
        outside = (max(across, 0.0) ** 2 + max(down, 0.0) ** 2) ** 0.5
        distance = outside + min(max(across, down), 0.0) - self.radius
        return min(max(0.5 - distance, 0.0), 1.0)


ROCK: Final = (201, 98, 46)
DARK: Final = (38, 25, 18)
CHALK: Final = (250, 236, 214)

SHAPES: Final = (
    Shape(left=0, top=0, width=512, height=512, radius=112, color=ROCK),
    Shape(left=84, top=84, width=344, height=344, radius=170, color=DARK),
    Shape(left=84, top=230, width=344, height=198, radius=24, color=DARK),
    Shape(left=140, top=208, width=148, height=36, radius=18, color=CHALK),
    Shape(left=140, top=280, width=232, height=36, radius=18, color=CHALK),
    Shape(left=140, top=352, width=176, height=36, radius=18, color=CHALK),
)
"""From back to front."""


def svg() -> str:
    """Return the icon as SVG."""
    rectangles = "".join(
        f'  <rect x="{shape.left}" y="{shape.top}" width="{shape.width}" height="{shape.height}" rx="{shape.radius}"'
        f' fill="#{bytes(shape.color).hex()}"/>\n'
        for shape in SHAPES
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE} {SIDE}">\n{rectangles}</svg>\n'


def png() -> bytes:
    """Return the icon as a PNG of `SIDE` by `SIDE` pixels with a transparent surrounding."""
    rows = b"".join(b"\0" + b"".join(_pixel(x + 0.5, y + 0.5) for x in range(SIDE)) for y in range(SIDE))
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 6, 0, 0, 0)  # 8 bits a channel, RGB and alpha
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _pixel(x: float, y: float) -> bytes:
    """Paint the shapes over each other at one point. All of them lie within the first, which alone sets the alpha."""
    back, *front = SHAPES
    color = back.color
    for shape in front:
        share = shape.coverage(x, y)
        if share:
            color = tuple(round(new * share + old * (1 - share)) for new, old in zip(shape.color, color, strict=True))
    return bytes((*color, round(255 * back.coverage(x, y))))
