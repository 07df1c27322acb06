# SPDX-License-Identifier: Apache-2.0
"""Usage: torch_predict.py STATE_DICT.pt IMAGE.raw TIMES. Loads the tutorial's network in PyTorch and runs it TIMES times on one image,
as examples/predict does; predict.py measures the time from the start of the process. Without TIMES it writes a state dict of random
numbers and the same as the safetensors file that Cupola reads."""

import json
import struct
import sys

import torch
from torch import nn

torch.set_num_threads(1)


def norm():
    return nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)


class Cifar10Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 5, padding=2)
        self.conv2 = nn.Conv2d(64, 64, 5, padding=2)
        self.local3 = nn.Linear(2304, 384)
        self.local4 = nn.Linear(384, 192)
        self.softmax_linear = nn.Linear(192, 10)
        self.norm1, self.norm2 = norm(), norm()

    def forward(self, x):
        x = self.norm1(nn.functional.max_pool2d(self.conv1(x).relu(), 3, 2, ceil_mode=True))
        x = nn.functional.max_pool2d(self.norm2(self.conv2(x).relu()), 3, 2, ceil_mode=True)
        x = self.local4(self.local3(x.flatten(1)).relu()).relu()
        return self.softmax_linear(x)


def write_safetensors(path, state):
    header, data = {}, b""
    for name, tensor in state.items():
        content = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    if len(sys.argv) == 2:
        torch.manual_seed(1)
        state = Cifar10Net().state_dict()
        torch.save(state, sys.argv[1])
        write_safetensors(sys.argv[1].removesuffix(".pt") + ".safetensors", state)
        return
    with torch.inference_mode():
        net = Cifar10Net().eval()
        net.load_state_dict(torch.load(sys.argv[1], weights_only=True))
        with open(sys.argv[2], "rb") as file:
            image = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).reshape(32, 32, 3)
        for _ in range(int(sys.argv[3])):
            sample = image[4:28, 4:28].permute(2, 0, 1).float()
            sample = (sample - sample.mean()) / sample.std(unbiased=False).clamp(min=1728**-0.5)
            logits = net(sample[None])[0]
            print(int(logits.argmax()))


main()
