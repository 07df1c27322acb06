# SPDX-License-Identifier: Apache-2.0
"""Ends a command with every process that it has started, also those in process groups and sessions of their own (ninja's compilers,
PyTorch's compile workers) and those whose parent has ended.

A process belongs to a command if the command is among its ancestors, or if it has the command's mark, an environment variable that
processes inherit. Orphans become children of this process (PR_SET_CHILD_SUBREAPER), so that one which has cleared its environment
is found too: end_strays() ends each child that nobody has claimed."""

import contextlib
import ctypes
import itertools
import os
import pathlib
import signal
import threading
import time

VARIABLE = "CUPOLA_STAGE_COMMAND"
PR_SET_CHILD_SUBREAPER = 36

_numbers = itertools.count()
_claimed = {}
# Those that a kill has not ended, as one that waits for a GPU's driver: nobody waits for them again.
_unkillable = set()
_lock = threading.Lock()


def adopt_orphans():
    """From now on orphans among this process's descendants become its children. False where the kernel cannot do this."""
    return ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def new_mark():
    """A mark for one command: the value of VARIABLE in its environment."""
    return f"{os.getpid()}-{next(_numbers)}"


def claim(pid, mark):
    """`pid` is a child with this mark until end_command(); end_strays() leaves it and the processes with its mark alone."""
    with _lock:
        _claimed[pid] = mark


def _parents():
    """The parent of each process that runs, by number; zombies are left out."""
    parents = {}
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The name in brackets may contain anything.
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                parents[int(folder.name)] = int(parent)
    return parents


def _mark_of(pid):
    with contextlib.suppress(OSError):
        for word in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if word.startswith(VARIABLE.encode() + b"="):
                return word.partition(b"=")[2].decode(errors="replace")
    return None


def _below(roots, parents):
    found, size = set(roots), -1
    while len(found) != size:
        size = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found


def of_command(pid, mark):
    """The processes that the command has started, itself included."""
    parents = _parents()
    marked = {other for other in parents if other != os.getpid() and _mark_of(other) == mark}
    return _below(marked | ({pid} & parents.keys()), parents) - {os.getpid()}


def _kill(find, seconds=5.0):
    """Kills what find() returns until it returns nothing, because a process may start another one before it is killed."""
    end = time.monotonic() + seconds
    while found := find() - _unkillable:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            _unkillable.update(found)
            return found
        time.sleep(0.01)
    return set()


def _reap():
    """Orphans that have ended stay in the table of processes until their new parent asks for them."""
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    with contextlib.suppress(OSError):
        for pid in map(int, children.read_text().split()):
            with _lock:
                mine = pid in _claimed
            if not mine:  # the status of a claimed child is its owner's
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def end_command(pid, mark):
    """Kills the command and all that it has started; returns those that could not be killed. The caller waits for `pid`."""
    left = _kill(lambda: of_command(pid, mark))
    with _lock:
        _claimed.pop(pid, None)
    return left


def end_strays():
    """Kills the descendants of this process that belong to no claimed command."""

    def strays():
        parents = _parents()
        with _lock:
            claimed = dict(_claimed)
        kept = _below(claimed, parents)
        marks = set(claimed.values())
        return {pid for pid in _below({os.getpid()}, parents) - kept - {os.getpid()} if _mark_of(pid) not in marks}

    left = _kill(strays)
    _reap()
    return left


def end_all():
    """Kills every descendant of this process."""
    with _lock:
        _claimed.clear()
    return _kill(lambda: _below({os.getpid()}, _parents()) - {os.getpid()})
