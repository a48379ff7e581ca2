"""A training job of processes: servers, trainers, and proxies between them. For fault tests."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

from fault_proxy import FaultProxy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from ports import free_ports  # noqa: E402


def merged(*flag_lists):
    """Merges lists of flags with their values; later values of a flag replace earlier ones."""
    flags = {}
    for flag_list in flag_lists:
        name = None
        for word in flag_list:
            if word.startswith("--"):
                name, flags[word] = word, []
            else:
                flags[name].append(word)
    return [word for name, values in flags.items() for word in (name, *values)]


class Process:
    """One tool; its output is stored by line."""

    def __init__(self, label, command, env):
        self.label, self.lines = label, []
        self.p = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.p.stdout:
            self.lines.append(line.decode(errors="replace").rstrip())

    def signal(self, number):
        self.p.send_signal(number)

    def wait_until_blocked(self, number, timeout=30):
        """Waits until this signal no longer kills the process at once, as it does while the process is being loaded."""
        until = time.monotonic() + timeout
        while True:
            with open(f"/proc/{self.p.pid}/status", encoding="utf-8") as f:
                blocked = next((int(line.split()[1], 16) for line in f if line.startswith("SigBlk:")), 0)
            if blocked >> (number - 1) & 1:
                return
            if self.p.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{self.label} never blocks signal {number}: {self.text[-600:]}")
            time.sleep(0.002)

    def wait(self, until):
        """Exit status, or None if it is still running after the time."""
        try:
            code = self.p.wait(max(0.01, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
        self.reader.join(1)
        return code

    def stop(self):
        if self.p.poll() is None:
            self.p.kill()
            self.p.wait()
        self.reader.join(1)
        self.p.stdout.close()

    @property
    def text(self):
        return "\n".join(self.lines)


class Etcd:
    """An etcd of one member. Use in a `with` statement."""

    def __enter__(self):
        # in memory if possible: etcd waits for its disk before every response
        self.folder = tempfile.TemporaryDirectory(prefix="millrace_etcd", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        client, peer = free_ports(2)
        self.endpoint, self.peer = f"127.0.0.1:{client}", f"127.0.0.1:{peer}"
        self.start()
        return self

    def start(self):
        """Also again, with what it has stored."""
        own, others = f"http://{self.endpoint}", f"http://{self.peer}"
        self.process = Process("etcd", ["etcd", "--data-dir", self.folder.name, "--listen-client-urls", own, "--advertise-client-urls", own,
                                        "--listen-peer-urls", others, "--initial-advertise-peer-urls", others, "--initial-cluster",
                                        f"default={others}"], dict(os.environ))

    def __exit__(self, *_):
        self.process.stop()
        self.folder.cleanup()


class Job:
    """A case of ../goldens/ps_sync with the given number of steps, over proxies. Use in a `with` statement."""

    def __init__(self, bin_dir, case, steps, server_flags=(), trainer_flags=()):
        self.bin, self.case, self.steps = os.path.abspath(bin_dir), case, steps
        self.server_flags, self.trainer_flags = list(server_flags), list(trainer_flags)
        with open(os.path.join(case, "config.json"), encoding="utf-8") as f:
            self.cfg = json.load(f)
        self.tmp = tempfile.TemporaryDirectory(prefix="millrace_faults")
        self.dir, self.processes, self.proxies = self.tmp.name, [], []
        self.more_config, self.params = {}, os.path.join(case, "init.npz")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("PADDLE_", "FLAGS_"))}
        self.env.update({"CPU_NUM": "1", "OMP_NUM_THREADS": "1"}, **self.cfg.get("env", {}))
        self.ports = free_ports(self.cfg["servers"])
        self.servers, self.trainers = [None] * self.cfg["servers"], [None] * self.cfg["trainers"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.stop()
        for proxy in self.proxies:
            proxy.close()
        self.tmp.cleanup()

    def start(self, label, tool, args):
        process = Process(label, [os.path.join(self.bin, tool)] + args, self.env)
        self.processes.append(process)
        return process

    def run(self, tool, args, timeout=60):
        process = self.start(tool, tool, args)
        code = process.wait(time.monotonic() + timeout)
        if code != 0:
            raise RuntimeError(f"{tool}: exit status {code}: {process.text[-600:]}")

    def prepare(self, with_proxies=True, endpoints=None):
        """Proxies, programs and feeds."""
        self.proxies = [FaultProxy(port) for port in self.ports] if with_proxies else []
        endpoints = endpoints or [p.endpoint for p in self.proxies] or [f"127.0.0.1:{p}" for p in self.ports]
        config = dict(self.cfg["config"])
        if "sync_mode" in config:
            config["config_sync_mode"] = config.pop("sync_mode")
        config.update(self.cfg["call"], pservers=",".join(endpoints), transpiler=self.cfg["transpiler"],
                      random_seed=self.cfg["random_seed"], parameter_order=self.cfg["parameter_order"])
        config.update(self.more_config)
        with open(f"{self.dir}/config.json", "w", encoding="utf-8") as f:
            json.dump(config, f)
        self.run("transpile-program", ["--program", f"{self.case}/main.pb", "--startup", f"{self.case}/startup.pb", "--config",
                                       f"{self.dir}/config.json", "--trainer-id", "all", "-o", f"{self.dir}/out"])
        with np.load(f"{self.case}/feeds.npz") as stored:
            feeds = {k: stored[k] for k in stored.files}
        # The stored steps, repeated.
        longer = {}
        for k, v in feeds.items():
            trainer, step, var = k.split("/", 2)
            for s in range(int(step[4:]), self.steps, self.cfg["steps"]):
                longer[f"{trainer}/step{s}/{var}"] = v
        np.savez(f"{self.dir}/feeds.npz", **longer)
        for t in range(self.cfg["trainers"]):
            np.savez(f"{self.dir}/feeds_{t}.npz", **{k.split("/", 1)[1]: v for k, v in longer.items() if k.startswith(f"t{t}/")})
        return self

    def reference(self):
        """State after the same steps in one process, without faults."""
        self.run("run-program", ["--cluster", "inproc", "--transpiled", f"{self.dir}/out", "--params", self.params, "--feed-steps",
                                 f"{self.dir}/feeds.npz", "--steps", str(self.steps), "--fetch", self.cfg["loss"], "--output",
                                 f"{self.dir}/reference_out.npz", "--save-persistables", f"{self.dir}/reference.npz"])
        return self.load("reference.npz")

    def load(self, name):
        with np.load(os.path.join(self.dir, name)) as stored:
            return {k: stored[k] for k in stored.files}

    def start_server(self, i, wait=True, flags=()):
        folder = f"{self.dir}/out/pserver_{i}"
        self.servers[i] = self.start(f"server {i}", "pserver", [
            "--program", f"{folder}/__model__", "--startup", f"{folder}/__startup__", "--slices", f"{self.dir}/out/slices.json", "--params",
            self.params, *merged(["--endpoint", f"127.0.0.1:{self.ports[i]}"], self.server_flags, flags)])
        until = time.monotonic() + 30
        while wait and not any(line.startswith("ready ") for line in self.servers[i].lines):
            if self.servers[i].p.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"server {i} is not ready: {self.servers[i].text[-600:]}")
            time.sleep(0.01)
        return self.servers[i]

    def start_trainer(self, t, flags=()):
        folder = f"{self.dir}/out/trainer_{t}"
        args = ["--role", "trainer", "--trainer-id", str(t), "--program", f"{folder}/__model__", "--startup", f"{folder}/__startup__", "--params",
                self.params, "--feed-steps", f"{self.dir}/feeds_{t}.npz", "--steps", str(self.steps), "--fetch", self.cfg["loss"],
                "--output", f"{self.dir}/out_{t}.npz", *merged(self.trainer_flags, flags)]
        if t == 0:
            args += ["--save-persistables", f"{self.dir}/after.npz"]
        self.trainers[t] = self.start(f"trainer {t}", "run-program", args)
        return self.trainers[t]

    def start_all(self):
        for i in range(len(self.servers)):
            self.start_server(i, wait=False)
        for t in range(len(self.trainers)):
            self.start_trainer(t)
        return self

    def passed_bytes(self):
        return sum(p.bytes for p in self.proxies)

    def wait_for_bytes(self, count, timeout=30):
        """Waits until the proxies have forwarded that many bytes, both directions together."""
        until = time.monotonic() + timeout
        while self.passed_bytes() < count:
            if time.monotonic() > until:
                raise RuntimeError(f"only {self.passed_bytes()} of {count:.0f} bytes have passed: {[p.text[-200:] for p in self.processes]}")
            time.sleep(0.002)

    def wait_all(self, timeout=60):
        """Exit codes of servers and trainers; None for those that are still running after the time."""
        until = time.monotonic() + timeout
        return [p.wait(until) for p in self.servers], [p.wait(until) for p in self.trainers]
