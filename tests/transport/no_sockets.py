"""Run a command in which every socket call but ``socket`` and ``socketpair`` fails with EPERM.

A seccomp filter, as agent sandboxes install them; it needs no root, since the process gives
up gaining privileges first. Usage: ``no_sockets.py COMMAND ARGUMENT...``
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

#: System calls that are denied: connect accept accept4 sendto bind listen getsockname
#: getpeername sendmmsg recvmmsg shutdown setsockopt getsockopt.
DENIED = {
    "x86_64": [42, 43, 288, 44, 49, 50, 51, 52, 307, 299, 48, 54, 55],
    "aarch64": [203, 202, 242, 206, 200, 201, 204, 205, 269, 243, 210, 208, 209],
}
LOAD_WORD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, EPERM = 0x7FFF0000, 0x00050001
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def deny_sockets() -> None:
    """Install the filter in this process; what it executes inherits it."""
    denied = DENIED[platform.machine()]
    code = [(LOAD_WORD, 0, 0, 0)]  # the system call's number
    for left, number in zip(range(len(denied), 0, -1), denied, strict=True):
        code.append((JUMP_EQUAL, left, 0, number))  # to the last instruction
    code += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, EPERM)]
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in code)
    buffer = ctypes.create_string_buffer(packed)
    program = Program(len(code), ctypes.cast(buffer, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot give up privileges")
    if libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot install a filter")


if __name__ == "__main__":
    deny_sockets()
    os.execvp(sys.argv[1], sys.argv[1:])
