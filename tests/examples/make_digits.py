# SPDX-License-Identifier: Apache-2.0
"""Usage: make_digits.py FOLDER TRAINING TEST. MNIST's four idx files with so many images of digits: a font of 5 x 7 points drawn on
28 x 28 pixels, each digit with its own place, size, slant and brightness, and noise on every pixel."""

import pathlib
import random
import struct
import sys

FONT = [
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
]
GLYPHS = [[[point == "1" for point in row] for row in digit.split()] for digit in FONT]
SIDE = 28


def image(digit):
    scale, slant = random.uniform(2.2, 3.6), random.uniform(-0.25, 0.25)
    left, top = random.uniform(3, 25 - 5 * scale), random.uniform(1, 27 - 7 * scale)
    ink, paper, noise = random.randint(140, 230), random.randint(0, 40), 25
    pixels = bytearray()
    for y in range(SIDE):
        for x in range(SIDE):
            row = (y - top) / scale
            column = (x - left + slant * (y - SIDE / 2)) / scale
            inside = 0 <= row < 7 and 0 <= column < 5 and GLYPHS[digit][int(row)][int(column)]
            pixels.append(max(0, min(255, (ink if inside else paper) + random.randint(-noise, noise))))
    return bytes(pixels)


def main():
    folder = pathlib.Path(sys.argv[1])
    random.seed(1)
    for part, count in (("train", int(sys.argv[2])), ("t10k", int(sys.argv[3]))):
        labels = [random.randrange(10) for _ in range(count)]
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, count) + bytes(labels))
        (folder / f"{part}-images-idx3-ubyte").write_bytes(
            struct.pack(">BBBBIII", 0, 0, 8, 3, count, SIDE, SIDE) + b"".join(map(image, labels)))


if __name__ == "__main__":
    main()
