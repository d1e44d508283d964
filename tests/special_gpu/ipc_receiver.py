# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The other process of `test_device_ipc.py`: receives versions on its own view of the devices and says what it got.

`python ipc_receiver.py HANDLE DEVICE`, then a version on each line of standard input, as the manager of a run says when
an update begins.
"""

import hashlib
import json
import sys

import torch

from verl.transport.device_ipc import ipc_kind
from verl.transport.receiver import BucketedWeightReceiver


def fingerprint(tensor: torch.Tensor) -> list[str]:
    """Type, shape and bytes."""
    data = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    return [str(tensor.dtype), str(tuple(tensor.shape)), hashlib.sha256(data).hexdigest()]


def main() -> None:
    """Receive and print one line a version."""
    handle, device = sys.argv[1], torch.device(sys.argv[2])
    for line in sys.stdin:
        receiver = BucketedWeightReceiver(handle, device, version=int(line), deadline_s=60, ipc=ipc_kind(device.type))
        staged = receiver.stage()
        places = {str(tensor.device) for tensor in staged.tensors.values()}
        told = {name: fingerprint(tensor) for name, tensor in staged.tensors.items()}
        print(json.dumps({"places": sorted(places), "tensors": told}), flush=True)


if __name__ == "__main__":
    main()
