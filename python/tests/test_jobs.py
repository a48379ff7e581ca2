import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

import numpy

import millrace
import millrace.fluid as fluid
from millrace import optimizer
from nets import batches, embedding_batches, embedding_net, fleet_process, free_endpoints, linear_net, sgd_by_numpy

#: a server with snapshots, in a process of its own
FLEET_SERVER = """
import sys
from nets import fleet_process, linear_net
endpoint, snapshots, kind = sys.argv[1:]
server = fleet_process(kind, endpoint, *linear_net(), is_server=True)
server.init_server(snapshot_root=snapshots, snapshot_every=4)
server.run_server()
"""


#: a rank of collective training, started by launch; saves its losses and parameters
RANK = """
import sys
import numpy
import millrace
from nets import batches, linear_net
main, startup, loss = linear_net()
trained = millrace.minimize(main, startup, loss, millrace.optimizer.SGD(), learning_rate=0.1)
ranks = millrace.Ranks(join=60)
transpiler = millrace.DistributeTranspiler(millrace.DistributeTranspilerConfig(
    mode="collective", collective_mode="grad_allreduce"))
transpiler.transpile(trained.main, trained.startup, trainer_id=ranks.rank, trainers="127.0.0.1:1,127.0.0.1:2",
                     current_endpoint=f"127.0.0.1:{ranks.rank + 1}")
executor, scope = millrace.Executor(ranks=ranks), millrace.Scope()
executor.run(transpiler.get_trainer_startup_program(), scope)
prepared = executor.prepare(transpiler.get_trainer_program(), scope)
for feeds in batches(10):
    prepared.run({name: numpy.split(array, ranks.size)[ranks.rank] for name, array in feeds.items()})
ranks.barrier()
numpy.savez(f"{sys.argv[1]}/{ranks.rank}-of-{ranks.size}.npz", w=scope["w"], b=scope["b"])
"""


def training_net(rate=0.1):
    main, startup, loss = linear_net()
    result = millrace.minimize(main, startup, loss, optimizer.SGD(), learning_rate=rate)
    return result.main, result.startup, loss


class JobTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.main, self.startup, self.loss = training_net()

    def at(self, *names):
        return os.path.join(self.folder.name, *names)

    def test_a_server_starts_once_and_is_joined_afterwards(self):
        millrace.transpile(self.main, self.startup, self.at("job"), trainers=1, pservers="a:1")
        server = millrace.ParameterServer(millrace.server_files(self.at("job"), 0), millrace.Connection.in_process())
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "join: the server has not been started"):
            server.join()
        server.start()
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "start: the server has been started before"):
            server.start()
        with self.assertRaises(TimeoutError):
            server.join(0.01)
        server.stop()
        server.join(60)

    def run_job(self, connection, servers, trainers, steps=10, **server_options):
        """Synchronous trainers with the same batches. Returns the losses of trainer 0 and what it gathers."""
        serving = [millrace.ParameterServer(millrace.server_files(self.at("job"), i), connection, **server_options)
                   .start() for i in range(servers)]
        results = {}

        def train(number):
            trainer = millrace.Trainer(millrace.trainer_files(self.at("job"), number), connection, trainer=number)
            self.assertEqual(trainer.next_step, 0)
            history = millrace.train(trainer.step, batches(steps), [self.loss])
            self.assertEqual(trainer.stats["steps"], steps)
            results[number] = history[self.loss], trainer.finish(gather=True)

        threads = [threading.Thread(target=train, args=(number,)) for number in range(trainers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for server in serving:
            server.join(60)
        return results[0]

    def expect_numpy(self, result, steps=10):
        losses, w, b = sgd_by_numpy(batches(steps), 0.1)
        numpy.testing.assert_allclose(result[0], losses, rtol=1e-4)
        numpy.testing.assert_allclose(result[1]["w"], w, rtol=1e-4)
        numpy.testing.assert_allclose(result[1]["b"], b, rtol=1e-4)

    def test_a_job_within_the_process(self):
        written = millrace.transpile(self.main, self.startup, self.at("job"), trainers=2, pservers="s0:1,s1:1")
        self.assertEqual((written.trainers, written.servers, written.endpoints), (2, 2, ["s0:1", "s1:1"]))
        self.expect_numpy(self.run_job(millrace.Connection.in_process(), 2, 2))

    def test_a_job_over_tcp(self):
        endpoints = free_endpoints(2)
        millrace.transpile(self.main, self.startup, self.at("job"), trainers=1, pservers=",".join(endpoints))
        self.expect_numpy(self.run_job(millrace.Connection(kind="tcp"), 2, 1))

    def test_snapshots_are_read_and_resharded(self):
        millrace.transpile(self.main, self.startup, self.at("job"), trainers=1, pservers="s0:1,s1:1")
        losses, gathered = self.run_job(millrace.Connection.in_process(), 2, 1, snapshot_root=self.at("snapshots"),
                                        snapshot_every=5)
        checkpoint = millrace.ServerCheckpoint(self.at("snapshots"), self.at("job", "slices.json"))
        self.assertEqual((checkpoint.step, checkpoint.servers), (10, 2))
        numpy.testing.assert_array_equal(checkpoint["w"], gathered["w"])
        millrace.transpile(self.main, self.startup, self.at("other"), trainers=1, pservers="s0:1")
        checkpoint.reshard(self.at("other", "slices.json"), self.at("resharded"))
        one = millrace.ServerCheckpoint(self.at("resharded"), self.at("other", "slices.json"))
        self.assertEqual(one.servers, 1)
        numpy.testing.assert_array_equal(one["w"], gathered["w"])

    def test_wrong_settings(self):
        with self.assertRaisesRegex(TypeError, "no setting 'trainer'"):
            millrace.transpile(self.main, self.startup, self.at("job"), trainer=2)
        with self.assertRaises(millrace.InvalidArgumentError):
            millrace.transpile(self.main, self.startup, self.at("job"), min_block_size=1)
        with self.assertRaises(millrace.NotFoundError):
            millrace.ParameterServer(millrace.server_files(self.at("nothing"), 0), millrace.Connection.in_process())

    def test_the_transpiler(self):
        transpiler = millrace.DistributeTranspiler(millrace.DistributeTranspilerConfig(wait_port=False))
        transpiler.transpile(self.main, self.startup, trainer_id=0, pservers="s0:1,s1:1", trainers=2)
        self.assertIn("send", [op.type for op in transpiler.get_trainer_program().ops])
        server, startup = transpiler.get_pserver_programs("s0:1")
        self.assertEqual([op.type for op in server.ops], ["listen_and_serv"])
        self.assertEqual(transpiler.pserver_endpoints, ["s0:1", "s1:1"])
        self.assertIn("s1:1", json.dumps(json.loads(transpiler.slices_json())))
        self.assertEqual({var["origin"]["name"] for var in transpiler.vars_overview} & {"w", "b"}, {"w", "b"})
        with self.assertRaises(millrace.InvalidArgumentError):
            transpiler.get_pserver_program("s2:1")
        self.main.ops[0].inputs["Y"] = "nothing"
        with self.assertRaises(millrace.InvalidProgramError):
            transpiler.transpile(self.main, self.startup, pservers="s0:1")

    def test_an_asynchronous_job_and_a_live_model(self):
        millrace.transpile(self.main, self.startup, self.at("job"), trainers=2, pservers="s0:1", sync_mode=False)
        connection = millrace.Connection.in_process()
        server = millrace.ParameterServer(millrace.server_files(self.at("job"), 0), connection).start()
        live = {}

        def watch():
            live["model"] = millrace.LiveModel(millrace.trainer_files(self.at("job"), 1), ["x"], ["guess"], connection,
                                               trainer=1)

        watcher = threading.Thread(target=watch)
        watcher.start()
        trainer = millrace.Trainer(millrace.trainer_files(self.at("job"), 0), connection, trainer=0)
        watcher.join(60)
        for feeds in batches(30):
            trainer.step(feeds)
        trainer.finish()
        live["model"].refresh()
        feeds = next(batches(1))
        numpy.testing.assert_allclose(live["model"].run({"x": feeds["x"]})["guess"], feeds["t"], atol=0.3)
        live["model"].close()
        server.join(60)

    def test_fleet(self):
        main, startup, loss = linear_net()
        endpoint = free_endpoints(1)[0]
        connection = millrace.Connection.in_process()

        def process(is_server):
            fleet = millrace.Fleet(connection)
            fleet.init(is_server=is_server, id=0, worker_num=1, server_endpoints=[endpoint])
            fleet.distributed_optimizer(millrace.minimize_options(optimizer.SGD(), learning_rate=0.1), a_sync=False)
            with self.assertRaisesRegex(millrace.InvalidArgumentError, "needs minimize"):
                fleet.description()
            fleet.minimize(main, startup, loss)
            tables, runtime = fleet.description()
            self.assertTrue(tables.startswith("server_param" if is_server else "worker_param"), tables)
            self.assertIn('table_class: "MemoryDenseTable"', tables)
            self.assertEqual(json.loads(runtime)["endpoints"], [endpoint])
            return fleet

        server, worker = process(True), process(False)
        server.init_server()
        thread = threading.Thread(target=server.run_server)
        thread.start()
        worker.init_worker(wait_for_servers=None)
        losses = millrace.train(worker.step, batches(10), [loss])[loss]
        worker.wait_for_all()
        expected, w, _ = sgd_by_numpy(batches(10), 0.1)
        numpy.testing.assert_allclose(losses, expected, rtol=1e-4)
        numpy.testing.assert_allclose(worker["w"], w, rtol=1e-4)
        worker.stop_worker()
        thread.join(60)
        self.assertFalse(thread.is_alive())
        self.assertIsNotNone(worker.main_program)

    def test_downpour(self):
        main, startup, loss = embedding_net("is_distributed")
        connection = millrace.Connection.in_process()

        def process(**role):
            fleet = millrace.Fleet(connection)
            fleet.init(worker_num=1, server_endpoints=["a:1"], **role)
            with self.assertRaisesRegex(TypeError, "sparse_config"):
                fleet.downpour_optimizer(sparse_config={})
            fleet.downpour_optimizer(window=2, **settings)
            with self.assertRaisesRegex(millrace.UnimplementedError, "window"):
                fleet.minimize(main, startup, loss)
            fleet.downpour_optimizer(**settings)
            fleet.minimize(main, startup, loss)
            return fleet

        settings = {"sparse_configs": {"sparse_embedx_dim": 3, "sparse_embedx_threshold": 0,
                                       "sparse_learning_rate": 0.5},
                    "dense_configs": {"dense_optimizer": "naive", "dense_naive_lr": 0.1}}
        server, worker = process(is_server=True), process(id=0)
        fleet_desc, opt_info = worker.downpour_description()
        self.assertIn("DownpourCtrAccessor", fleet_desc)
        self.assertEqual(json.loads(opt_info)["device_worker"], "DownpourSGD")
        server.init_server()
        thread = threading.Thread(target=server.run_server)
        thread.start()
        worker.init_worker(wait_for_servers=None)
        losses = millrace.train(worker.step, embedding_batches(0, 60, 0, 1), [loss])[loss]
        worker.stop_worker()
        thread.join(60)
        self.assertFalse(thread.is_alive())
        self.assertLess(sum(losses[-10:]), 0.5 * sum(losses[:10]))

    def test_ranks_of_launch(self):
        tool = os.path.join(os.path.dirname(millrace.__file__), "bin", "millrace")
        ended = subprocess.run([tool, "launch", "--nproc_per_node", "2", "--log_dir", self.at("logs"), "--", sys.executable, "-c",
                                RANK, self.folder.name], cwd=os.path.dirname(__file__), capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        _, w, b = sgd_by_numpy(batches(10), 0.1)
        for rank in range(2):
            with numpy.load(self.at(f"{rank}-of-2.npz")) as found:
                numpy.testing.assert_allclose(found["w"], w, rtol=1e-4)
                numpy.testing.assert_allclose(found["b"], b, rtol=1e-4)
        alone = millrace.Ranks()
        self.assertEqual((alone.rank, alone.size), (0, 1))
        alone.barrier()
        with self.assertRaisesRegex(millrace.UsageError, "options.rank"):
            millrace.Ranks(rank=2, endpoints=free_endpoints(2))
        with self.assertRaises(millrace.DistributedError):
            millrace.Ranks(rank=0, endpoints=free_endpoints(2), join=0.2)

    def run_hybrid(self, first, last, servers=1, folder="", **options):
        """Two workers of a hybrid job, and its servers. Returns the losses and the dense parameters of each worker."""
        main, startup, loss = embedding_net()
        connection, results = millrace.Connection.in_process(), {}

        def process(**role):
            fleet = millrace.Fleet(connection)
            fleet.init(worker_num=2, server_endpoints=[f"s{i}:1" for i in range(servers)], **role)
            fleet.distributed_optimizer(millrace.minimize_options(optimizer.SGD(), learning_rate=0.1), a_sync=False,
                                        dense_gradients="all_reduce")
            fleet.minimize(main, startup, loss)
            return fleet

        def serve(index):
            server = process(is_server=True, id=index)
            server.init_server(folder, files_root=self.folder.name)
            server.run_server()

        def work(index):
            worker = process(id=index)
            worker.init_worker(wait_for_servers=None, folder=folder, **options)
            losses = millrace.train(worker.step, embedding_batches(first, last, index, 1), [loss])[loss]
            worker.wait_for_all()
            worker.save_persistables(self.folder.name, f"after{last}", replace=True)
            results[index] = losses, worker["w"]
            worker.stop_worker()

        threads = [threading.Thread(target=serve, args=(i,)) for i in range(servers)]
        threads += [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(sorted(results), [0, 1])
        return results

    def test_a_hybrid_fleet(self):
        main, startup, loss = embedding_net()
        trained = millrace.minimize(main, startup, loss, optimizer.SGD(), learning_rate=0.1)
        scope, executor = millrace.Scope(), millrace.Executor()
        executor.run(trained.startup, scope)
        millrace.train(executor.prepare(trained.main, scope).run, embedding_batches(0, 6, 0, 2), [loss])
        whole = self.run_hybrid(0, 6)
        for _, w in whole.values():
            numpy.testing.assert_allclose(w, scope["w"], rtol=1e-5)
        self.run_hybrid(0, 3)
        later = self.run_hybrid(3, 6, servers=2, folder=self.at("after3"))
        for index, (losses, w) in later.items():
            self.assertEqual(losses, whole[index][0][3:])
            numpy.testing.assert_array_equal(w, whole[index][1])
        worker = millrace.Fleet(millrace.Connection())
        worker.init(worker_num=2, server_endpoints=["127.0.0.1:1"])
        worker.distributed_optimizer(millrace.minimize_options(optimizer.SGD(), learning_rate=0.1), a_sync=False,
                                     dense_gradients="all_reduce")
        worker.minimize(main, startup, loss)
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "cannot find each other"):
            worker.init_worker(wait_for_servers=None, join_deadline=5)
        with self.assertRaisesRegex(millrace.UnimplementedError, "options.engine mpi"):
            worker.init_worker(wait_for_servers=None, engine="mpi")

    def test_a_loop_goes_back_to_the_snapshot_of_a_killed_server(self):
        main, startup, loss = linear_net()
        expected, _, _ = sgd_by_numpy(batches(10), 0.1)
        feeds = list(batches(10))
        for kind in ("tables", "blocks"):
            endpoint = free_endpoints(1)[0]

            def start_server():
                return subprocess.Popen([sys.executable, "-c", FLEET_SERVER, endpoint, self.at(kind), kind],
                                        cwd=os.path.dirname(__file__))

            server = start_server()
            worker = fleet_process(kind, endpoint, main, startup, loss, id=0)
            worker.init_worker(wait_for_servers=60)
            losses, returns = [0.0] * 10, 0
            while worker.next_step < 10:
                step = worker.next_step
                if step == 6 and returns == 0:  # the last snapshot is of step 4, or there is none yet
                    server.kill()
                    server.wait()
                    server = start_server()
                try:
                    losses[step] = worker.step(feeds[step], [loss])[loss].item()
                except millrace.DistributedError:
                    if not worker.must_go_back:
                        raise
                    worker.go_back()
                    returns += 1
            worker.stop_worker()
            self.assertEqual(server.wait(60), 0)
            self.assertGreater(returns, 0, kind)
            numpy.testing.assert_allclose(losses, expected, rtol=1e-4)

    def test_a_fleet_whose_servers_run_the_optimizer(self):
        main, startup, loss = linear_net()
        connection = millrace.Connection.in_process()
        strategy = millrace.TranspilerStrategy.sync()
        strategy.config.slice_var_up = False

        def process(**role):
            fleet = millrace.Fleet(connection)
            fleet.init(worker_num=1, server_endpoints=["s0:1"], **role)
            fleet.distributed_optimizer(millrace.minimize_options(optimizer.SGD(), learning_rate=0.1), strategy)
            fleet.minimize(main, startup, loss)
            return fleet

        server, worker = process(is_server=True), process()
        self.assertEqual([op.type for op in server.main_program.ops], ["listen_and_serv"])
        server.init_server()
        thread = threading.Thread(target=server.run_server)
        thread.start()
        worker.init_worker(wait_for_servers=None)
        losses = millrace.train(worker.step, batches(10), [loss])[loss]
        worker.wait_for_all()
        expected, w, _ = sgd_by_numpy(batches(10), 0.1)
        numpy.testing.assert_allclose(losses, expected, rtol=1e-4)
        numpy.testing.assert_allclose(worker["w"], w, rtol=1e-4)
        worker.save_inference_model(self.folder.name, "model", ["x"], ["guess"])
        worker.stop_worker()
        thread.join(60)
        model = millrace.Session.open_model(self.at("model"))
        self.assertEqual(model.run({"x": numpy.ones((2, 3), "float32")})["guess"].shape, (2, 1))
        with self.assertRaisesRegex(TypeError, "found both"):
            worker.distributed_optimizer(millrace.minimize_options(), strategy, a_sync=False)
        settings = millrace.TranspilerStrategy.from_settings(a_sync=True, a_sync_configs={"k_steps": 3})
        self.assertEqual(settings.config.geo_sgd_need_push_nums, 3)


class FluidTest(unittest.TestCase):
    def test_a_script_for_one_device(self):
        main, startup, loss = linear_net()
        with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
            fluid.optimizer.SGD(learning_rate=0.1).minimize(loss)
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(fluid.default_startup_program())
            losses = [exe.run(main, feed=feeds, fetch_list=[loss])[0].item() for feeds in batches(10)]
            numpy.testing.assert_allclose(losses, sgd_by_numpy(batches(10), 0.1)[0], rtol=1e-4)
            with tempfile.TemporaryDirectory() as folder:
                fluid.io.save_inference_model(folder, ["x"], [main.var("guess")], exe, main)
                program, feeds, fetches = fluid.io.load_inference_model(folder, exe)
                self.assertEqual((feeds, fetches), (["x"], ["guess"]))
                self.assertEqual(exe.run(program, feed={"x": next(batches(1))["x"]}, fetch_list=fetches)[0].shape,
                                 (8, 1))
                fluid.io.save_persistables(exe, folder, main)
                fluid.io.load_persistables(exe, folder, main)

    def test_a_program_that_changes_is_compiled_again(self):
        main, startup, loss = linear_net()
        with fluid.scope_guard(fluid.Scope()):
            exe = fluid.Executor()
            exe.run(startup)
            feeds = next(batches(1))
            first = exe.run(main, feed=feeds, fetch_list=["guess"])[0]
            main.root.add_op("scale", {"X": "guess"}, {"Out": "guess"}, {"scale": 2.0}, before=main.ops[2])
            numpy.testing.assert_allclose(exe.run(main, feed=feeds, fetch_list=["guess"])[0], 2 * first, rtol=1e-6)

    def test_data_parallel(self):
        main, startup, loss = training_net()
        with fluid.scope_guard(fluid.Scope()):
            exe = fluid.Executor()
            exe.run(startup)
            compiled = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss, places=2)
            for feeds in batches(10):
                self.assertEqual(exe.run(compiled, feed=feeds, fetch_list=[loss])[0].shape, (2,))
            numpy.testing.assert_allclose(fluid.global_scope()["w"], sgd_by_numpy(batches(10), 0.1)[1], rtol=1e-4)

    def test_strategies_without_effect(self):
        main, _, loss = training_net()

        def compiled(parallel, **fields):
            made = fluid.CompiledProgram(main, build_strategy=fluid.BuildStrategy(**fields))
            return made.with_data_parallel(loss, places=2) if parallel else made

        # A field that would change results, or what is written, is refused; of one that would change speed a warning.
        exe = fluid.Executor()
        scales = fluid.BuildStrategy.GradientScaleStrategy
        for field, value in {"gradient_scale_strategy": scales.Customized, "debug_graphviz_path": "x",
                             "micro_batches": 2, "async_mode": True}.items():
            with self.assertRaisesRegex(millrace.UnimplementedError, f"build_strategy.{field}, without with_data"):
                exe.run(compiled(False, **{field: value}))
        with fluid.scope_guard(fluid.Scope()):
            exe.run(training_net()[1])
            for parallel, message in ((False, "fix_op_run_order has no effect without"), (True, "fix_op_run_order: ")):
                with self.assertWarnsRegex(UserWarning, message):
                    exe.run(compiled(parallel, fix_op_run_order=True), feed=next(batches(1)), fetch_list=[loss])

    def test_numbers_of_devices(self):
        main, startup, loss = training_net()
        for places in ([], 0, fluid.CPUPlace()):
            with self.assertRaisesRegex(millrace.InvalidArgumentError, "places: expected"):
                fluid.CompiledProgram(main).with_data_parallel(loss, places=places)
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "was called before"):
            fluid.CompiledProgram(main).with_data_parallel(loss, places=2).with_data_parallel(loss, places=3)
        with mock.patch.dict(os.environ, {"CPU_NUM": "none"}):
            for call in (lambda: fluid.CompiledProgram(main).with_data_parallel(loss),
                         lambda: fluid.ParallelExecutor(False, loss, main)):
                with self.assertRaisesRegex(millrace.InvalidArgumentError, "CPU_NUM: expected .*, found 'none'"):
                    call()
        with mock.patch.dict(os.environ, {"CPU_NUM": "3"}), fluid.scope_guard(fluid.Scope()):
            fluid.Executor().run(startup)
            parallel = fluid.ParallelExecutor(False, loss, main)
            self.assertEqual(parallel.device_count, 3)
            feeds = next(batches(1))
            with self.assertRaisesRegex(millrace.InvalidArgumentError, "feed and feed_dict"):
                parallel.run([loss], feed=feeds, feed_dict=feeds)

    def test_programs_of_a_job_and_devices(self):
        main, startup, loss = training_net()
        endpoint = free_endpoints(1)[0]
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(0, program=main, startup_program=startup, pservers=endpoint, trainers=1)
        program = transpiler.get_trainer_program(wait_port=False)
        for call in (lambda: fluid.ParallelExecutor(False, loss, program),
                     lambda: fluid.Executor().run(fluid.CompiledProgram(program).with_data_parallel(loss))):
            with self.assertRaisesRegex(millrace.UnimplementedError, "programs of distributed jobs on several devices"):
                call()
        server = transpiler.get_pserver_program(endpoint)
        transpiler.get_startup_program(endpoint, server, startup)
        for programs, message in (((program,), "pserver_program is not what"),
                                  ((server, main), "startup_program is not the one")):
            with self.assertRaisesRegex(millrace.InvalidArgumentError, message):
                transpiler.get_startup_program(endpoint, *programs)

    def test_a_distributed_script(self):
        endpoints = free_endpoints(2)
        main, startup, loss = training_net()
        errors, losses = [], {}

        def process(role, index):
            try:
                transpiler = fluid.DistributeTranspiler(fluid.DistributeTranspilerConfig(min_block_size=8192))
                transpiler.transpile(0 if role == "PSERVER" else index, program=main, startup_program=startup,
                                     pservers=",".join(endpoints), trainers=2)
                exe = fluid.Executor(fluid.CPUPlace())
                if role == "PSERVER":
                    server = transpiler.get_pserver_program(endpoints[index])
                    exe.run(transpiler.get_startup_program(endpoints[index], server))
                    exe.run(server)
                else:
                    program = transpiler.get_trainer_program()
                    exe.run(transpiler.get_trainer_startup_program())
                    losses[index] = [exe.run(program, feed=feeds, fetch_list=[loss])[0].item()
                                     for feeds in batches(10)]
                    exe.close()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=process, args=(role, index)) for role in ("PSERVER", "TRAINER")
                   for index in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(errors, [])
        numpy.testing.assert_allclose(losses[0], sgd_by_numpy(batches(10), 0.1)[0], rtol=1e-4)

    def run_fleet(self, strategy, folder, steps=10, model_dir=None, workers=2, kind=fluid.FleetTranspiler):
        """A job of two servers, each process with the calls of the original. Returns the losses of worker 0."""
        connection = millrace.Connection.in_process()
        errors, losses = [], []
        guard = threading.Lock()  # the default programs are those of the process

        def process(role, index):
            try:
                fleet = kind(connection, server={}, worker={"wait_for_servers": None})
                fleet.init(fluid.UserDefinedRoleMaker(index, role, workers, ["s0:1", "s1:1"]))
                main, startup, loss = linear_net()
                with guard, fluid.program_guard(main, startup):
                    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy()).minimize(loss)
                exe = fluid.Executor(fluid.CPUPlace())
                self.assertEqual(exe.run(fleet.startup_program), [])
                if fleet.is_server():
                    fleet.init_server(model_dir)
                    exe.run(fleet.main_program)
                    return
                fleet.init_worker()
                for feeds in batches(steps):
                    value, = exe.run(fleet.main_program, feed=feeds, fetch_list=[loss])
                    if fleet.is_first_worker():
                        losses.append(value.item())
                with self.assertRaises(millrace.UnimplementedError) as refused:
                    fluid.io.save_persistables(exe, folder, fleet.main_program)
                self.assertIn("fleet.save_persistables", refused.exception.hint)
                with self.assertRaisesRegex(TypeError, "expected an Executor"):
                    fleet.save_persistables(fluid.ParallelExecutor, folder)
                fleet.save_persistables(exe, os.path.join(folder, "vars"))
                fleet.save_inference_model(exe, os.path.join(folder, "model"), ["x"], ["guess"])
                fleet.stop_worker()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=process, args=role)
                   for role in [(fluid.Role.SERVER, 0), (fluid.Role.SERVER, 1)] +
                   [(fluid.Role.WORKER, index) for index in range(workers)]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(errors, [])
        return losses

    def test_a_script_of_the_first_fleet(self):
        expected = sgd_by_numpy(batches(10), 0.1)
        for kind, strategy in ((fluid.FleetTranspiler, fluid.StrategyFactory.create_sync_strategy),
                               (fluid.DistributedTranspiler, fluid.DistributeTranspilerConfig)):
            with tempfile.TemporaryDirectory() as folder:
                losses = self.run_fleet(strategy, folder, kind=kind)
                numpy.testing.assert_allclose(losses, expected[0], rtol=1e-4)
                scope = millrace.Scope()
                main = linear_net()[0]
                millrace.io.load_persistables(main, scope, os.path.join(folder, "vars"))
                numpy.testing.assert_allclose(scope["w"], expected[1], rtol=1e-4)
                again = self.run_fleet(strategy, folder, model_dir=os.path.join(folder, "vars"), kind=kind)
                self.assertLess(again[0], losses[1])
                feeds = next(batches(1))
                model = millrace.Session.open_model(os.path.join(folder, "model"))
                self.assertEqual(model.run({"x": feeds["x"]})["guess"].shape, (8, 1))

    def test_modes_of_the_first_fleet(self):
        def geo():
            strategy = fluid.StrategyFactory.create_geo_strategy(2)
            strategy.set_program_config({"min_block_size": 8192})
            strategy.set_trainer_runtime_config({"communicator_send_wait_times": 1})
            strategy.set_server_runtime_config({"rpc_send_thread_num": 2})
            return strategy

        def asynchronous():
            strategy = fluid.StrategyFactory.create_async_strategy()  # steps this short would be merged
            strategy.set_trainer_runtime_config({"communicator_max_merge_var_num": 1, "communicator_send_queue_size": 1,
                                                 "communicator_independent_recv_thread": 0})
            self.assertEqual(strategy.get_trainer_runtime_config()["communicator_send_queue_size"], "1")
            return strategy

        for strategy in (asynchronous, fluid.StrategyFactory.create_half_async_strategy, geo,
                         lambda: fluid.DistributeTranspilerConfig(sync_mode=False)):
            with self.subTest(strategy), tempfile.TemporaryDirectory() as folder:
                losses = self.run_fleet(strategy, folder, steps=40)
                self.assertLess(losses[-1], losses[0])

    def test_the_first_fleet_says_what_is_wrong(self):
        fleet = fluid.FleetTranspiler(millrace.Connection.in_process())
        sgd = fluid.optimizer.SGD(0.1)
        with self.assertRaisesRegex(millrace.InvalidArgumentError, r"call init\(\) first"):
            fleet.distributed_optimizer(sgd)
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "mpirun"):
            fleet.init()
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "Role.WORKER"):
            fluid.UserDefinedRoleMaker(0, 3, 1, ["a:1"])
        fleet.init(fluid.UserDefinedRoleMaker(1, fluid.Role.WORKER, 2, ["a:1", "b:1"]))
        self.assertEqual((fleet.worker_index(), fleet.worker_num(), fleet.server_num()), (1, 2, 2))
        self.assertEqual(fleet.server_endpoints(to_string=True), "a:1,b:1")
        self.assertEqual(fleet.split_files(["x", "y", "z"]), ["z"])
        for strategy in ({}, 3):
            with self.assertRaisesRegex(TypeError, "StrategyFactory"):
                fleet.distributed_optimizer(sgd, strategy)
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "optimizer"):
            fleet.distributed_optimizer("sgd")
        with self.assertRaisesRegex(millrace.UnimplementedError, "several losses"):
            fleet.distributed_optimizer(sgd).minimize(["a", "b"])
        with self.assertRaisesRegex(millrace.UnimplementedError, "backward"):
            fleet.distributed_optimizer(sgd).backward("a")
        for call in (fleet.init_server, fleet.run_server, fleet.init_worker, fleet.stop_worker):
            with self.assertRaises(millrace.InvalidArgumentError):
                call()
        with self.assertRaises(millrace.InvalidArgumentError):
            fleet.server_index()
        with self.assertRaisesRegex(millrace.UnimplementedError, "set_build_strategy"):
            fluid.StrategyFactory.create_sync_strategy().set_build_strategy({})
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "rpc_send_thread_num"):
            fluid.StrategyFactory.create_sync_strategy().set_server_runtime_config({"x": 1})

    def test_what_is_not_there_says_so(self):
        with self.assertRaises(millrace.UnimplementedError):
            fluid.ParallelExecutor(True)
        with self.assertRaises(millrace.UnimplementedError):
            fluid.DatasetFactory().create_dataset("BoxPSDataset")
        main, _, _ = training_net()
        with self.assertRaisesRegex(millrace.UnimplementedError, "feed_var_name='other'"):
            fluid.Executor().run(main, feed_var_name="other")
        with self.assertRaisesRegex(millrace.UnimplementedError, "export_for_deployment=False"):
            fluid.io.save_inference_model("never", ["x"], ["guess"], fluid.Executor(), main,
                                          export_for_deployment=False)
        with self.assertRaises(millrace.InvalidArgumentError):
            fluid.DistributeTranspiler().get_trainer_program()

    def test_modes_of_transpile(self):
        main, startup, _ = training_net()
        config = fluid.DistributeTranspilerConfig(sync_mode=False, wait_port=False)
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "sync_mode"):
            fluid.DistributeTranspiler(config).transpile(0, main, "s0:1", 1, True, startup)
        transpiler = fluid.DistributeTranspiler(fluid.DistributeTranspilerConfig(wait_port=False))
        jobs = []
        for sync_mode in (True, False):
            transpiler.transpile(0, main, "s0:1", 1, sync_mode, startup)
            program = transpiler.get_trainer_program()
            self.assertEqual("send_barrier" in [op.type for op in program.ops], sync_mode)
            jobs.append(program._role.job.path)
            written = millrace.Program.read(os.path.join(jobs[-1], "trainer_0", "__model__"))
            self.assertEqual(written.diff(program), [])
        self.assertNotEqual(*jobs)


if __name__ == "__main__":
    unittest.main()
