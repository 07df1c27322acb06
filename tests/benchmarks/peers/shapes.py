# SPDX-License-Identifier: Apache-2.0
"""Grey images of 64 x 64 with circles, squares and triangles, and the class of each pixel: the formula of ../shapes.hpp."""

import numpy as np

SIDE, CLASSES, SHAPES_PER_IMAGE = 64, 4, 3


def mixed(x):
    x = np.asarray(x, dtype=np.uint32).copy()
    with np.errstate(over="ignore"):
        x ^= x >> np.uint32(16)
        x *= np.uint32(0x7FEB352D)
        x ^= x >> np.uint32(15)
        x *= np.uint32(0x846CA68B)
        return x ^ x >> np.uint32(16)


def draw(number):
    """Image `number` and its classes."""
    seed = int(mixed([number + 1])[0])

    def hashed(offset):
        return mixed((np.asarray(offset, dtype=np.uint64) + seed).astype(np.uint32))

    image = np.float32(0.2) * (hashed(1000 + np.arange(SIDE * SIDE)) >> np.uint32(8)).astype(np.float32) / np.float32(16777216)
    image = image.reshape(SIDE, SIDE)
    labels = np.zeros((SIDE, SIDE), np.int64)
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    for s in range(SHAPES_PER_IMAGE):
        kind, centre_x, centre_y, radius, bright = (
            least + int(hashed([8 * s + k])[0]) % below for k, (least, below) in enumerate(((1, 3), (8, 48), (8, 48), (5, 8), (0, 40)))
        )
        dx, dy = abs(x - centre_x), y - centre_y
        if kind == 1:
            inside = dx * dx + dy * dy <= radius * radius
        elif kind == 2:
            inside = (dx < radius) & (abs(dy) < radius)
        else:
            inside = (dy >= -radius) & (dy <= radius) & (2 * dx <= dy + radius)
        image[inside] += np.float32(0.4) + np.float32(0.01) * np.float32(bright)
        labels[inside] = kind
    return image, labels


def batch(first, count):
    """`count` images from number `first` on, [count, 1, 64, 64], and their classes."""
    drawn = [draw(first + i) for i in range(count)]
    return np.stack([image[None] for image, _ in drawn]), np.stack([labels for _, labels in drawn])
