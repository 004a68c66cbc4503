# SPDX-License-Identifier: Apache-2.0
"""python -m slipstream VERB …: the command line."""
import sys

from . import _core

if __name__ == "__main__":
    sys.exit(_core.run_cli(["slipstream", *sys.argv[1:]], [sys.executable, "-m", "slipstream"]))
