"""Training and inference from files, compared with steps that are fed by hand and with run-program."""

import contextlib
import gzip
import io
import json
import os
import subprocess
import tempfile
import threading
import unittest
import warnings

import numpy

import millrace
import millrace.fluid as fluid
from nets import batches, free_endpoints, linear_net, sgd_by_numpy


def training_net():
    main, startup, loss = linear_net()
    result = millrace.minimize(main, startup, loss, millrace.optimizer.SGD(), learning_rate=0.1)
    return result.main, result.startup, loss


def lines(given):
    """MultiSlot text with the numbers of some feeds."""
    return "".join(f"3 {' '.join(repr(float(v)) for v in x)} 1 {float(t[0])!r}\n"
                   for feeds in given for x, t in zip(feeds["x"], feeds["t"]))


class DatasetTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.part = os.path.join(self.folder, "part-0")
        with open(self.part, "w", encoding="ascii") as file:
            file.write(lines(batches(10)))
        self.main, self.startup, self.loss = training_net()
        self.scope, self.executor = millrace.Scope(), millrace.Executor()
        self.executor.run(self.startup, self.scope)

    def dataset(self, **options):
        return millrace.Dataset(self.main, **{"files": [self.part], "use_vars": ["x", "t"], "batch_size": 8, **options})


