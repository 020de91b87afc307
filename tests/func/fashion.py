"""Fashion-MNIST and the weights files of penstock-train, read without a line of our C code: the tests' oracle."""
import gzip
import os
import pathlib
import struct
import zlib

import numpy as np

DATA = pathlib.Path(os.environ.get("PENSTOCK_FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))


def test_set(n=10000):
    """(images as float32 [n, 784] in 0..1, labels [n]) of the test set."""
    images = gzip.decompress((DATA / "t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((DATA / "t10k-labels-idx1-ubyte.gz").read_bytes())
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 784)[:n]
    return pixels.astype(np.float32) / np.float32(255), np.frombuffer(labels, np.uint8, offset=8)[:n]


def read_weights(path):
    """[(weights [in, out], biases [out])] of each layer."""
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"PENSTKW1" and zlib.crc32(data[:-4]) == struct.unpack("<I", data[-4:])[0]
    n_layers, = struct.unpack_from("<I", data, 8)
    widths = struct.unpack_from(f"<{n_layers + 1}I", data, 12)
    at = 12 + 4 * (n_layers + 1) + 28 + 8 + 12  # plan, step, tested/correct/has_velocity
    layers = []
    for n_in, n_out in zip(widths, widths[1:]):
        both = np.frombuffer(data, "<f4", (n_in + 1) * n_out, at).reshape(n_in + 1, n_out)
        layers.append((both[:-1], both[-1]))
        at += both.nbytes
    return layers


def predict(layers, x):
    """Class probabilities [n, 10], computed in doubles."""
    x = x.astype(np.float64)
    for i, (w, b) in enumerate(layers):
        x = x @ w.astype(np.float64) + b
        if i + 1 < len(layers):
            x = np.maximum(x, 0)
    x = np.exp(x - x.max(1, keepdims=True))
    return x / x.sum(1, keepdims=True)
