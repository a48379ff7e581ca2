#!/usr/bin/env python3
"""The tools of parameter servers as a user sees them: Prometheus metrics, traces of all processes, mutual TLS.

    ps_tools.py --bin-dir build/dev/tools --shared ../shared

- While a job runs, `--metrics` shows the state of a server; the numbers must be those of the job.
- `launch --metrics` assigns a separate port to every process.
- SIGTERM and SIGINT end trainers, a cluster in one process, batches and timings after the current step or case, with
  143 and 130; trainers leave the job.
- `--profile` of all processes, merged by job-report, is one Chrome trace in which arrows lead from callers to the
  responding server.
- With `--tls-dir` a job trains; with no certificate, with one of another authority or without the role no trainer
  trains, and all processes end with an error.
- With `--job-key` a job trains; with no key or another one on one side no trainer trains, and the trainer says why. So
  does one whose slices.json is of another distribution.
Prints a line per check, then "N passed, N failed". Exit status: 0 all passed, 1 not. TLS needs openssl to make
certificates.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../faults"))
from job import Job, free_ports  # noqa: E402
from each_case import run_checks  # noqa: E402

LIMIT = 60


def require(holds, what):
    if not holds:
        raise AssertionError(what)


def tails(job):
    return " | ".join(f"{p.label}: {p.lines[-1][:300] if p.lines else ''}" for p in job.processes[1:])


def scrape(port):
    """Series by name with labels; the status of /healthz as "healthz"."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    series = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))}
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            series["healthz"] = answer.status
    except urllib.error.HTTPError as e:
        series["healthz"] = e.code
    return series


def of(series, name):
    return {key: value for key, value in series.items() if key == name or key.startswith(name + "{")}


def metrics(args):
    """A server that waits for its last trainer reports this state, and counts its calls."""
    with Job(args.bin_dir, f"{args.shared}/goldens/ps_sync/emb_prefetch_adagrad_2s2t", 40).prepare(with_proxies=False) as job:
        port = free_ports(1)[0]
        job.start_server(0, flags=["--metrics", f"127.0.0.1:{port}", "--snapshot-dir", job.dir, "--snapshot-every", "10"])
        for i in range(1, len(job.servers)):
            job.start_server(i)
        for t in range(1, len(job.trainers)):
            job.start_trainer(t)
        until = time.monotonic() + LIMIT
        while True:
            before = scrape(port)
            if sum(of(before, "millrace_peers_alive").values()) == len(job.trainers) - 1:
                break
            require(time.monotonic() < until, f"trainers that are there are not counted: {before}")
            time.sleep(0.1)
        require(sum(of(before, "millrace_step_total").values()) == 0, f"steps without trainer 0: {before}")
        require(of(before, "millrace_table_rows") and of(before, "millrace_table_bytes"), f"no table: {sorted(before)}")
        require(all(value > 0 for value in of(before, "millrace_memory_bytes").values()), f"no memory: {before}")
        require(before["healthz"] == 200, f"a server that waits for its trainers is not healthy: {before['healthz']}")
        own, of_trainer = free_ports(1)[0], {}
        job.start_trainer(0, flags=["--metrics", f"127.0.0.1:{own}"])
        last = before
        while job.servers[0].p.poll() is None:
            try:
                last = scrape(port)
            except OSError:
                break
            try:
                of_trainer = scrape(own)
            except OSError:
                pass  # not listening yet, or already closed
            time.sleep(0.02)
        servers, trainers = job.wait_all(LIMIT)
        require(servers + trainers == [0] * len(servers + trainers), f"{servers} {trainers}: {tails(job)}")
        require(sum(of(last, "millrace_updates_applied_total").values()) > sum(of(before, "millrace_updates_applied_total").values()),
                f"no call was counted: {last}")
        for name in ("millrace_updates_deduplicated_total", "millrace_snapshots_total", "millrace_snapshot_last_success_timestamp",
                     "millrace_peer_last_seen_seconds", "millrace_staleness_steps", "millrace_ps_trainers_waiting"):
            require(of(last, name), f"{name} is missing: {sorted(last)}")
        for name in ("millrace_ps_request_seconds", "millrace_ps_request_bytes", "millrace_ps_lookup_rows"):
            counts, ends = of(last, f"{name}_count"), of(last, f"{name}_bucket")
            require(counts and sum(v for k, v in ends.items() if 'le="+Inf"' in k) == sum(counts.values()) > 0, f"{name}: {counts} {ends}")
        for name in ("millrace_step_total", "millrace_examples_total", "millrace_step_seconds_count", "millrace_batch_examples_sum", "millrace_loss"):
            require(sum(of(of_trainer, name).values()) > 0, f"{name} of the trainer is missing: {sorted(of_trainer)}")


