"""Data sets with the names of ``paddle.fluid``; millrace.fluid has what is public."""

from __future__ import annotations

import os
import warnings

from ._errors import InvalidArgumentError, UnimplementedError
from .datasets import Dataset
from .program import Program


class DatasetBase:
    """Settings of a data set. They take effect when it is used next; changing them drops examples in memory."""

    _in_memory = False

    def __init__(self):
        self._options = {"batch_size": 1, "reader_threads": 1, "in_memory": self._in_memory}
        self._vars: list = []
        self._made: Dataset | None = None

    def _set(self, name: str, value):
        self._options[name] = value
        self._made = None

    def set_pipe_command(self, pipe_command: str):
        """A shell command that every file is sent through: from its standard input, decompressed, to its standard
        output. "cat": none."""
        self._set("pipe_command", pipe_command)

    def set_batch_size(self, batch_size: int):
        if batch_size < 1:
            raise InvalidArgumentError(f"set_batch_size: expected at least 1, found {batch_size}")
        self._set("batch_size", batch_size)

    def set_thread(self, thread_num: int):
        """Threads that read files, and threads that run steps (``thread`` of ``train_from_dataset``)."""
        if thread_num < 1:
            raise InvalidArgumentError(f"set_thread: expected at least 1, found {thread_num}")
        self._set("reader_threads", thread_num)

    def set_filelist(self, filelist):
        """Names of files; patterns are matched."""
        files = [os.fspath(file) for file in filelist]
        if self._made is not None and files:
            self._made.set_files(files)
        self._options["files"] = files

    def set_use_var(self, var_list):
        """Vars that the slots of a line feed, in order: those of a program, or names in the default main program."""
        self._vars = list(var_list)
        self._set("use_vars", [var if isinstance(var, str) else var.name for var in self._vars])

    def set_input_type(self, input_type: int):
        """0 only: one example a line."""
        if input_type != 0:
            raise UnimplementedError(f"fluid.{type(self).__name__}.set_input_type({input_type})")

    def _program(self):
        from .fluid import default_main_program

        for var in self._vars:
            if not isinstance(var, str):
                return Program._of(var._editor.program())
        return default_main_program()

    def _dataset(self) -> Dataset:
        if self._made is None:
            self._made = Dataset(self._program(), **self._options)
        return self._made


class QueueDataset(DatasetBase):
    """Examples that are read while a program runs."""

    def local_shuffle(self):
        raise UnimplementedError("fluid.QueueDataset.local_shuffle", hint="an InMemoryDataset can be shuffled")

    def global_shuffle(self, fleet=None):
        raise UnimplementedError("fluid.QueueDataset.global_shuffle", hint="an InMemoryDataset can be shuffled")


class InMemoryDataset(DatasetBase):
    """Examples in memory, in the order of the files until they are shuffled."""

    _in_memory = True

    def load_into_memory(self):
        self._dataset().load_into_memory()

    def preload_into_memory(self, thread_num: int | None = None):
        """Loads in the background. :param thread_num: replaces ``set_thread``"""
        if thread_num is not None and thread_num != self._options["reader_threads"]:
            self.set_thread(thread_num)
        self._dataset().preload()

    def wait_preload_done(self):
        self._dataset().wait_preload()

    def local_shuffle(self):
        """Shuffles the examples of this process; every call of a new script gives the same orders."""
        self._dataset().local_shuffle()

    def global_shuffle(self, fleet=None, thread_num: int = 12):
        """The same for the examples of all workers of a fleet; only one worker is supported. Shuffling is done by one
        thread, whatever ``thread_num`` is."""
        workers = _workers(fleet)
        if workers > 1:
            raise UnimplementedError(f"fluid.InMemoryDataset.global_shuffle between {workers} workers",
                                     hint="millrace.Dataset with divide='examples' gives each worker a random share "
                                          "of the lines; with global_shuffle(ranks=millrace.Ranks()) workers exchange "
                                          "the examples of their own files")
        self._dataset().global_shuffle()

    def release_memory(self):
        self._dataset().release_memory()

    def get_memory_data_size(self, fleet=None) -> int:
        """Number of examples in memory."""
        return self._size("get_memory_data_size", fleet)

    def get_shuffle_data_size(self, fleet=None) -> int:
        """The same: shuffling keeps all examples."""
        return self._size("get_shuffle_data_size", fleet)

    def _size(self, name: str, fleet) -> int:
        if _workers(fleet) > 1:
            raise UnimplementedError(f"fluid.InMemoryDataset.{name} of several workers")
        return self._dataset().examples_in_memory


