"""Training from Arrow streams and Parquet files, compared with MultiSlot text of the same examples.

Tests with tables need pyarrow, and are skipped without it."""

import os
import sys
import tempfile
import threading
import unittest
from unittest import mock

import numpy

import millrace
import millrace.fluid as fluid
from nets import batches, linear_net, sgd_by_numpy

try:
    import pyarrow
    from pyarrow import parquet
except ImportError:
    pyarrow = None


def training_net():
    main, startup, loss = linear_net()
    result = millrace.minimize(main, startup, loss, millrace.optimizer.SGD(), learning_rate=0.1)
    return result.main, result.startup, loss


class Counted:
    """A table that counts the passes over it."""

    def __init__(self, table):
        self.table, self.passes = table, 0

    def __arrow_c_stream__(self, requested_schema=None):
        self.passes += 1
        return self.table.__arrow_c_stream__(requested_schema)


class WithoutPyarrowTest(unittest.TestCase):
    def setUp(self):
        self.main, _, _ = linear_net()

    def test_parquet_needs_pyarrow(self):
        with mock.patch.dict(sys.modules, {"pyarrow": None, "pyarrow.parquet": None}):
            with self.assertRaisesRegex(millrace.UnimplementedError, "without the package pyarrow"):
                millrace.Dataset(self.main, files=["x.parquet"], use_vars=["x", "t"])

    def test_what_is_no_stream(self):
        with self.assertRaisesRegex(TypeError, r"arrow\[0\]: expected an object with __arrow_c_stream__.*found int"):
            millrace.Dataset(self.main, arrow=[3], use_vars=["x", "t"])
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "'a.parquet' is a Parquet file, 'b.txt' is not"):
            millrace.Dataset(self.main, files=["a.parquet", "b.txt"], use_vars=["x", "t"])

        with self.assertRaisesRegex(millrace.InvalidArgumentError, "one of options.files and options.arrow"):
            millrace.Dataset(self.main, files=["a.parquet"], arrow=lambda: None, use_vars=["x", "t"])

        class Wrong:
            def __arrow_c_stream__(self, requested_schema=None):
                raise KeyError("the table is gone")

        class NoCapsule:
            def __arrow_c_stream__(self, requested_schema=None):
                return 7

        for wrong, said in (Wrong(), "the table is gone"), (NoCapsule(), "PyCapsule"):
            data = millrace.Dataset(self.main, arrow={"mine": wrong}, use_vars=["x", "t"], in_memory=True)
            with self.assertRaisesRegex(millrace.InvalidDataError, said) as caught:
                data.load_into_memory()
            self.assertEqual(caught.exception.location, {"file": "mine"})