def trace(args):
    """One trace of all processes, in which every arrow has a beginning and an end."""
    with Job(args.bin_dir, f"{args.shared}/goldens/ps_sync/emb_prefetch_adagrad_2s2t", 5).prepare(with_proxies=False) as job:
        files = []
        for i in range(len(job.servers)):
            files.append(f"{job.dir}/server_{i}.json")
            job.start_server(i, wait=False, flags=["--profile", files[-1]])
        for t in range(len(job.trainers)):
            files.append(f"{job.dir}/trainer_{t}.json")
            job.start_trainer(t, flags=["--profile", files[-1]])
        servers, trainers = job.wait_all(LIMIT)
        require(servers + trainers == [0] * len(servers + trainers), f"{servers} {trainers}: {tails(job)}")
        job.run("job-report", ["--traces", *files, "-o", f"{job.dir}/job.json"])
        with open(f"{job.dir}/job.json", encoding="utf-8") as f:
            events = json.load(f)["traceEvents"]
        names = [e["args"]["name"] for e in events if e["ph"] == "M"]
        require(len(names) == len(files) == len(set(names)), f"processes: {names}")
        require(all(e["ts"] >= 0 for e in events if "ts" in e), "times before the first event")
        starts = {e["id"]: e for e in events if e["ph"] == "s"}
        ends = {e["id"]: e for e in events if e["ph"] == "f"}
        require(starts and set(starts) == set(ends), f"{len(set(starts) ^ set(ends))} of {len(starts)} arrows have one end")
        require(all(starts[i]["pid"] != ends[i]["pid"] and starts[i]["name"] == ends[i]["name"] for i in starts), "arrows within a process")
        require(all(starts[i]["ts"] <= ends[i]["ts"] + 1e3 for i in starts), "calls that are answered before they are made")
        ops = {e["name"] for e in events if e.get("cat") == "op"}
        require("send_barrier" in ops or "send" in ops, f"ops of trainers: {sorted(ops)[:20]}")
        arrows = {e["name"] for e in starts.values()}
        require({"prefetch", "send-barrier", "fetch-barrier"} <= arrows, f"arrows of {sorted(arrows)}")


class Certificates:
    def __init__(self, folder):
        self.folder = folder
        for name in ("job", "other"):
            self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                         "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.crt")

    @staticmethod
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True)

    def make(self, name, role, authority="job", trusts="job"):
        """Creates a folder for --tls-dir."""
        folder = f"{self.folder}/{name}"
        os.makedirs(folder)
        with open(f"{folder}/names", "w", encoding="ascii") as f:
            f.write(f"subjectAltName=URI:millrace://role/{role},IP:127.0.0.1\n")
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}", "-keyout",
                     f"{folder}/key.pem", "-out", f"{folder}/request")
        self.openssl("x509", "-req", "-days", "2", "-in", f"{folder}/request", "-CA", f"{self.folder}/{authority}.crt", "-CAkey",
                     f"{self.folder}/{authority}.key", "-CAcreateserial", "-extfile", f"{folder}/names", "-out", f"{folder}/cert.pem")
        shutil.copy(f"{self.folder}/{trusts}.crt", f"{folder}/ca.pem")
        return ["--tls-dir", folder]


def tls(args):
    """Only processes with a certificate of the job and of their role can take part."""
    if shutil.which("openssl") is None:
        print("skipped: there is no openssl")
        return
    with tempfile.TemporaryDirectory(prefix="millrace_tls") as folder:
        made = Certificates(folder)
        server, trainer = made.make("server", "pserver"), made.make("trainer", "trainer")
        # exit codes of the server and the trainer; 3: refused with its name
        cases = [("right certificates", server, trainer, 0, 0), ("trainer without", server, [], 5, 5), ("server without", [], trainer, 5, 5),
                 ("trainer of another authority", server, made.make("stranger", "trainer", "other"), 5, 5),
                 ("server of another authority", made.make("strange server", "pserver", "other"), trainer, 5, 5),
                 ("server with a trainer's certificate", made.make("not a server", "trainer"), trainer, 5, 5),
                 ("trainer whose certificate has no role", server, made.make("nobody", "nobody"), 5, 3)]
        for what, of_server, of_trainer, *wanted in cases:
            with Job(args.bin_dir, f"{args.shared}/goldens/ps_sync/sgd_1s1t", 3, [*of_server, "--start-timeout-ms", "6000"],
                     [*of_trainer, "--deadline-ms", "5000", "--reconnect-timeout-ms", "2000"]).prepare(with_proxies=False) as job:
                began = time.monotonic()
                servers, trainers = job.start_all().wait_all(LIMIT)
                took = time.monotonic() - began
                require(servers + trainers == wanted, f"{what}: {servers} {trainers}, expected {wanted}: {tails(job)}")
                print(f"  {what}: {wanted} after {took:.1f} s")