class TrainingTest(DatasetTest):
    def test_a_queue_trains_as_fed_steps(self):
        losses = []
        epoch = self.executor.prepare(self.main, self.scope).train_from_dataset(
            self.dataset(), [self.loss], print_period=1,
            on_print=lambda batch, examples, fetches, text: losses.append(fetches[self.loss].item()))
        expected, w, _ = sgd_by_numpy(batches(10), 0.1)
        numpy.testing.assert_allclose(losses, expected, rtol=1e-4)
        numpy.testing.assert_allclose(self.scope["w"], w, rtol=1e-4)
        self.assertEqual((epoch.batches, epoch.examples, epoch.left_out), (10, 80, 0))
        self.assertAlmostEqual(epoch.means[self.loss], sum(losses) / 10, places=5)
        self.assertEqual(epoch.last[self.loss].item(), losses[-1])
        page = epoch._replace(means={"a<b": 0.25}, seconds=1.5)._repr_html_()
        self.assertIn("<tr><th>batches</th><td>10</td></tr><tr><th>examples</th><td>80</td></tr>", page)
        self.assertIn("<tr><th>seconds</th><td>1.500</td></tr>", page)
        self.assertIn("<tr><th>mean of a&lt;b</th><td>0.25</td></tr>", page)

    def test_memory_equals_run_program(self):
        files = {name: os.path.join(self.folder, name) for name in ("main.pb", "startup.pb", "slots.json", "out.npz")}
        self.main.write(files["main.pb"])
        self.startup.write(files["startup.pb"])
        with open(files["slots.json"], "w", encoding="ascii") as file:
            json.dump(["x", "t"], file)
        tool = os.path.join(os.path.dirname(millrace.__file__), "bin", "millrace")
        subprocess.run([tool, "run-program", "--program", files["main.pb"],
                        "--startup", files["startup.pb"], "--files", self.part, "--slots", files["slots.json"],
                        "--dataset", "memory", "--batch-size", "8", "--epochs", "3", "--seed", "5", "--fetch",
                        self.loss, "--progress", "never", "--save-persistables", files["out.npz"]],
                       check=True, capture_output=True)
        data = self.dataset(in_memory=True, seed=5)
        data.preload()
        data.wait_preload()
        for _ in range(3):
            data.local_shuffle()
            self.executor.train_from_dataset(self.main, self.scope, data)
        self.assertEqual(data.examples_in_memory, 80)
        saved = numpy.load(files["out.npz"])
        for name in ("w", "b"):
            numpy.testing.assert_array_equal(self.scope[name], saved[name])

    def test_delimited_text_and_gzip(self):
        path = os.path.join(self.folder, "table.csv.gz")
        with gzip.open(path, "wt", encoding="ascii") as file:
            for feeds in batches(10):
                for x, t in zip(feeds["x"], feeds["t"]):
                    file.write(",".join(repr(float(v)) for v in [*x, *t]) + "\n")
        data = millrace.Dataset(self.main, files=[path], batch_size=8, slots={
            "format": "delimited", "separator": ",",
            "slots": [{"name": "x", "columns": "0:2"}, {"name": "t", "columns": 3}]})
        self.assertEqual(data.fed_vars, ["x", "t"])
        self.executor.train_from_dataset(self.main, self.scope, data)
        numpy.testing.assert_allclose(self.scope["w"], sgd_by_numpy(batches(10), 0.1)[1], rtol=1e-4)

    def test_inference_changes_nothing(self):
        main, _, loss = linear_net()
        before = self.scope["w"]
        epoch = self.executor.infer_from_dataset(main, self.scope, self.dataset(), [loss, "guess"])
        numpy.testing.assert_array_equal(self.scope["w"], before)
        self.assertEqual(list(epoch.means), [loss])
        self.assertEqual(epoch.last["guess"].shape, (8, 1))
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "updates '[wb]'"):
            self.executor.infer_from_dataset(self.main, self.scope, self.dataset())

    def test_several_devices(self):
        parallel = millrace.ParallelExecutor(self.main, self.scope, devices=2, loss_name=self.loss)
        self.assertEqual(parallel.train_from_dataset(self.dataset(), [self.loss]).batches, 10)
        numpy.testing.assert_allclose(self.scope["w"], sgd_by_numpy(batches(10), 0.1)[1], rtol=1e-4)

    def test_a_trainer_and_its_servers(self):
        folder = os.path.join(self.folder, "job")
        millrace.transpile(self.main, self.startup, folder, trainers=1, pservers="a:1")
        connection = millrace.Connection.in_process()
        server = millrace.ParameterServer(millrace.server_files(folder, 0), connection).start()
        trainer = millrace.Trainer(millrace.trainer_files(folder, 0), connection, trainer=0)
        trainer.train_from_dataset(self.dataset(), [self.loss])
        self.assertEqual(trainer.next_step, 10)
        numpy.testing.assert_allclose(trainer.finish(gather=True)["w"], sgd_by_numpy(batches(10), 0.1)[1], rtol=1e-4)
        server.join(60)

    def test_workers_of_a_trainer(self):
        folder, batches_done = os.path.join(self.folder, "job"), []
        millrace.transpile(self.main, self.startup, folder, trainers=1, pservers="a:1", sync_mode=False)
        connection = millrace.Connection.in_process()
        server = millrace.ParameterServer(millrace.server_files(folder, 0), connection).start()
        trainer = millrace.Trainer(millrace.trainer_files(folder, 0), connection, trainer=0, workers=2)
        for _ in range(2):
            epoch = trainer.train_from_dataset(self.dataset(), [self.loss], print_period=1,
                                               on_print=lambda batch, *rest: batches_done.append(batch))
            self.assertEqual(epoch.examples, 80)
        self.assertEqual(batches_done, 2 * list(range(1, 11)))

        def refuse(*step):
            raise KeyError(trainer.next_step)

        with self.assertRaisesRegex(KeyError, "20"):
            trainer.train_from_dataset(self.dataset(), print_period=1, on_print=refuse)
        trainer.finish()
        server.join(60)

    def test_callbacks(self):
        data, seen = self.dataset(), []

        def on_print(batch, examples, fetches, text):
            seen.append((batch, examples, text, float(self.scope["w"][0, 0])))
            with self.assertRaisesRegex(millrace.InvalidArgumentError, "another call of the data set is running"):
                data.set_files([self.part])
            if batch == 6:
                raise KeyError("enough")

        with self.assertRaisesRegex(KeyError, "enough"):
            self.executor.train_from_dataset(self.main, self.scope, data, [self.loss], on_print=on_print,
                                             print_period=3)
        self.assertEqual([(batch, examples) for batch, examples, _, _ in seen], [(3, 8), (6, 8)])
        self.assertRegex(seen[0][2], "^step 3: loss = [0-9.]+$")
        self.assertNotEqual(seen[0][3], seen[1][3])
        data.set_files([self.part])

    def test_errors(self):
        with self.assertRaisesRegex(TypeError, "no option 'batch'"):
            self.dataset(batch=3)
        with self.assertRaisesRegex(millrace.NotFoundError, "no file matches"):
            self.dataset(files=[os.path.join(self.folder, "none-*")])
        with self.assertRaisesRegex(millrace.Error, "would run the pipe_command 'awk 1'"):
            self.dataset(use_vars=[], slots={"slots": ["x"], "pipe_command": "awk 1"})
        with self.assertRaisesRegex(millrace.UnimplementedError, "not in memory"):
            self.dataset().load_into_memory()
        with self.assertRaisesRegex(millrace.UnimplementedError, "exchange of examples between 2 trainers"):
            self.dataset(in_memory=True).global_shuffle(2)
        with open(self.part, "a", encoding="ascii") as file:
            file.write("3 1 2\n")
        with self.assertRaisesRegex(millrace.InvalidDataError, "line 81: slot 'x'") as raised:
            self.executor.train_from_dataset(self.main, self.scope, self.dataset())
        self.assertEqual(raised.exception.location["file"], self.part)

    def test_commands(self):
        expected, w, _ = sgd_by_numpy(batches(10), 0.1)
        slots = {"slots": ["x", "t"], "pipe_command": "tail -n +2 | head -n -1"}
        with open(self.part, encoding="ascii") as file:
            lines = file.read()
        with open(self.part, "w", encoding="ascii") as file:
            file.write("a line\n" + lines + "another\n")
        self.executor.train_from_dataset(self.main, self.scope, self.dataset(
            use_vars=[], slots=slots, allow_pipe_command=True))
        numpy.testing.assert_allclose(self.scope["w"], w, rtol=1e-4)
        self.executor.run(self.startup, self.scope)
        self.executor.train_from_dataset(self.main, self.scope, self.dataset(pipe_command=slots["pipe_command"]))
        numpy.testing.assert_allclose(self.scope["w"], w, rtol=1e-4)
        for options, text in (({"pipe_command": "echo bad >&2; exit 3"}, "ended with status 3: bad"),
                              ({"allow_pipe_command": True}, "no effect"),
                              ({"use_vars": [], "slots": slots, "pipe_command": "awk 1"}, "has another one")):
            with self.assertRaisesRegex(millrace.Error, text):
                self.executor.train_from_dataset(self.main, self.scope, self.dataset(**options))

    def test_threads(self):
        epoch = self.executor.train_from_dataset(self.main, self.scope, self.dataset(batch_size=1), [self.loss],
                                                 threads=4)
        self.assertEqual((epoch.batches, epoch.examples), (80, 80))
        self.assertLess(epoch.means[self.loss], 10)
        seen = []
        self.executor.prepare(self.main, self.scope).train_from_dataset(
            self.dataset(), [self.loss], threads=2, print_period=2,
            on_print=lambda batch, *_: seen.append((batch, self.scope["w"].shape)))
        self.assertEqual([batch for batch, _ in seen], [2, 4, 6, 8, 10])
        with self.assertRaisesRegex(millrace.UnimplementedError, "options.threads 2"):
            millrace.ParallelExecutor(self.main, self.scope, devices=2, loss_name=self.loss).train_from_dataset(
                self.dataset(), threads=2)

    def test_shares_that_change(self):
        def examples(part):
            forward, _, _ = linear_net()
            seen = []
            self.executor.infer_from_dataset(forward, self.scope, part, ["x"], print_period=1,
                                             on_print=lambda batch, n, fetches, text: seen.append(fetches["x"].copy()))
            return sorted(map(tuple, numpy.concatenate(seen).tolist()))

        options = {"in_memory": True, "divide": "examples", "trainers": 2, "reshuffle_epochs": True}
        parts = [self.dataset(trainer=trainer, **options) for trainer in (0, 1)]
        everything = examples(self.dataset())
        before = None
        for part in parts:
            part.load_into_memory()
        for _ in range(3):
            for part in parts:
                part.global_shuffle(2)
            shares = [examples(part) for part in parts]
            self.assertEqual(sorted(shares[0] + shares[1]), everything)
            self.assertNotEqual(shares[0], before)
            before = shares[0]
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "expected options.in_memory and options.divide"):
            self.dataset(reshuffle_epochs=True)

    def test_shares_of_trainers(self):
        parts = [self.dataset(in_memory=True, divide="examples", trainer=trainer, trainers=2) for trainer in (0, 1)]
        for part in parts:
            part.load_into_memory()
            part.global_shuffle(2)
        self.assertEqual([part.examples_in_memory for part in parts], [40, 40])
        parts[0].release_memory()
        self.assertEqual(parts[0].examples_in_memory, 0)