@unittest.skipIf(pyarrow is None, "pyarrow is not installed")
class ArrowTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.main, self.startup, self.loss = training_net()
        self.scope, self.executor = millrace.Scope(), millrace.Executor()
        self.executor.run(self.startup, self.scope)
        given = list(batches(10))
        self.x = numpy.concatenate([feeds["x"] for feeds in given])
        self.t = numpy.concatenate([feeds["t"] for feeds in given])[:, 0]
        self.table = pyarrow.table({"x": pyarrow.FixedSizeListArray.from_arrays(self.x.ravel(), 3), "t": self.t,
                                    "unused": ["text"] * len(self.t)})
        self.w = sgd_by_numpy(given, 0.1)[1]

    def path(self, name, begin=0, end=None):
        path = os.path.join(self.folder, name)
        parquet.write_table(self.table.slice(begin, end), path, row_group_size=7)
        return path

    def train(self, **options):
        data = millrace.Dataset(self.main, **{"use_vars": ["x", "t"], "batch_size": 8, **options})
        epoch = self.executor.train_from_dataset(self.main, self.scope, data, [self.loss])
        self.assertEqual((epoch.batches, epoch.examples), (10, 80))
        numpy.testing.assert_allclose(self.scope["w"], self.w, rtol=1e-4)
        return data

    def test_a_table(self):
        counted = Counted(self.table.slice(0))
        data = self.train(arrow=counted)
        self.assertEqual(counted.passes, 1)
        self.executor.train_from_dataset(self.main, self.scope, data)
        self.assertEqual(counted.passes, 2)

    def test_slices_and_chunks(self):
        self.train(arrow={"first": self.table.slice(0, 33).combine_chunks(),
                          "second": pyarrow.concat_tables([self.table.slice(33, 10), self.table.slice(43)])})

    def test_parquet(self):
        self.train(files=[self.path("all.parquet")])

    def test_parquet_by_pattern_with_reader_threads(self):
        for part in range(10):
            self.path(f"part-{part}.parquet", 8 * part, 8)
        self.train(files=[os.path.join(self.folder, "part-*.parquet")], reader_threads=4)

    def test_fluid(self):
        dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
        dataset.set_batch_size(8)
        dataset.set_use_var([self.main.var("x"), self.main.var("t")])
        dataset.set_filelist([self.path("all.parquet")])
        dataset.load_into_memory()
        self.assertEqual(dataset.get_memory_data_size(), 80)
        dataset.set_filelist([self.path("few.parquet", 0, 5)])
        dataset.load_into_memory()
        self.assertEqual(dataset.get_memory_data_size(), 5)

    def test_a_function_gives_a_reader_for_every_pass(self):
        data = self.train(arrow=lambda: pyarrow.RecordBatchReader.from_batches(self.table.schema,
                                                                               self.table.to_batches(9)))
        self.assertEqual(self.executor.train_from_dataset(self.main, self.scope, data).examples, 80)

    def test_a_reader_can_be_read_once(self):
        data = self.train(arrow=pyarrow.RecordBatchReader.from_batches(self.table.schema, self.table.to_batches()))
        with self.assertRaisesRegex(millrace.InvalidDataError, "released|expected 80 rows as in the first pass|stream"):
            self.executor.train_from_dataset(self.main, self.scope, data)

    def test_ids_of_all_kinds(self):
        ids = {"plain": pyarrow.array([5, 6], "uint64"), "text": pyarrow.array(["a", None]),
               "large": pyarrow.array(["a", "b"], pyarrow.large_string()),
               "view": pyarrow.array(["a", "a text of more than twelve bytes"], pyarrow.string_view()),
               "words": pyarrow.array(["a", "b"]).dictionary_encode(),
               "list": pyarrow.array([[1, 2], None], pyarrow.list_(pyarrow.int64())),
               "time": pyarrow.array([1, 2], pyarrow.timestamp("us", "UTC")), "bool": [True, False]}
        main = millrace.Program()
        for name in ids:
            main.root.add_var(name, "i64", (-1, 1), lod_level=1)
            main.root.add_var(name + "_out", "i64", (-1, 1), lod_level=1)
            main.root.add_op("assign", {"X": name}, {"Out": name + "_out"})
        hashed = {"function": "crc32", "buckets": 1000}
        data = millrace.Dataset(main, arrow=pyarrow.table(ids), slots={"format": "arrow", "slots": [
            {"name": name, "default": 77, **({"hash": hashed} if name in ("text", "large", "view", "words") else {})}
            for name in ids]})
        last = self.executor.infer_from_dataset(main, millrace.Scope(), data, [name + "_out" for name in ids]).last
        values = {name: last[name + "_out"].ravel().tolist() for name in ids}
        import zlib
        a, b = (zlib.crc32(text) % 1000 for text in (b"a", b"b"))
        self.assertEqual(values, {"plain": [5, 6], "text": [a, 77], "large": [a, b],
                                  "view": [a, zlib.crc32(b"a text of more than twelve bytes") % 1000],
                                  "words": [a, b], "list": [1, 2, 77], "time": [1, 2], "bool": [1, 0]})

    def test_errors_name_the_column(self):
        bad = pyarrow.table({"x": [[0.0, 1.0, 2.0], [0.0, 1.0]], "t": [0.0, 1.0]})
        for table, said in ((bad, "row 1: slot 'x': expected 3 values, found 2"),
                            (bad.drop(["t"]), "slot 't': the stream has no column 't'"),
                            (pyarrow.table({"x": [[0.0, 1.0, 2.0]] * 2, "t": [0.5, None]}),
                             "row 1: slot 't', column 't'.*missing")):
            data = millrace.Dataset(self.main, arrow=table, use_vars=["x", "t"], in_memory=True)
            with self.assertRaisesRegex(millrace.InvalidDataError, said):
                data.load_into_memory()
        with self.assertRaises(millrace.NotFoundError):
            millrace.Dataset(self.main, files=[os.path.join(self.folder, "*.parquet")], use_vars=["x", "t"])
        path = self.path("twice.parquet")
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "are the same file"):
            millrace.Dataset(self.main, files=[path, path], use_vars=["x", "t"])

    def test_a_damaged_file(self):
        path = self.path("damaged.parquet")
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) // 2)
        data = millrace.Dataset(self.main, files=[path], use_vars=["x", "t"], in_memory=True)
        with self.assertRaises(millrace.Error) as caught:
            data.load_into_memory()
        self.assertEqual(caught.exception.location, {"file": path})

    def test_a_data_set_ends_while_its_threads_read(self):
        """They need the GIL, which the end of the data set must not keep."""
        main = self.main

        def batches_forever():
            while True:
                yield from self.table.to_batches()

        data = millrace.Dataset(main, use_vars=["x", "t"], batch_size=8, arrow=lambda: pyarrow.RecordBatchReader.from_batches(
            self.table.schema, batches_forever()))

        def stop(*step):
            raise KeyError("enough")

        with self.assertRaises(KeyError):
            self.executor.train_from_dataset(main, self.scope, data, print_period=1, on_print=stop)
        ended = threading.Event()
        watch = threading.Timer(60, lambda: ended.is_set() or os._exit(1))
        watch.start()
        del data
        ended.set()
        watch.cancel()


if __name__ == "__main__":
    unittest.main()
