"""Ports for processes that a test starts."""
import collections
import fcntl
import os
import random
import socket
import tempfile

FIRST, LAST = 10000, 65535
# Locks of the ports that were handed out last, held as long as this process lives: another process of tests cannot
# choose a port between its choice here and its use by a server. Bounded, because nightly runs start thousands of servers.
MOST_LOCKS = 200
_locks = collections.deque()


def outgoing():
    """The range of ports, first and last, that the system uses for outgoing connections."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            return tuple(map(int, file.read().split()))
    except (OSError, ValueError):
        return 32768, 60999


def hold(ports):
    """Sockets at these ports of loopback, or None if one of them is in use."""
    sockets = []
    for port in ports:
        sockets.append(socket.socket())
        try:
            sockets[-1].bind(("127.0.0.1", port))
        except OSError:
            release(sockets)
            return None
    return sockets


def release(sockets):
    for one in sockets:
        one.close()


def lock(ports):
    """True if no other process of tests has chosen one of these ports; no other one will while this process lives."""
    folder = os.path.join(tempfile.gettempdir(), f"millrace_ports_{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    files = []
    try:
        for port in ports:
            files.append(open(os.path.join(folder, str(port)), "w", encoding="ascii"))
            fcntl.flock(files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        for file in files:
            file.close()
        return False
    _locks.extend(files)
    while len(_locks) > MOST_LOCKS:
        _locks.popleft().close()
    return True


def free_ports(count, in_a_row=False):
    """COUNT unused ports of loopback, different ones in each call. Neither outgoing connections of other processes nor
    other tests use them in the meantime."""
    begin, end = outgoing()
    runs = [run for run in (range(FIRST, min(begin, LAST + 1)), range(max(end + 1, FIRST), LAST + 1)) if len(run) >= count]
    if not runs:
        runs = [range(FIRST, LAST + 1)]
    held = {}
    try:
        for _ in range(1000 * count):
            if len(held) >= count:
                return list(held)
            run = random.choice(runs)
            size = count if in_a_row else 1
            first = random.choice(run[:len(run) - size + 1])
            ports = range(first, first + size)
            sockets = None if held.keys() & set(ports) else hold(ports)
            if sockets and lock(ports):
                held.update(zip(ports, sockets))
            else:
                release(sockets or [])
        raise OSError(f"cannot find {count} free ports")
    finally:
        release(held.values())
