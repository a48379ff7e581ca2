"""A TCP proxy that does to connections what networks do: for tests only.

    proxy = FaultProxy(target_port)          # listens at proxy.port of 127.0.0.1
    proxy.delay = 0.05                       # seconds, each way; applies to what comes from now on
    proxy.rate = 1_000_000                   # bytes a second and direction; 0: as fast as it goes
    proxy.cut_after = 30_000                 # ends a connection when so many bytes have passed; 0: never
    proxy.reset = True                       # ends by RST instead of FIN
    proxy.cut_all()                          # ends all connections now
    proxy.silence()                          # passes nothing more, and keeps connections open; heal() undoes it
    proxy.refuse = True                      # takes no connection
    proxy.close()
"""
import socket
import struct
import threading
import time


class Pipe(threading.Thread):
    """One direction of one connection."""

    def __init__(self, link, source, target):
        super().__init__(daemon=True)
        self.link, self.source, self.target = link, source, target

    def run(self):
        proxy, link = self.link.proxy, self.link
        try:
            while True:
                data = self.source.recv(65536)
                if not data:
                    break
                proxy.wait_healed()
                if proxy.delay:
                    time.sleep(proxy.delay)
                if proxy.rate:
                    time.sleep(len(data) / proxy.rate)
                limit = link.cut_after
                if limit and link.passed + len(data) >= limit:
                    self.target.sendall(data[: max(0, limit - link.passed)])
                    proxy.cuts += 1
                    link.end(proxy.reset)
                    return
                link.passed += len(data)
                proxy.bytes += len(data)
                self.target.sendall(data)
            proxy.wait_healed()
            self.target.shutdown(socket.SHUT_WR)
        except OSError:
            link.end(False)


class Link:
    """One connection through the proxy."""

    def __init__(self, proxy, client, server):
        self.proxy, self.ends, self.passed, self.cut_after = proxy, (client, server), 0, proxy.next_cut()
        for a, b in ((client, server), (server, client)):
            a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Pipe(self, a, b).start()

    def end(self, reset):
        for end in self.ends:
            try:
                if reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RD)  # wakes who reads; a socket that is being read does not end
                    end.close()
                else:
                    end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class FaultProxy:
    def __init__(self, target_port, port=0):
        self.target_port, self.delay, self.rate, self.cut_after, self.reset, self.refuse = target_port, 0, 0, 0, False, False
        self.jitter_cut = None  # a random.Random: cuts come after 0.5 to 1.5 times cut_after
        self.bytes, self.cuts, self.links = 0, 0, []
        self.healed = threading.Event()
        self.healed.set()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def endpoint(self):
        return f"127.0.0.1:{self.port}"

    def next_cut(self):
        return int(self.cut_after * self.jitter_cut.uniform(0.5, 1.5)) if self.cut_after and self.jitter_cut else self.cut_after

    def wait_healed(self):
        self.healed.wait()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.socket()
            try:
                if self.refuse:
                    raise OSError("refused")
                server.connect(("127.0.0.1", self.target_port))
            except OSError:
                client.close()
                server.close()
                continue
            self.links.append(Link(self, client, server))

    def cut_all(self):
        links, self.links = self.links, []
        for link in links:
            link.end(self.reset)

    def silence(self):
        self.healed.clear()

    def heal(self):
        self.healed.set()

    def close(self):
        self.listener.close()
        self.heal()
        self.cut_all()
