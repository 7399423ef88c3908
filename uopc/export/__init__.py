"""`uopc export FILE:NAME -o DIR`: a kernel that builds and runs without Python.

The folder holds the CUDA text and the machine code of every launch, a C library on the CUDA driver
API, a program that runs it and checks its results, and a Makefile.

Reading order: `described.py` (what is exported, as records), `numbers.py` (inputs that a C program
makes again, and what must come out), `exactness.py` (to
the bit, or nearly), `texts.py` (the files), `folder.py` (where they go, and what
is never overwritten), `command.py` (the command).
"""

from uopc.export.command import export

__all__ = ["export"]