def _workers(fleet) -> int:
    return 1 if fleet is None else fleet.role.worker_num


class DatasetFactory:
    """``create_dataset(name)`` makes a data set."""

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> DatasetBase:
        if datafeed_class in ("BoxPSDataset", "FileInstantDataset", "PaddleBoxDataset"):
            raise UnimplementedError(f"fluid.{datafeed_class}")
        classes = {"QueueDataset": QueueDataset, "InMemoryDataset": InMemoryDataset}
        if datafeed_class not in classes:
            raise InvalidArgumentError(
                f"create_dataset: expected QueueDataset or InMemoryDataset, found '{datafeed_class}'")
        return classes[datafeed_class]()


def _missing(name: str, hint: str | None, default):
    def method(self, *arguments, **options):
        if default is not None and (*arguments, *options.values()) == (default,):
            return  # what a new data set has
        raise UnimplementedError(f"fluid.{type(self).__name__}.{name}", hint=hint)

    method.__name__ = name
    method.__doc__ = "Not supported."
    return method


def _without_effect(name: str, why: str):
    def method(self, *arguments, **options):
        warnings.warn(f"{name}() has no effect: {why}", stacklevel=2)

    method.__name__ = name
    method.__doc__ = f"No effect: {why}."
    return method


def _add_others():
    """The other calls of the original: refused, with what does the same, or warned of if they only change speed."""
    ids = "set_pipe_command() can remove what is before the slots of a line"
    whole = "one line is one example; merge the lines before training"
    for cls, name, hint, default in (
            (DatasetBase, "set_fea_eval", "copy the files with other values of a slot, and compare the epochs", None),
            (DatasetBase, "set_rank_offset", None, None),
            (DatasetBase, "set_hdfs_config", "mount the folder, or copy the files", None),
            (DatasetBase, "set_download_cmd", "set_pipe_command() sends files through a command", None),
            (DatasetBase, "set_so_parser_name", "set_pipe_command() sends files through a command", None),
            (InMemoryDataset, "slots_shuffle", "copy the files with other values of a slot, and compare the epochs",
             None),
            (InMemoryDataset, "set_parse_ins_id", ids, False),
            (InMemoryDataset, "set_parse_content", ids, False),
            (InMemoryDataset, "set_parse_logkey", ids, False),
            (InMemoryDataset, "set_merge_by_lineid", whole, None),
            (InMemoryDataset, "set_merge_by_sid", whole, False),
            (InMemoryDataset, "set_enable_pv_merge", whole, False),
            (InMemoryDataset, "set_generate_unique_feasigns", None, None),
            (InMemoryDataset, "set_feed_type", None, "MultiSlotInMemoryDataFeed")):
        setattr(cls, name, _missing(name, hint, default))
    for name, why in (("set_queue_num", "examples in memory have no queues"),
                      ("set_fleet_send_batch_size", "messages of an exchange have about 4 MiB"),
                      ("set_fleet_send_sleep_seconds", "an exchange does not pause")):
        setattr(InMemoryDataset, name, _without_effect(name, why))


_add_others()


def run_from_dataset(run, dataset, thread, debug, fetch_list, fetch_info, print_period, fetch_handler):
    """train_from_dataset and infer_from_dataset of ``fluid.Executor``.

    :param run: called with the data set, the names of the fetches, on_print, print_period, the number of threads, and
        whether ``thread`` states it
    """
    if dataset is None:
        raise InvalidArgumentError("expected a dataset, found None")
    if thread < 0:
        raise InvalidArgumentError(f"thread: expected at least 0, found {thread}")
    threads = thread or (dataset._options["reader_threads"] if isinstance(dataset, DatasetBase) else 1)
    for name, value in {"debug": debug, "fetch_handler": fetch_handler}.items():
        if value:
            raise UnimplementedError(f"{name} of train_from_dataset and infer_from_dataset")
    names = [item if isinstance(item, str) else item.name for item in fetch_list or []]
    labels = list(fetch_info) if fetch_info else names
    if len(labels) != len(names):
        raise InvalidArgumentError(f"fetch_info: expected {len(names)} texts as in fetch_list, found {len(labels)}")

    def show(batch, examples, fetches, text):
        values = (f"{label} = {_text(fetches[name])}" for label, name in zip(labels, names))
        print(f"batch {batch}: {', '.join(values)}", flush=True)

    return run(dataset._dataset() if isinstance(dataset, DatasetBase) else dataset, names,
               show if names else None, print_period, threads, thread > 0)


def _text(value) -> str:
    return f"{value.item():.6g}" if value.size == 1 else str(value)
