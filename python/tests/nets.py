"""A network for the tests, built op by op: guess = x w + b, the squared error to t; and what else several tests need."""

import socket

import numpy

import millrace


def linear_net():
    """:returns: main program, startup program, name of the loss"""
    main, startup = millrace.Program(), millrace.Program()
    root = main.root
    for name, dims in {"x": (-1, 3), "t": (-1, 1), "product": (-1, 1), "guess": (-1, 1), "error": (-1, 1),
                       "square": (-1, 1), "loss": (1,)}.items():
        root.add_var(name, "f32", dims, stop_gradient=name in "xt")
    for name, dims in {"w": (3, 1), "b": (1,)}.items():
        root.add_var(name, "f32", dims, persistable=True, is_parameter=True)
        startup.root.add_var(name, "f32", dims, persistable=True, is_parameter=True)
        startup.root.add_op("fill_constant", {}, {"Out": name}, {"shape": list(dims), "dtype": 5, "value": 0.1})
    root.add_op("mul", {"X": "x", "Y": "w"}, {"Out": "product"}, {"x_num_col_dims": 1, "y_num_col_dims": 1})
    root.add_op("elementwise_add", {"X": "product", "Y": "b"}, {"Out": "guess"}, {"axis": 1})
    root.add_op("elementwise_sub", {"X": "guess", "Y": "t"}, {"Out": "error"}, {"axis": -1})
    root.add_op("square", {"X": "error"}, {"Out": "square"})
    root.add_op("mean", {"X": "square"}, {"Out": "loss"})
    main.check()
    startup.check()
    return main, startup, "loss"


def embedding_net(lookup="remote_prefetch"):
    """loss = mean((emb[ids] w - x)^2), whose embedding is looked up on servers. Returns as linear_net().

    :param lookup: attribute that says so
    """
    main, startup = millrace.Program(), millrace.Program()
    root = main.root
    root.add_var("ids", "i64", (-1, 1), stop_gradient=True)
    for name, dims in {"x": (-1, 1), "rows": (-1, 4), "guess": (-1, 1), "error": (-1, 1), "square": (-1, 1),
                       "loss": (1,)}.items():
        root.add_var(name, "f32", dims, stop_gradient=name == "x")
    for name, dims in {"emb": (20, 4), "w": (4, 1)}.items():
        root.add_var(name, "f32", dims, persistable=True, is_parameter=True)
        startup.root.add_var(name, "f32", dims, persistable=True, is_parameter=True)
        startup.root.add_op("fill_constant", {}, {"Out": name}, {"shape": list(dims), "dtype": 5, "value": 0.3})
    root.add_op("lookup_table", {"Ids": "ids", "W": "emb"}, {"Out": "rows"},
                {"is_sparse": True, lookup: True, "padding_idx": -1})
    root.add_op("mul", {"X": "rows", "Y": "w"}, {"Out": "guess"}, {"x_num_col_dims": 1, "y_num_col_dims": 1})
    root.add_op("elementwise_sub", {"X": "guess", "Y": "x"}, {"Out": "error"}, {"axis": -1})
    root.add_op("square", {"X": "error"}, {"Out": "square"})
    root.add_op("mean", {"X": "square"}, {"Out": "loss"})
    return main, startup, "loss"


def embedding_batches(first, last, worker, workers):
    """Feeds of some workers from one step to another, 4 rows for each."""
    for step in range(first, last):
        rows = numpy.arange(worker * 4, (worker + workers) * 4)
        yield {"ids": ((rows * 3 + step * 5) % 20).reshape(-1, 1),
               "x": (((rows * 7 + step) % 11) * 0.1).astype("float32").reshape(-1, 1)}


def fleet_process(kind, endpoint, main, startup, loss, **role):
    """A process of a synchronous job with one worker and one server, up to its programs.

    :param kind: what servers have: "tables" or "blocks" that optimize
    """
    fleet = millrace.Fleet(millrace.Connection())
    fleet.init(worker_num=1, server_endpoints=[endpoint], **role)
    options = millrace.minimize_options(millrace.optimizer.SGD(), learning_rate=0.1)
    if kind == "tables":
        fleet.distributed_optimizer(options, a_sync=False)
    else:
        fleet.distributed_optimizer(options, millrace.TranspilerStrategy.sync())
    fleet.minimize(main, startup, loss)
    return fleet


def free_endpoints(count):
    """Endpoints of this machine where nothing listens."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    endpoints = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return endpoints


def batches(count, rows=8):
    """Feeds of a linear function."""
    numbers = numpy.random.default_rng(1)
    for _ in range(count):
        x = numbers.standard_normal((rows, 3)).astype("float32")
        yield {"x": x, "t": (x @ numpy.array([[1], [-2], [0.5]], "float32") + 0.25).astype("float32")}


def sgd_by_numpy(given, rate):
    """Losses and parameters of the network, trained by plain numpy in float64."""
    w, b = numpy.full((3, 1), 0.1), numpy.full(1, 0.1)
    losses = []
    for feeds in given:
        x, t = feeds["x"].astype("float64"), feeds["t"].astype("float64")
        error = x @ w + b - t
        losses.append((error**2).mean())
        gradient = 2 * error / len(x)
        w, b = w - rate * x.T @ gradient, b - rate * gradient.sum()
    return losses, w, b
