"""An emulated machine with AMD GPUs, under unmodified PyTorch and Triton programs.

    from harness import emulated_machine

    emulated_machine.activate("gfx942", gpus=4, mode="race")     # before or after torch and triton are imported

``iris-harness emulate -- PROGRAM`` does the same for a program and its children, by an environment variable. Parts:

    facts       the GPUs: names, sizes, addresses, links
    system      files of the driver and commands of ROCm, in a folder tree
    settings    arch, mode and number of GPUs, and the environment that passes them on
    hip         ``libamdhip64.so``
    torch_cuda  ``torch.cuda``, and tensors on it
    smi         ``libamd_smi.so`` and the command line tools
    driver      Triton's driver of the machine
    hook        switches each part on when the program imports the module that it belongs to
"""

from harness.emulated_machine.machine import activate, active, deactivate
from harness.emulated_machine.settings import MODES, VARIABLE, VARIABLES, Settings

__all__ = ["MODES", "VARIABLE", "VARIABLES", "Settings", "activate", "active", "deactivate"]