class ExchangeTest(DatasetTest):
    def test_ranks_exchange_the_examples_of_their_files(self):
        endpoints, shares = free_endpoints(2), {}

        def rank(number):
            path = os.path.join(self.folder, f"own-{number}")
            with open(path, "w", encoding="ascii") as file:
                for row in range(9 + 4 * number):
                    file.write(f"3 {number} {row} 0 1 0\n")
            ranks = millrace.Ranks(rank=number, endpoints=endpoints, engine="shm")
            data = self.dataset(files=[path], in_memory=True, seed=3)
            data.load_into_memory()
            data.global_shuffle(ranks=ranks)
            shares[number] = data.examples_in_memory
            ranks.barrier()

        threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(shares, {0: 11, 1: 11})

    def test_one_process_shuffles_its_own(self):
        data = self.dataset(in_memory=True)
        data.load_into_memory()
        data.global_shuffle(ranks=millrace.Ranks())
        self.assertEqual(data.examples_in_memory, 80)
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "one of trainers and ranks"):
            data.global_shuffle(2, ranks=millrace.Ranks())


class FluidTest(DatasetTest):
    def make(self, name):
        dataset = fluid.DatasetFactory().create_dataset(name)
        dataset.set_batch_size(8)
        dataset.set_filelist([self.part])
        dataset.set_pipe_command("cat")
        dataset.set_use_var([self.main.var("x"), self.main.var("t")])
        return dataset

    def test_a_queue_dataset(self):
        dataset = self.make("QueueDataset")
        exe, shown = fluid.Executor(fluid.CPUPlace()), io.StringIO()
        with fluid.scope_guard(fluid.Scope()), contextlib.redirect_stdout(shown):
            exe.run(self.startup)
            exe.train_from_dataset(self.main, dataset, fetch_list=[self.loss], fetch_info=["the loss"],
                                   print_period=5)
            w = fluid.global_scope()["w"]
        expected, values, _ = sgd_by_numpy(batches(10), 0.1)
        numpy.testing.assert_allclose(w, values, rtol=1e-4)
        texts = [line.rpartition(" ") for line in shown.getvalue().splitlines()]
        self.assertEqual([text[0] for text in texts], ["batch 5: the loss =", "batch 10: the loss ="])
        numpy.testing.assert_allclose([float(text[2]) for text in texts], [expected[4], expected[9]], rtol=1e-4)

    def test_a_data_set_in_memory(self):
        dataset = self.make("InMemoryDataset")
        dataset.load_into_memory()
        self.assertEqual(dataset.get_memory_data_size(), 80)
        dataset.local_shuffle()
        dataset.global_shuffle()
        self.assertEqual(dataset.get_shuffle_data_size(), 80)
        forward, _, loss = linear_net()
        with fluid.scope_guard(self.scope), fluid.program_guard(self.main, self.startup):
            dataset.set_use_var(["x", "t"])  # names in the default program; the examples are loaded again
            dataset.preload_into_memory(2)
            dataset.wait_preload_done()
            epoch = fluid.Executor().infer_from_dataset(forward, dataset, thread=1, fetch_list=[loss])
            self.assertEqual(epoch.examples, 80)
            with self.assertRaisesRegex(millrace.InvalidArgumentError, "updates '[wb]'"):
                fluid.Executor().infer_from_dataset(dataset=dataset, thread=1)
        dataset.release_memory()
        self.assertEqual(dataset.get_memory_data_size(), 0)

    def test_commands_and_threads(self):
        dataset = self.make("QueueDataset")
        dataset.set_pipe_command("head -n 40")
        dataset.set_thread(3)
        with fluid.scope_guard(self.scope):
            for thread in (0, 2):
                epoch = fluid.Executor().train_from_dataset(self.main, dataset, thread=thread, fetch_list=[self.loss],
                                                            print_period=100)
                self.assertEqual(epoch.examples, 40)
            compiled = fluid.CompiledProgram(self.main).with_data_parallel(self.loss, places=2)
            with self.assertRaisesRegex(millrace.UnimplementedError, "options.threads 2"):
                fluid.Executor().train_from_dataset(compiled, dataset, thread=2)

    def test_compiled_programs(self):
        compiled = fluid.CompiledProgram(self.main).with_data_parallel(self.loss, places=2)
        with fluid.scope_guard(self.scope):
            fluid.Executor().train_from_dataset(compiled, self.make("QueueDataset"))
        numpy.testing.assert_allclose(self.scope["w"], sgd_by_numpy(batches(10), 0.1)[1], rtol=1e-4)

    def test_compiled_programs_run_on_processors(self):
        compiled = fluid.CompiledProgram(self.main)
        with self.assertRaisesRegex(millrace.UnimplementedError, "places other than CPUPlace"):
            compiled.with_data_parallel(self.loss, places=[fluid.CUDAPlace(0)])
        compiled.with_data_parallel(self.loss, places=[fluid.CPUPlace()] * 2)
        place = fluid.CPUPlace()
        place.device = "gpu:emulated"
        with self.assertRaisesRegex(millrace.UnimplementedError, "on 'gpu:emulated' with CompiledProgram"):
            fluid.Executor(place).run(compiled)

    def test_a_distributed_script(self):
        endpoint, = free_endpoints(1)
        transpiler = fluid.DistributeTranspiler(fluid.DistributeTranspilerConfig(wait_port=False))
        transpiler.transpile(0, program=self.main, startup_program=self.startup, pservers=endpoint, trainers=1)
        server = transpiler.get_pserver_program(endpoint)
        thread = threading.Thread(target=lambda: fluid.Executor().run(server))
        thread.start()
        exe = fluid.Executor()
        exe.run(transpiler.get_trainer_startup_program())
        program = transpiler.get_trainer_program()
        exe.train_from_dataset(program, self.make("QueueDataset"), fetch_list=[self.loss])
        with self.assertRaisesRegex(millrace.UnimplementedError, "infer_from_dataset of a trainer"):
            exe.infer_from_dataset(program, self.make("QueueDataset"))
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "this program has no steps"):
            exe.train_from_dataset(server, self.make("QueueDataset"))
        values = exe.close(gather=True)
        thread.join(60)
        numpy.testing.assert_allclose(values["w"], sgd_by_numpy(batches(10), 0.1)[1], rtol=1e-4)

    def test_what_is_not_there_says_so(self):
        exe = fluid.Executor()
        queue, memory = self.make("QueueDataset"), self.make("InMemoryDataset")
        for call in (queue.local_shuffle, queue.global_shuffle, lambda: queue.set_input_type(1), lambda: queue.set_hdfs_config("", ""),
                     lambda: memory.slots_shuffle(["x"]), lambda: memory.set_merge_by_lineid(2),
                     lambda: memory.set_parse_ins_id(True), lambda: memory.set_feed_type("PaddleBoxDataFeed"),
                     lambda: fluid.DatasetFactory().create_dataset("BoxPSDataset"),
                     lambda: exe.train_from_dataset(self.main, queue, debug=True),
                     lambda: exe.train_from_dataset(self.main, queue, fetch_handler=object())):
            with self.assertRaises(millrace.UnimplementedError):
                call()
        for call in (lambda: fluid.DatasetFactory().create_dataset("Dataset"), lambda: queue.set_batch_size(0),
                     lambda: queue.set_thread(0), lambda: exe.train_from_dataset(self.main),
                     lambda: exe.train_from_dataset(self.main, queue, fetch_list=[self.loss], fetch_info=["a", "b"]),
                     lambda: exe.train_from_dataset(millrace.Program(), queue)):
            with self.assertRaises(millrace.InvalidArgumentError):
                call()

    def test_calls_that_change_nothing(self):
        memory = self.make("InMemoryDataset")
        memory.set_parse_ins_id(False)
        memory.set_parse_content(parse_content=False)
        for call, said in ((lambda: memory.set_queue_num(2), "set_queue_num.. has no effect: examples in memory have no"),
                           (lambda: memory.set_fleet_send_batch_size(9), "set_fleet_send_batch_size.. has no effect"),
                           (lambda: memory.set_fleet_send_sleep_seconds(1), "an exchange does not pause")):
            with self.assertWarnsRegex(UserWarning, said):
                call()

    def test_threads_that_only_read_are_reported(self):
        dataset = self.make("QueueDataset")
        dataset.set_thread(2)
        with fluid.scope_guard(self.scope), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compiled = fluid.CompiledProgram(self.main).with_data_parallel(self.loss, places=2)
            fluid.Executor().train_from_dataset(compiled, dataset)
        self.assertRegex(str(caught[0].message), "one thread runs the steps")


if __name__ == "__main__":
    unittest.main()