def key_file(folder, name):
    path = f"{folder}/{name}"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
        f.write(f"a key named {name} of a job\n")
    return ["--job-key", path]


def keys(args):
    """Only processes with the key of the job can take part."""
    with tempfile.TemporaryDirectory(prefix="millrace_key") as folder:
        own, other = key_file(folder, "own"), key_file(folder, "other")
        # exit codes of the server and the trainer, and what the trainer says
        cases = [("the same key", own, own, 0, 0, ""), ("trainer without", own, [], 5, 3, "requires the key of the job"),
                 ("server without", [], own, 5, 3, "has none"), ("another key", own, other, 5, 3, "the key of another job")]
        for what, of_server, of_trainer, *wanted, reason in cases:
            with Job(args.bin_dir, f"{args.shared}/goldens/ps_sync/sgd_1s1t", 3, [*of_server, "--start-timeout-ms", "6000"],
                     [*of_trainer, "--deadline-ms", "20000"]).prepare(with_proxies=False) as job:
                servers, trainers = job.start_all().wait_all(LIMIT)
                require(servers + trainers == wanted, f"{what}: {servers} {trainers}, expected {wanted}: {tails(job)}")
                require(reason in job.trainers[0].text, f"{what}: {job.trainers[0].text[-500:]}")


def plans(args):
    """A trainer of another distribution is refused, although the names of its vars are those of the server."""
    with Job(args.bin_dir, f"{args.shared}/goldens/ps_sync/sgd_1s1t", 3, ["--start-timeout-ms", "6000"],
             ["--deadline-ms", "20000"]).prepare(with_proxies=False) as job:
        with open(f"{job.dir}/out/slices.json", encoding="utf-8") as f:
            slices = json.load(f)
        slices["overview"]["vars"][0]["origin"]["shape"][0] += 1
        with open(f"{job.dir}/other.json", "w", encoding="utf-8") as f:
            json.dump(slices, f)
        job.start_server(0)
        job.start_trainer(0, flags=["--slices", f"{job.dir}/other.json"])
        servers, trainers = job.wait_all(LIMIT)
        require(servers + trainers == [5, 5], f"{servers} {trainers}: {tails(job)}")
        require("belong to different distributions" in job.trainers[0].text, job.trainers[0].text[-500:])


