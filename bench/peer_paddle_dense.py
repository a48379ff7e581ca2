#!/usr/bin/env python3
"""Dense push and pull of a live parameter-server pair of Paddle 2.6.2 on loopback, the peer of ps_dense.py.

    PYTHON bench/peer_paddle_dense.py [--mb 64] [--servers 2] [--runs 7]

PYTHON belongs to an environment with paddlepaddle 2.6.2. One trainer holds one parameter of the given size. Its
`push_dense_params` and `pull_dense_params` are timed: they send all of it to the servers, or receive it, and wait. One
line of JSON: GB/s, median and best.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/support"))
from ports import free_ports  # noqa: E402

WIDTH = 1024


def timed(runs, body):
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        body()
        seconds.append(time.perf_counter() - begin)
    return sorted(seconds)


def child(args):
    import numpy.random  # noqa: F401  before paddle
    import paddle
    from paddle.distributed import fleet
    import paddle.distributed.fleet.base.role_maker as role_maker
    from paddle.distributed.fleet.base.distributed_strategy import DistributedStrategy

    # __repr__ of the strategy needs protobuf's C++ message module, which some builds of protobuf lack.
    DistributedStrategy.__repr__ = lambda self: "DistributedStrategy"
    paddle.enable_static()
    fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=False))
    x = paddle.static.data("x", [-1, WIDTH], "float32")
    loss = paddle.mean(paddle.static.nn.fc(x, args.mb * (1 << 20) // 4 // WIDTH, bias_attr=False))
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    fleet.distributed_optimizer(paddle.optimizer.SGD(1e-3), strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    fleet.init_worker()
    runtime = fleet.fleet._runtime_handle
    (table, names), = dense_receives(runtime).items()
    scope = paddle.static.global_scope()
    worker = runtime._worker
    bytes_moved = sum(scope.find_var(n).get_tensor()._numel() * 4 for n in names)
    row = {"mb": bytes_moved / (1 << 20)}
    for name, call in (("push", worker.push_dense_params), ("pull", worker.pull_dense_params)):
        timed(2, lambda: call(scope, table, names))
        seconds = timed(args.runs, lambda: call(scope, table, names))
        row[name] = {"median": bytes_moved / seconds[len(seconds) // 2] / 1e9, "best": bytes_moved / seconds[0] / 1e9}
    print("BENCH " + json.dumps(row), flush=True)
    fleet.stop_worker()


def dense_receives(runtime):
    """Ids of the dense tables, with the parameters in each."""
    from paddle.distributed.ps.utils.public import get_the_one_recv_context

    found = get_the_one_recv_context(runtime.context, is_dense=True, split_dense_table=runtime.is_heter_ps_mode)
    return {table: names for table, names in found.items() if names}


def parent(args):
    with tempfile.TemporaryDirectory(prefix="paddle_dense") as work:
        ports = free_ports(args.servers + 1)
        endpoints = [f"127.0.0.1:{p}" for p in ports]
        env = {**os.environ, "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(endpoints[:-1]), "PADDLE_TRAINERS_NUM": "1",
               "PADDLE_TRAINER_ENDPOINTS": endpoints[-1], "PADDLE_TRAINER_ID": "0", "PADDLE_WITH_GLOO": "0", "POD_IP": "127.0.0.1"}
        env.setdefault("OMP_NUM_THREADS", "1")

        def start(role, index, port):
            with open(f"{work}/{role}{index}.log", "w", encoding="utf-8") as log:
                return subprocess.Popen([sys.executable, os.path.abspath(__file__), "--role", role, "--mb", str(args.mb), "--runs", str(args.runs)],
                                        stdout=log, stderr=subprocess.STDOUT, cwd=work,
                                        env={**env, "TRAINING_ROLE": role, "PADDLE_PORT": str(port)})

        servers = [start("PSERVER", i, p) for i, p in enumerate(ports[:-1])]
        trainer = start("TRAINER", 0, ports[-1])
        try:
            trainer.wait(args.timeout)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for process in (*servers, trainer):
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                process.wait()
        with open(f"{work}/TRAINER0.log", encoding="utf-8", errors="replace") as log:
            text = log.read()
    found = re.search(r"^BENCH (.*)$", text, re.M)
    if not found:
        sys.exit(f"the trainer measured nothing: {text[-2000:]}")
    print(json.dumps({"name": "paddle_dense", "servers": args.servers, "unit": "GB/s", "runs": args.runs, **json.loads(found.group(1))}))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--mb", type=int, default=64)
    ap.add_argument("--servers", type=int, default=2)
    ap.add_argument("--runs", type=int, default=7)
    ap.add_argument("--timeout", type=float, default=120)
    ap.add_argument("--role", default="", help=argparse.SUPPRESS)
    args = ap.parse_args()
    child(args) if args.role else parent(args)


if __name__ == "__main__":
    main()
