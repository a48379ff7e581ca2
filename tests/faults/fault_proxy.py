"""A TCP proxy that does to connections what networks do: for tests only.

    proxy = FaultProxy(target_port)          # listens at proxy.port of 127.0.0.1
    proxy.delay = 0.05                       # seconds, each way; applies to data that arrives from now on
    proxy.rate = 1_000_000                   # bytes per second and direction; 0: unlimited
    proxy.cut_after = 30_000                 # closes a connection after that many bytes; 0: never
    proxy.reset = True                       # closes with RST instead of FIN
    proxy.cut_all()                          # closes all connections now
    proxy.silence()                          # forwards nothing more, but keeps connections open; heal() undoes it
    proxy.refuse = True                      # accepts no connections
    proxy.close()
"""
import select
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
        try:
            self.pass_on()
        except OSError:
            self.link.end(False)
        self.link.left()

    def pass_on(self):
        proxy, link = self.link.proxy, self.link
        while link.wait(self.source, select.POLLIN):
            try:
                data = self.source.recv(65536)
            except BlockingIOError:
                continue
            proxy.wait_healed()
            if not data:
                self.target.shutdown(socket.SHUT_WR)
                return
            if proxy.delay:
                time.sleep(proxy.delay)
            if proxy.rate:
                time.sleep(len(data) / proxy.rate)
            limit = link.cut_after
            if limit and link.passed + len(data) >= limit:
                self.send(data[: max(0, limit - link.passed)])
                proxy.cuts += 1
                link.end(proxy.reset)
                return
            link.passed += len(data)
            proxy.bytes += len(data)
            self.send(data)

    def send(self, data):
        while data and self.link.wait(self.target, select.POLLOUT):
            try:
                data = data[self.target.send(data):]
            except BlockingIOError:
                continue


class Link:
    """One connection through the proxy.

    Its sockets are closed by the pipe that ends last: a descriptor that is closed while another thread reads from it
    may already
    belong to the next connection, whose bytes would then be lost.
    """

    def __init__(self, proxy, client, server):
        self.proxy, self.ends, self.passed, self.cut_after = proxy, (client, server), 0, proxy.next_cut()
        self.lock, self.over, self.reset, self.pipes = threading.Lock(), False, False, 2
        self.woken, self.waker = socket.socketpair()
        for end in self.ends:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setblocking(False)
        for a, b in ((client, server), (server, client)):
            Pipe(self, a, b).start()

    def wait(self, end, event):
        """Waits until an end is ready. False if the connection is over."""
        poll = select.poll()
        poll.register(end, event)
        poll.register(self.woken, select.POLLIN)
        poll.poll()
        return not self.over

    def end(self, reset):
        with self.lock:
            if self.over:
                return
            self.over, self.reset = True, reset
        self.waker.send(b"x")  # never read, so that both pipes see it

    def left(self):
        with self.lock:
            self.pipes -= 1
            if self.pipes:
                return
            self.over = True
        for end in self.ends:
            try:
                if self.reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.close()
                else:
                    end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        # closing a socket with unread bytes would reset the connection
        self.proxy.ended.extend(self.ends)
        self.woken.close()


class FaultProxy:
    def __init__(self, target_port, port=0):
        self.target_port, self.delay, self.rate, self.cut_after, self.reset, self.refuse = target_port, 0, 0, 0, False, False
        self.jitter_cut = None  # a random.Random: cuts come after 0.5 to 1.5 times cut_after
        self.bytes, self.cuts, self.links, self.ended = 0, 0, [], []
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
        for end in self.ended:
            end.close()