def signals(args):
    """Trainers that get a signal finish their step, leave the job, and write nothing; the others continue, and servers
    end with success."""
    for case, flags in (("ps_sync/emb_prefetch_adagrad_2s2t", []), ("ps_async/async_dense_2s2t", []), ("ps_async/async_dense_2s2t", ["--worker-threads", "2"])):
        for number, code, everybody in ((signal.SIGTERM, 143, False), (signal.SIGINT, 130, True)):
            # asynchronous trainers do not wait for others, so more steps are needed to interrupt them
            with Job(args.bin_dir, f"{args.shared}/goldens/{case}", 4000 if "async" in case else 600).prepare() as job:
                for i in range(len(job.servers)):
                    job.start_server(i, wait=False)
                for t in range(len(job.trainers)):
                    job.start_trainer(t, flags=flags)
                last = len(job.trainers) - 1
                job.wait_for_bytes(60_000)
                told = range(len(job.trainers)) if everybody else [last]
                for t in told:
                    # a single trainer transfers all these bytes before another one has started
                    job.trainers[t].wait_until_blocked(number)
                for t in told:
                    job.trainers[t].signal(number)
                servers, trainers = job.wait_all(LIMIT)
                what = f"{case} {flags} {number}: {servers} {trainers}: {tails(job)}"
                require(servers == [0] * len(servers), what)
                require(trainers == [code if t in told else 0 for t in range(len(job.trainers))], what)
                require(all(os.path.exists(f"{job.dir}/out_{t}.npz") == (t not in told) for t in range(len(job.trainers))), what)
                require(os.path.exists(f"{job.dir}/after.npz") == (0 not in told), what)
    with Job(args.bin_dir, f"{args.shared}/goldens/ps_sync/emb_prefetch_adagrad_2s2t", 2000).prepare(with_proxies=False) as job:
        alone = job.start_trainer(0)  # waits for its servers
        alone.wait_until_blocked(signal.SIGINT)
        time.sleep(0.3)
        alone.signal(signal.SIGINT)
        require(alone.wait(time.monotonic() + 20) == 130 and "while it joined the job" in alone.text, f"{alone.p.returncode}: {alone.text[-300:]}")
        codes = []
        for wait in (1.5, 1, 0.7, 0.5, 0.3):  # how long it takes depends on the machine
            process = job.start("cluster", "run-program", ["--cluster", "inproc", "--transpiled", f"{job.dir}/out", "--params", job.params, "--steps",
                                "2000", "--feed-steps", f"{job.dir}/feeds.npz", "--fetch", job.cfg["loss"], "--output", f"{job.dir}/all.npz", "--force"])
            time.sleep(wait)
            process.signal(signal.SIGINT)
            codes.append(process.wait(time.monotonic() + LIMIT))
            if codes[-1] != 0:
                break
            os.remove(f"{job.dir}/all.npz")
        require(codes[-1] == 130 and "stopped by signal 2" in process.text, f"cluster: {codes}: {process.text[-300:]}")
        require(not os.path.exists(f"{job.dir}/all.npz"), "the cluster has written its results")
        model = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/fit_a_line")
        lines = json.dumps({"program": f"{model}/startup.pb"}) + "\n"
        with open(f"{job.dir}/cases.jsonl", "w", encoding="utf-8") as f:
            f.write(lines * 1000000)
        for words, number, code in ((["--batch", f"{job.dir}/cases.jsonl"], signal.SIGTERM, 143),
                                    (["--program", f"{model}/startup.pb", "--benchmark", "1000000000"], signal.SIGINT, 130)):
            process = job.start(words[0], "run-program", words)
            until = time.monotonic() + 1
            while time.monotonic() < until or (words[0] == "--batch" and "ok" not in process.text):
                time.sleep(0.02)
            process.signal(number)
            require(process.wait(time.monotonic() + LIMIT) == code, f"{words[0]}: {process.p.returncode}: {process.text[-300:]}")


def ports(args):
    """launch assigns a separate metrics port to every process."""
    with Job(args.bin_dir, f"{args.shared}/goldens/ps_sync/emb_prefetch_adagrad_2s2t", 4000).prepare(with_proxies=False) as job:
        count = len(job.servers) + len(job.trainers)
        base = free_ports(count, in_a_row=True)[0]
        for t in range(len(job.trainers)):
            os.rename(f"{job.dir}/feeds_{t}.npz", f"{job.dir}/own{t}.npz")
        job.start("launch", "launch", ["--servers", ",".join(f"127.0.0.1:{p}" for p in job.ports), "--trainer_num", str(len(job.trainers)), "--log_dir",
                  f"{job.dir}/logs", "--metrics", str(base), "--", f"{job.bin}/run-program", "--role", "auto", "--transpiled", f"{job.dir}/out",
                  "--params", job.params, "--feed-steps", job.dir + "/own{rank}.npz", "--steps", "4000"])
        until, roles = time.monotonic() + LIMIT, {}
        while len(roles) < count and time.monotonic() < until:
            for port in range(base, base + count):
                try:
                    roles.setdefault(port, re.search(r'role="(\w+)",rank="(\d+)"', " ".join(scrape(port))).groups())
                except (OSError, AttributeError):
                    pass  # not listening yet
            time.sleep(0.05)
        wanted = [("server", str(i)) for i in range(len(job.servers))] + [("trainer", str(t)) for t in range(len(job.trainers))]
        require([roles.get(p) for p in range(base, base + count)] == wanted, f"{roles}, expected {wanted}: {tails(job)}")
        require(f"http://127.0.0.1:{base + count - 1}/metrics" in job.processes[-1].text, job.processes[-1].text)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--shared", default="../shared")
    ap.add_argument("--only", default="", help="keys, metrics, plans, ports, signals, trace or tls")
    args = ap.parse_args()
    return run_checks([(check.__name__, lambda check=check: check(args)) for check in (keys, metrics, plans, ports, signals, trace, tls)], args.only)


if __name__ == "__main__":
    sys.exit(main())
