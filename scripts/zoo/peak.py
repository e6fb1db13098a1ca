"""peak.py COMMAND…: runs a command and prints its peak resident memory in MiB.

It imports little, because a child's peak is at least the memory of the process that starts it.
"""
import os, sys

null = os.open(os.devnull, os.O_RDWR)
pid = os.fork()
if pid == 0:
    for stream in range(3):
        os.dup2(null, stream)
    os.execvp(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss / 1024)
sys.exit(0 if status == 0 else 1)
