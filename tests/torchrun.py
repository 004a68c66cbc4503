# SPDX-License-Identifier: Apache-2.0
"""torchrun as the torch of this interpreter needs it: `PYTHON tests/torchrun.py FLAGS… SCRIPT …`, with torchrun's flags."""
import os
import sys
import tempfile

import torch
from torch.distributed.run import main

arguments = sys.argv[1:]
if torch.__version__.startswith("1."):  # under Python 3.11: for a rank that is not there, since the defaults do not work
    arguments = ["-r", "9:1", "-t", "9:1", *arguments]
elif "debian" in torch.__version__:  # built without libuv, which torchrun asks for: the workers meet at a file
    os.environ.update(USE_LIBUV="0", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    if arguments[0] == "--standalone":
        arguments = arguments[1:]
    elif arguments[0] == "--master_port":
        arguments = arguments[2:]
    with tempfile.TemporaryDirectory() as folder:
        meeting = ["--rdzv_backend", "c10d", "--rdzv_endpoint", f"{folder}/meeting", "--rdzv_conf", "store_type=file"]
        sys.exit(main([*meeting, *arguments]))
sys.exit(main(arguments))
