"""A stand-in for nvidia-smi, as far as NVML cannot do the same: `nvidia-smi --gpu-reset -i GPU`.

Without arguments it lists the GPUs, which on a real node also creates the device nodes of new MIG devices.
"""

import os
import sys

from driver.node import Node, reset
from driver.state import call


def list_gpus(state):
    lines = [f"GPU {index}: {gpu.type} (UUID: {gpu.uuid})" for index, gpu in enumerate(state.rows["gpu"])]
    return "\n".join(lines), 0


def reset_gpu(state, index):
    """(text, exit status) of resetting a GPU."""
    try:
        reset(state, index)
    except BlockingIOError as error:
        return f"{error}: it could not be reset", 19
    return f"GPU {index} was successfully reset.", 0


def main(arguments):
    """Run the program; the exit status."""
    folder = os.environ["NVML_STANDIN_FOLDER"]
    if not arguments or arguments == ["-L"]:
        text, status = call(folder, "smi:list", list_gpus, change=False)
    elif len(arguments) == 3 and arguments[0] in ("-r", "--gpu-reset") and arguments[1] in ("-i", "--id"):
        gpus = Node(folder).gpus
        index = next((index for index, gpu in enumerate(gpus) if arguments[2] in (str(index), gpu.uuid)), None)
        if index is None:
            print(f"No devices were found with the name {arguments[2]}")
            return 6
        text, status = call(folder, "smi:--gpu-reset", lambda state: reset_gpu(state, index), change=True, gpu=index)
    else:
        text, status = f"this stand-in does not know {' '.join(arguments)}", 2
    print(text)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
