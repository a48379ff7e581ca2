"""Ports for processes that a test starts."""
import socket


def free_ports(count):
    """So many ports of loopback that nobody has at present."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
